"""The clock of a driver that is set and drifts while it sheds on Spark: a query with the one line, and `floodway run`.

The clock is that of the whole job (`set_clock.py`), and of the writer of its input. At every point it is set by up to
a day, in some with a driver that is killed right after; then the operator turns the shed off, and on again. Always:

- within `SLACK` batches a batch has the mode that the operator wished for, and keeps it;
- a batch in `enforce` drops if its keep is below one, in any other mode it drops nothing;
- under overload `enforce` comes to drop again within `RECOVERY` batches;
- ledger, sink and checkpoint agree, as after a kill.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from floodway.experiments.chaos.clocks import set_clock
from floodway.experiments.chaos.clocks.plane_clocks import MOST_DRIFT_PPM, all_steps
from floodway.experiments.chaos.kills.input_feed import TUPLES_A_SECOND, LogFeeding
from floodway.experiments.chaos.kills.kills import START_SECONDS, until
from floodway.experiments.chaos.kills.processes import Job
from floodway.experiments.chaos.kills.run_kills import RunJob
from floodway.experiments.chaos.kills.shed_kills import ShedJob
from floodway.experiments.chaos.result import FaultResult, JobFindings, Trial
from floodway.job.decision import write_mode
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.status.status import read_status
from floodway.job.store.store import Store
from floodway.units import PPM

SLACK = 3
"""The batch that runs, one that begins before its report is heard, and one that begins before the answer is written."""
RECOVERY = 20
"""Batches: what waited when the clock was set has stamps of another time, and must be processed first."""
WATCHED = 3
LONGEST_DELAY_SECONDS = 1.0
OVERLOAD = {"shed": 2000, "run": TUPLES_A_SECOND}
"""Tuples per second: more than one core can process, on any machine."""
SURE_TUPLES, SURE_PPM = 200, PPM * 9 // 10
"""Of so many tuples at most so many kept in a million: one is dropped, but for a chance of one in a billion."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A mode that the operator asked for when this batch was the last that Spark had committed."""

    batch: int
    mode: str


