"""Disks that tear the last write, are full or read-only, or lose a folder: at every kind of file (`disk_kinds.py`).

What was acknowledged must be there afterwards, once; what was not may be there or not, and is there once when it is
repeated, as a restart does:

    torn        a crash of the machine in the middle of an append: the grown file is cut anywhere in what was new
    full        the kernel refuses to let files grow (RLIMIT_FSIZE, in a process of its own), then there is room again
    vanished    the folder is removed while it is in use: words instead of a crash, and whoever starts anew can go on
    read-only   mounted read-only for a process of its own (`namespaces.py`): words, and nothing is acknowledged
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from floodway.errors import FloodwayError
from floodway.experiments.chaos import namespaces
from floodway.experiments.chaos.disk_kinds import KINDS, MOST_ENTRIES, ONCE
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.job.store.line_log import SEGMENT_BYTES


def faults(trial: Trial) -> FaultResult:
    """Every kind with every fault in turn."""
    result = FaultResult("disks")
    rng = trial.rng("disks")
    ways = {"torn": _torn, "full": _full, "vanished": _vanished, "read-only": _read_only}
    if (missing := namespaces.missing()) is not None:
        result.untried = f"read-only: {missing}"
        del ways["read-only"]
    cases = [(kind, way) for way in ways for kind in KINDS]
    for number in range(trial.points):
        kind, way = cases[number % len(cases)]
        trial.progress(number / trial.points, f"{kind}, {way}")
        folder = trial.folder / f"{number}"
        folder.mkdir(parents=True)
        count = rng.randint(1, MOST_ENTRIES)
        try:
            ways[way](kind, folder, count, rng, result)
        except (FloodwayError, OSError, ValueError, KeyError) as error:
            result.differences.append(f"{kind}, {way}, {count} entries: {type(error).__name__}: {error}")
        result.tried += 1
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _torn(kind: str, folder: Path, count: int, rng: random.Random, result: FaultResult) -> None:
    """Acknowledge all but the last; tear that one; start anew."""
    for number in range(count - 1):
        KINDS[kind](folder).put(number)
    before = _sizes(folder)
    KINDS[kind](folder).put(count - 1)
    for file, size in _sizes(folder).items():
        # Files that are new under their final name were flushed before they got it; those that grew may be torn.
        if 0 <= (old := before.get(file, -1)) < size:
            os.truncate(file[0], rng.randint(old, size - 1))
    _judge(f"{kind}, torn", kind, folder, set(range(count - 1)), count, result)


def _full(kind: str, folder: Path, count: int, rng: random.Random, result: FaultResult) -> None:
    """Let a process of its own put entries until the kernel refuses; then there is room again."""
    room = rng.choice((0, 1, 50, 200, 1000, 4000, SEGMENT_BYTES // 3, SEGMENT_BYTES * 2))

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    place = f"{kind}, full at {room} bytes"
    acknowledged = _put_until_refused(place, kind, folder, range(count), fill, result)
    if left := [path.name for path in folder.rglob(".*")]:
        result.differences.append(f"{place}: drafts are left: {left[:5]}")
    _judge(place, kind, folder, set(range(acknowledged)), count, result)


def _read_only(kind: str, folder: Path, count: int, rng: random.Random, result: FaultResult) -> None:
    """Some entries, then a file system that is read-only for a process of its own, then a sound one."""
    before = rng.randint(0, count - 1)
    for number in range(before):
        KINDS[kind](folder).put(number)
    place = f"{kind}, read-only after {before} entries"
    taken = _put_until_refused(
        place, kind, folder, range(before, count), lambda: namespaces.make_read_only(folder), result
    )
    # Notes are written once: who finds them there has nothing to write.
    if taken and not (kind == "notes" and before):
        result.differences.append(f"{place}: {taken} entries were acknowledged")
    _judge(place, kind, folder, set(range(before)), count, result)


def _put_until_refused(
    place: str, kind: str, folder: Path, numbers: Iterable[int], fault: Callable[[], None], result: FaultResult
) -> int:
    """Let a process of its own suffer a fault and put entries until it is refused; how many were acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        made = KINDS[kind](folder)
        try:
            fault()
            for number in numbers:
                made.put(number)
                os.write(writing, b".")
            os._exit(0)
        except FloodwayError:
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{place}: {error!r}\n".encode())
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        acknowledged = len(pipe.read())
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        result.differences.append(f"{place}: an error without words")
    return acknowledged


def _vanished(kind: str, folder: Path, count: int, rng: random.Random, result: FaultResult) -> None:
    """Remove everything while an object is in use; it may refuse, and a new one begins anew."""
    made = KINDS[kind](folder)
    for number in range(count):
        made.put(number)
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for number in range(count, count + 3):
        try:
            made.put(number)
        except FloodwayError:
            break
    again = KINDS[kind](folder)
    for number in range(count, count + 3):
        again.put(number)
    held = again.held()
    wanted = set(range(count, count + 3)) & set(held) if kind in ONCE else set(range(count, count + 3))
    result.lost += len(wanted - set(held))
    result.doubled += sum(held[number] - 1 for number in wanted if held[number] > 1)


def _judge(place: str, kind: str, folder: Path, promised: set[int], count: int, result: FaultResult) -> None:
    """After a restart: nothing promised is gone, and a repetition makes everything be there once."""
    if promised:
        held = KINDS[kind](folder).held()
        result.lost += len(promised - set(held))
    for number in range(count):
        KINDS[kind](folder).put(number)
    held = KINDS[kind](folder).held()
    result.lost += len(set(range(count)) - set(held))
    result.doubled += sum(times - 1 for times in held.values() if times > 1)
    if strange := set(held) - set(range(MOST_ENTRIES)):
        result.differences.append(f"{place}: entries {sorted(strange)[:5]} that nobody made")


def _sizes(folder: Path) -> dict[tuple[Path, int], int]:
    """By path and inode: a file that was replaced whole is another one."""
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {(path, status.st_ino): status.st_size for path, status in found.items()}
