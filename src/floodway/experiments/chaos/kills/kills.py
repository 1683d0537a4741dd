"""Kills and stops at chosen phases of a micro-batch, one after the other on the same state.

A point is a phase, a target, a signal and a delay, all by the seed. For each: the job runs on the state that the point
before left, the phase is awaited, the signal sent. A job that is killed is started again by the next point, one that
was held up must go on. Whenever it has ended, and at the end when all input is processed, the files are looked at.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Protocol

from floodway.experiments.chaos.files_watched import FilesWatched
from floodway.experiments.chaos.kills.processes import HANG_SECONDS, Job
from floodway.experiments.chaos.result import FaultResult, Found, Trial

START_SECONDS = 600.0
"""A bound for a start that hangs: on a busy machine Spark takes minutes to its first batch."""
FINISH_SECONDS = 1800.0
LONGEST_DELAY_SECONDS = 0.15
HOLD_SECONDS = 11.0
"""Longer than every time-out of a job on one machine: a silent steering counts after ten seconds."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where to strike: after this phase and a delay, at these processes, with this signal."""

    phase: str
    target: str
    signal: signal.Signals
    delay_seconds: float

    def __str__(self) -> str:
        return f"{self.signal.name} of {self.target}, {self.delay_seconds * 1e3:.0f} ms after {self.phase}"


@dataclass(frozen=True, slots=True)
class Phase:
    """A folder to watch, and which of its files say that the phase is there."""

    folder: Path
    matches: Callable[[str], bool] = lambda name: True


class Subject(Protocol):
    """A job under attack."""

    def start(self) -> Job:
        """Start it on the state that it has."""

    def phases(self) -> Mapping[str, Phase]:
        """What to watch; the folders need not be there before the first batch."""

    def progress(self) -> int:
        """A number that grows when a batch was done."""

    def look(self) -> Found:
        """What the files say now, while nothing of the job runs."""

    def finish(self) -> Found:
        """Let it process all that there is, undisturbed, and look."""


def points_of(rng: random.Random, count: int, phases: Sequence[str], targets: Sequence[str]) -> list[Point]:
    """Points by the seed: every pair of phase and target in turn, in an order by chance; every fourth is a stop.

    >>> sorted(point.phase for point in points_of(random.Random(1), 2, ["cut", "sink"], ["driver"]))
    ['cut', 'sink']
    """
    pairs = list(product(phases, targets))
    found: list[Point] = []
    while len(found) < count:
        for phase, target in rng.sample(pairs, len(pairs)):
            stops = len(found) % 4 == 1
            longest = rng.choice((LONGEST_DELAY_SECONDS, LONGEST_DELAY_SECONDS / 30))
            delay = rng.uniform(0.0, longest)
            found.append(Point(phase, target, signal.SIGSTOP if stops else signal.SIGKILL, delay))
    return found[:count]


def campaign(name: str, subject: Subject, targets: Sequence[str], trial: Trial) -> FaultResult:
    """Strike at every point, then let the job finish.

    A job that survives a point is struck again: a start costs more than all else. The files are looked at whenever
    nothing of the job runs.
    """
    result = FaultResult(name)
    points = points_of(trial.rng(name), trial.points, list(subject.phases()), targets)
    tried: list[str] = []
    with ExitStack() as running:
        job: Job | None = None
        for number, point in enumerate(points):
            trial.progress(number / (len(points) + 1), str(point))
            job = job or running.enter_context(subject.start())
            hit = _strike(subject, job, point, result)
            tried.append(f"{point}: hit {hit}")
            result.tried += 1
            survived = job.running and point.target != "group"
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


def _strike(subject: Subject, job: Job, point: Point, result: FaultResult) -> int:
    """Wait for the phase and send the signal; how many processes were hit."""
    before = subject.progress()
    if not until(lambda: subject.progress() > before or not job.running, START_SECONDS):
        result.differences.append(f"no batch within {START_SECONDS:g} s of a start: {job.said()}")
        return 0
    if not job.running:
        result.differences.append(f"the job ended by itself: {job.said()}")
        return 0
    phase = subject.phases()[point.phase]
    with FilesWatched() as watched:
        watched.add(phase.folder)
        if watched.wait(lambda path: phase.matches(path.name), time.monotonic() + START_SECONDS) is None:
            result.differences.append(f"{point.phase} did not come within {START_SECONDS:g} s: {job.said()}")
            return 0
    time.sleep(point.delay_seconds)
    hit = job.strike(point.target, point.signal, HOLD_SECONDS)
    at = subject.progress()
    # Without a part of itself it must end, or go on: a driver that waits for ever protects nobody.
    if (
        hit
        and point.target != "group"
        and not until(lambda: not job.running or subject.progress() > at + 1, HANG_SECONDS)
    ):
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
    folder = checkpoint / "commits"
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else iter(())
    return max((int(name) for name in names if name.isdecimal()), default=-1)
