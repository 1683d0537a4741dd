"""Disks that tear the last write, are full, or lose a folder: at every kind of file that outlives a process.

Each kind is something that takes numbered entries and gives back those that it holds. What was acknowledged must be
there afterwards, once; what was not may be there or not, and is there once when it is repeated, as a restart does:

    torn       a crash of the machine in the middle of an append: the grown file is cut anywhere in what was new
    full       the kernel refuses to let files grow (RLIMIT_FSIZE, in a process of its own), then there is room again
    vanished   the folder is removed while it is in use: words instead of a crash, and whoever starts anew can go on
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from floodway.errors import FloodwayError
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.store.kept_lines import KeptLines
from floodway.job.store.store import LocalStore
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.query.query_notes import QueryNotes, note_tasks, read_notes

MOST_ENTRIES = 40


class Kind(Protocol):
    """One kind of file, opened anew for every object."""

    def put(self, number: int) -> None:
        """Take an entry; once it has returned, the entry is acknowledged. Taking it again changes nothing."""

    def held(self) -> Counter[int]:
        """The entries that are there."""


class LedgerFiles:
    """A ledger: an entry is a batch."""

    def __init__(self, folder: Path) -> None:
        self._ledger = Ledger(LocalStore(folder))

    def put(self, number: int) -> None:
        """See `Kind`."""
        self._ledger.append([LedgerLine("q", number, "s", Reason.SHEDDER.value, 9, 4, 5)])

    def held(self) -> Counter[int]:
        """See `Kind`."""
        expected = ("missing", "torn")  # entries come in any order here, and a torn line is said to be torn
        for text in self._ledger.fold().differences():
            if not any(word in text for word in expected):
                raise FloodwayError(f"the ledger says: {text}")
        return Counter(line.batch for line in self._ledger.read())


class LogFiles:
    """An embedded log: an entry is a tagged append of three tuples, merged with its neighbours now and then."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "log"

    def put(self, number: int) -> None:
        """See `Kind`."""
        create_log(self._path, "id bigint")
        with LogWriter(self._path, compact_every=8) as writer:
            writer.append(pa.table({"id": [3 * number, 3 * number + 1, 3 * number + 2]}), tag=f"q:s:{number}:0")

    def held(self) -> Counter[int]:
        """See `Kind`."""
        reader = LogReader(self._path)
        ids = Counter(
            row for batch in reader.read(0, 0, reader.end_positions()[0]) for row in batch.column("id").to_pylist()
        )
        return Counter({number // 3: count for number, count in ids.items()})


class KeptFiles:
    """Figures and plans: an entry is a line. Who repeats one after a crash looks first, as their readers do."""

    def __init__(self, folder: Path) -> None:
        self._lines = KeptLines(LocalStore(folder), "lines")

    def put(self, number: int) -> None:
        """See `Kind`."""
        if number not in self.held():
            self._lines.append([{"number": number}])

    def held(self) -> Counter[int]:
        """See `Kind`."""
        return Counter(int(line["number"]) for line in self._lines.read())


class SmallFiles:
    """Files that are replaced whole (decisions, modes, journals of control planes): the newest entry stands for all."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(folder)

    def put(self, number: int) -> None:
        """See `Kind`."""
        self._store.write("state.json", json.dumps({"number": max(number, self._newest())}).encode())

    def held(self) -> Counter[int]:
        """See `Kind`."""
        return Counter(range(self._newest() + 1))

    def _newest(self) -> int:
        found = self._store.read("state.json")
        return -1 if found is None else int(json.loads(found)["number"])


class NoteFiles:
    """What is kept inside a checkpoint: written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "checkpoint"

    def put(self, number: int) -> None:
        """See `Kind`."""
        note_tasks(self._folder, 7)

    def held(self) -> Counter[int]:
        """See `Kind`."""
        notes = read_notes(self._folder)
        return (
            Counter(range(MOST_ENTRIES)) if notes.tasks == 7 else Counter() if notes == QueryNotes() else Counter([-1])
        )


KINDS: dict[str, Callable[[Path], Kind]] = {
    "ledger": LedgerFiles,
    "log": LogFiles,
    "lines": KeptFiles,
    "small": SmallFiles,
    "notes": NoteFiles,
}


def faults(trial: Trial) -> FaultResult:
    """Every kind with every fault in turn."""
    result = FaultResult("disks")
    rng = trial.rng("disks")
    ways = {"torn": _torn, "full": _full, "vanished": _vanished}
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
    for path, size in _sizes(folder).items():
        # Files that are new under their final name were flushed before they got it; those that grew may be torn.
        if 0 <= (old := before.get(path, -1)) < size:
            os.truncate(path, rng.randint(old, size - 1))
    _judge(f"{kind}, torn", kind, folder, set(range(count - 1)), count, result)


def _full(kind: str, folder: Path, count: int, rng: random.Random, result: FaultResult) -> None:
    """Let a process of its own put entries until the kernel refuses; then there is room again."""
    room = rng.choice((0, 1, 50, 200, 1000, 4000))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
            made = KINDS[kind](folder)
            for number in range(count):
                made.put(number)
                os.write(writing, b".")
            os._exit(0)
        except (FloodwayError, OSError):
            os._exit(0)
        except BaseException:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        acknowledged = len(pipe.read())
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        result.differences.append(f"{kind}, full at {room} bytes: an error without words")
    _judge(f"{kind}, full at {room} bytes", kind, folder, set(range(acknowledged)), count, result)


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
    wanted = set(range(count, count + 3)) & set(held) if kind == "notes" else set(range(count, count + 3))
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


def _sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