def faults(trial: Trial) -> FaultResult:
    """Steps by the seed, every one before any comes again."""
    result = FaultResult("driver-clocks", detail={"points": []})
    if (missing := set_clock.missing()) is not None:
        result.untried = missing
        return result
    rng = trial.rng("driver-clocks")
    for name, make, points in (("shed", ShedJob, (trial.points + 1) // 2), ("run", RunJob, trial.points // 2)):
        if points:
            folder = trial.folder / name
            clock = set_clock.SetClock(folder / "clock", rng.randint(-MOST_DRIFT_PPM, MOST_DRIFT_PPM))
            with LogFeeding(folder / "input", clock_us=clock.now_us, tuples_per_second=OVERLOAD[name]) as feeding:
                job = make(folder, feeding, variables=clock.variables)
                settings = [(name, clock, step) for step in all_steps(rng, points)]
                set_clocks(name, job, [Query(job.store, job.progress)], settings, rng, trial, result)
    return result


def set_clocks(
    name: str,
    subject: ClockedJob,
    queries: Sequence[Query],
    settings: Sequence[tuple[str, set_clock.SetClock, float]],
    rng: random.Random,
    trial: Trial,
    result: FaultResult,
) -> None:
    """Set clocks of one job, each by its name, one after the other; then let the job finish."""
    with ExitStack() as stack:
        driver = Driver(subject, queries, stack)
        for number, (whose, clock, step) in enumerate(settings):
            killed = number % 4 == 1
            words = f"of {whose} set by {step:+g} s{', and killed' if killed else ''}"
            trial.progress(result.tried / (trial.points + 1), f"{name}: clock {words}")
            driver.shed(f"before that {words}")
            time.sleep(rng.uniform(0.0, LONGEST_DELAY_SECONDS))
            clock.step(step)
            if killed:
                driver.kill()
            driver.shed(f"after that {words}")
            driver.wish("off")
            driver.wish("enforce")
            result.tried += 1
            result.detail["points"].append(f"{name}: {words}")
            if driver.differences:
                break
    trial.progress(result.tried / (trial.points + 1), f"{name}: processing what is left")
    result.differences += [f"{name}: {text}" for text in (*driver.differences, *driver.against_modes())]
    result.add(subject.finish())


class ClockedJob(Protocol):
    """A job that can be started and let finish."""

    def start(self) -> Job:
        """See `Subject`."""

    def finish(self) -> JobFindings:
        """See `Subject`."""


@dataclass
class Query:
    """One query of a job: where its mode, status and ledger lie, the last batch it committed, and what was asked."""

    store: Store
    progress: Callable[[], int]
    wishes: list[Wish] = field(default_factory=lambda: [Wish(-1, "enforce")])

    def dropped(self) -> int:
        """Tuples that its status says were dropped."""
        status = read_status(self.store)
        return 0 if status is None else sum(status.totals.dropped.values())


@dataclass
class Driver:
    """The job under attack, and its queries."""

    subject: ClockedJob
    queries: Sequence[Query]
    stack: ExitStack
    differences: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for query in self.queries:
            write_mode(query.store, "enforce")
        self._job: Job = self.stack.enter_context(self.subject.start())

    def kill(self) -> None:
        """Kill all of it, and start it again."""
        self._job.strike("group", signal.SIGKILL, 0.0)
        self._job.end()
        self._job = self.stack.enter_context(self.subject.start())

    def shed(self, words: str) -> None:
        """Wait until it drops; not for ever."""
        dropped, passed = self._dropped(), self._passed(RECOVERY + 1)
        self._wait(lambda: self._dropped() > dropped or passed())
        if self._dropped() <= dropped:
            self.differences.append(f"clock {words}: {RECOVERY} batches in enforce dropped nothing")

    def wish(self, mode: str) -> None:
        """Ask for a mode as the operator does, and let some batches pass."""
        passed = self._passed(SLACK + WATCHED)
        for query in self.queries:
            query.wishes.append(Wish(query.progress(), mode))
            write_mode(query.store, mode)
        self._wait(passed)

    def against_modes(self) -> list[str]:
        """What the ledgers say against the modes that were asked for."""
        return [text for query in self.queries for text in against_mode(query.wishes, Ledger(query.store).lines())]

    def _dropped(self) -> int:
        return sum(query.dropped() for query in self.queries)

    def _passed(self, batches: int) -> Callable[[], bool]:
        """Whether from now on every query has committed so many batches."""
        ends = [query.progress() + batches for query in self.queries]
        return lambda: all(query.progress() >= end for query, end in zip(self.queries, ends, strict=True))

    def _wait(self, condition: Callable[[], bool]) -> None:
        if not until(lambda: condition() or not self._job.running, START_SECONDS):
            self.differences.append(f"no batch within {START_SECONDS:g} s: {self._job.said()}")
        elif not self._job.running:
            self.differences.append(f"the job ended by itself: {self._job.said()}")


def against_mode(wishes: Sequence[Wish], lines: Iterable[LedgerLine]) -> list[str]:
    """Batches in another mode than was wished for, and batches that kept or dropped against theirs.

    >>> line = LedgerLine("q", 9, "s", Reason.SHEDDER.value, 500, 100, 400, mode="enforce", keep_ppm=200_000)
    >>> against_mode([Wish(-1, "enforce")], [line])
    []
    >>> against_mode([Wish(-1, "enforce"), Wish(5, "off")], [line])
    ['batch 9 has the mode enforce, 4 batches after off was asked for']
    """
    found = []
    for line in lines:
        if line.reason != Reason.SHEDDER or not line.offered:
            continue
        wish = max((one for one in wishes if one.batch < line.batch), key=lambda one: one.batch)
        if line.batch > wish.batch + SLACK and line.mode != wish.mode:
            after = line.batch - wish.batch
            found.append(
                f"batch {line.batch} has the mode {line.mode}, {after} batches after {wish.mode} was asked for"
            )
        if line.mode != "enforce" and line.dropped:
            found.append(f"batch {line.batch} in {line.mode} dropped {line.dropped} tuples")
        sure = line.offered >= SURE_TUPLES and line.keep_ppm <= SURE_PPM
        if line.mode == "enforce" and sure and not line.dropped:
            found.append(f"batch {line.batch} in enforce with a keep of {line.keep_ppm} ppm dropped nothing")
    return found
