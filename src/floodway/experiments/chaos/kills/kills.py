"""Kills and stops at chosen phases of a micro-batch, one after the other on the same state.

A point is a phase, a target, a signal and a delay, all by the seed. For each: the job runs on the state that the point
before left, the phase is awaited, the signal sent. A job that is killed is started again by the next point, one that
was held up must go on. Whenever it has ended, and at the end when all input is processed, the files are looked at.

Telling from outside what a job is doing, by the files that it writes: Linux's inotify, through the C library.

A phase of a micro-batch ends with a file: the cut with `offsets/N`, the sink with a segment, the commit with
`commits/N`. Whoever waits for that file and strikes then has hit the phase that follows, without a line of code in the
job for it.
"""

from __future__ import annotations

import ctypes
import os
import random
import select
import signal
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count as numbers
from pathlib import Path
from typing import Protocol, Self

from floodway.experiments.chaos.kills.input_feed import InputFeed
from floodway.experiments.chaos.kills.processes import HANG_SECONDS, CommandJob, Job, Strike
from floodway.experiments.chaos.result import FaultResult, JobFindings, Trial
from floodway.spark.query.journal import committed_batches, journaled_batches

START_SECONDS = 600.0
"""A bound for a start that hangs: on a busy machine Spark takes minutes to its first batch."""
FINISH_SECONDS = 1800.0
LONGEST_DELAY_SECONDS = 0.15
HOLD_SECONDS = 11.0
"""Longer than every time-out of a driver without Java: a silent steering counts after ten seconds."""
BROKER_HOLD_SECONDS = 20.0
"""Longer than Floodway's source waits for a record, and its writer for an acknowledgement: fifteen seconds."""
SPARK_SETTINGS = {
    # A part of Spark that is silent for so long is given up: sooner than after the two minutes of its default.
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "3s",
}
SPARK_HOLD_SECONDS = 45.0
"""Longer than that, than Spark's connector waits for a broker, and than messages between nodes are fresh."""


@dataclass(frozen=True, slots=True)
class KillPoint:
    """Where to strike: after this phase and a delay, at these processes, with this signal."""

    phase: str
    target: str
    signal: signal.Signals
    delay_seconds: float

    @property
    def ends_all(self) -> bool:
        """Whether nothing of the job can go on."""
        return self.target == "group" and self.signal == signal.SIGKILL

    def __str__(self) -> str:
        return f"{self.signal.name} of {self.target}, {self.delay_seconds * 1e3:.0f} ms after {self.phase}"


@dataclass(frozen=True, slots=True)
class KillPhase:
    """A folder to watch, and which of its files say that the phase is there."""

    folder: Path
    matches: Callable[[str], bool] = lambda name: True


class Subject(Protocol):
    """A job under attack."""

    def start(self) -> Job:
        """Start it on the state that it has."""

    def phases(self) -> Mapping[str, KillPhase]:
        """What to watch; the folders need not be there before the first batch."""

    def progress(self) -> int:
        """A number that grows when a batch was done."""

    def look(self) -> JobFindings:
        """What the files say now, while nothing of the job runs."""

    def finish(self) -> JobFindings:
        """Let it process all that there is, undisturbed, and look."""


def points_of(
    rng: random.Random, count: int, phases: Sequence[str], targets: Sequence[str], *, stop_every: int = 4
) -> list[KillPoint]:
    """Points by the seed, one of `stop_every` a stop. Each signal goes to every target in turn, at phases in turn.

    >>> points = points_of(random.Random(1), 4, ["cut", "sink"], ["driver", "java"], stop_every=2)
    >>> sorted((point.signal.name, point.target) for point in points)
    [('SIGKILL', 'driver'), ('SIGKILL', 'java'), ('SIGSTOP', 'driver'), ('SIGSTOP', 'java')]
    """
    turns = {one: _turns(rng, phases, targets) for one in (signal.SIGKILL, signal.SIGSTOP)}
    found = []
    for number in range(count):
        chosen = signal.SIGSTOP if number % stop_every == 1 else signal.SIGKILL
        phase, target = next(turns[chosen])
        longest = rng.choice((LONGEST_DELAY_SECONDS, LONGEST_DELAY_SECONDS / 30))
        found.append(KillPoint(phase, target, chosen, rng.uniform(0.0, longest)))
    return found


def _turns(rng: random.Random, phases: Sequence[str], targets: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every target once per round, each at another phase than in the round before."""
    phases, targets = rng.sample(phases, len(phases)), rng.sample(targets, len(targets))
    for turn in numbers():
        for place, target in enumerate(targets):
            yield phases[(place + turn) % len(phases)], target


def campaign(
    name: str,
    subject: Subject,
    targets: Sequence[str],
    trial: Trial,
    *,
    stop_every: int = 4,
    hold_seconds: float | None = None,
) -> FaultResult:
    """Strike at every point, then let the job finish; a stop lasts `hold_seconds`, `HOLD_SECONDS` if not given.

    A job that survives a point is struck again: a start costs more than all else. The files are looked at whenever
    nothing of the job runs.
    """
    result = FaultResult(name)
    points = points_of(trial.rng(name), trial.points, list(subject.phases()), targets, stop_every=stop_every)
    hold_seconds = HOLD_SECONDS if hold_seconds is None else hold_seconds
    tried: list[str] = []
    with ExitStack() as running:
        job: Job | None = None
        for number, point in enumerate(points):
            trial.progress(number / (len(points) + 1), str(point))
            job = job or running.enter_context(subject.start())
            hit = _strike(subject, job, point, hold_seconds, result)
            tried.append(f"{point}: hit {hit}")
            result.tried += 1
            survived = job.running and not point.ends_all
            if not survived or number == len(points) - 1 or result.differences:
                running.pop_all().close()
                job = None
                result.add(subject.look())
            if not result.holds:
                result.differences.append(f"the last of these: after {point}")
                break  # what follows would say the same again
    trial.progress(len(points) / (len(points) + 1), "processing what is left")
    if result.holds:
        result.add(subject.finish())
    result.detail["points"] = tried
    return result


def _strike(subject: Subject, job: Job, point: KillPoint, hold_seconds: float, result: FaultResult) -> int:
    """Wait for the phase and send the signal; how many processes were hit."""
    before = subject.progress()
    if not until(lambda: subject.progress() > before or not job.running, START_SECONDS):
        result.differences.append(f"no batch within {START_SECONDS:g} s of a start: {job.said()}")
        return 0
    if not job.running:
        result.differences.append(f"the job ended by itself: {job.said()}")
        return 0
    phase, hit = subject.phases()[point.phase], list[int]()
    # A shed's ledger follows the commit: after the first batch it may not be there yet.
    until(lambda: phase.folder.is_dir() or not job.running, START_SECONDS)
    with FilesWatched() as watched:
        watched.add(phase.folder)
        end = time.monotonic() + START_SECONDS
        while not hit:  # a worker, or a node that starts, may not be there yet: the next batch will have it
            if not job.running or watched.wait(lambda path: phase.matches(path.name), end) is None:
                result.differences.append(f"{point} was not possible within {START_SECONDS:g} s: {job.said()}")
                return 0
            time.sleep(point.delay_seconds)
            hit = job.strike(point.target, point.signal, hold_seconds)
    at = subject.progress()
    # Without a part of itself it must end, or go on: a driver that waits for ever protects nobody.
    if not point.ends_all and not until(lambda: not job.running or subject.progress() > at + 1, HANG_SECONDS):
        result.differences.append(f"neither ended nor went on within {HANG_SECONDS:g} s after {point}: {job.said()}")
    return len(hit)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a state; whether it came in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def last_committed(checkpoint: Path) -> int:
    """The number of the last batch that Spark has committed there; -1 before the first."""
    return max(committed_batches(checkpoint), default=-1)


class FedJob(ABC):
    """A folder with a query's checkpoint, and the jobs that were started on it under load."""

    def __init__(
        self,
        folder: Path,
        checkpoint: Path,
        feeding: InputFeed,
        others: Mapping[str, Strike] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._folder, self._checkpoint, self._feeding = folder, checkpoint, feeding
        self._others, self._variables = others, variables
        self._journal: dict[int, str] = {}
        feeding.consumed = self.consumed

    def start(self) -> Job:
        """Run for as long as it takes, under load."""
        self._feeding.flow(True)
        return self._started()

    def progress(self) -> int:
        """The last batch that Spark has committed."""
        return last_committed(self._checkpoint)

    def cut_again(self) -> list[str]:
        """Batches whose journaled offset is another one than it was at the last look."""
        found = {number: self._checkpoint / "offsets" / str(number) for number in journaled_batches(self._checkpoint)}
        texts = {number: path.read_text(encoding="utf-8") for number, path in found.items()}
        return [
            f"batch {number} was cut a second time, otherwise than the first"
            for number, text in texts.items()
            if self._journal.setdefault(number, text) != text
        ]

    @abstractmethod
    def consumed(self) -> int:
        """Tuples of the input that Spark has committed."""

    @abstractmethod
    def _started(self) -> Job:
        """A process on the state that there is."""

    def _command(self, *command: str) -> CommandJob:
        return CommandJob(command, self._folder / "errors.txt", self._others, self._variables)


_CREATE, _MOVED_TO, _CLOSE_WRITE, _MODIFY = 0x100, 0x80, 0x8, 0x2
_EVENT = struct.Struct("iIII")


class FilesWatched:
    """Folders that exist, watched from `add` on; `wait` returns when a name in one of them was made or written."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify is not there")
        self._folders: dict[int, Path] = {}

    def add(self, folder: Path) -> None:
        """Watch a folder; not what is in folders below it."""
        found = self._library.inotify_add_watch(
            self._descriptor, os.fsencode(folder), _CREATE | _MOVED_TO | _CLOSE_WRITE | _MODIFY
        )
        if found < 0:
            raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")
        self._folders[found] = folder

    def wait(self, wanted: Callable[[Path], bool], until: float) -> Path | None:
        """The first file of interest; None if there was none until this moment of the monotonic clock."""
        while (left := until - time.monotonic()) > 0:
            if select.select([self._descriptor], [], [], min(left, 0.5))[0]:
                for path in self._events():
                    if wanted(path):
                        return path
        return None

    def _events(self) -> list[Path]:
        data = os.read(self._descriptor, 1 << 16)
        found, at = [], 0
        while at < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = data[at : at + length].rstrip(b"\0")
            at += length
            if name and watch in self._folders:
                found.append(self._folders[watch] / os.fsdecode(name))
        return found

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
