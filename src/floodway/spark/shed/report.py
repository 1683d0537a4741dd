"""What Spark reports of one micro-batch of a query that a shed is in, and what the shed says of itself after it.

The second is the latencies of its results, the reason of its decision, and its part of a status.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodway.control.loop import FinishedBatch, KeepDecision
from floodway.job.status.batches import Batch, Sketch
from floodway.job.status.parts import (
    NO_MEASUREMENT,
    AccuracyPart,
    held_reason,
    keep_reason,
    would_words,
)
from floodway.job.status.status import ShedPart
from floodway.spark.shed.checkpoints import NOT_RUN
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.job.decision import Mode
    from floodway.job.ledger.facts import OffsetRange
    from floodway.planning.lag import Waiting
    from floodway.spark.shed.chooser import QueryMemory, ShedSettings

log = logging.getLogger(__name__)

MOST_ACTIONS = 10
"""Times that a sink may read a whole batch."""

MOST_WARNINGS = 8
STEPS = 20
"""Into how many latencies a batch's are divided."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What Spark counted in one micro-batch. Times in microseconds of the epoch, `seconds` its duration.

    `batch_time_us` is the journaled timestamp that chose the entry `seq`; both are None where no tuple is left to tell
    them (`accounts.with_decision`). `arrival_us`
    is the mean arrival of the kept tuples, `event_us` the latest event time offered.
    """

    query: str
    run: str
    batch: int
    started_us: int
    seconds: float
    offered: int
    kept: int
    batch_time_us: int | None = None
    seq: int | None = None
    keep_ppm: int | None = None
    mode: str | None = None
    stale: int = 0
    """Tuples that were older than `max_age` when the batch began."""
    skipped: int = 0
    """Those of them that were dropped for it."""
    over: int = 0
    """Tuples of keys over their share that the decision drops."""
    by_share: int = 0
    """Those of them that were dropped for it."""
    key_points: Sequence[int] | None = None
    key_counts: Mapping[int, int] = field(default_factory=dict)
    """Tuples by place among the tracked keys, from 1 on; at 0 those of all others."""
    key_name: str | None = None
    """Of the key that the decision asked for."""
    sample: Sequence[int] = ()
    """Points of the sample of an accuracy (`keys/key_columns.py`), drawn from `sampled` tuples."""
    sampled: int = 0
    first: int = 0
    """Tuples that are the first of their keys and kept for it."""
    unknown: int = 0
    """Tuples of keys that a task had no room for."""
    behind: int = 0
    """Tuples, none of them stale, before the position that batches skip to."""
    passed_over: int = 0
    """Those of them that were dropped for it."""
    waiting: tuple[Waiting, ...] = ()
    """What the batch left in every partition of Kafka."""
    arrival_us: float | None = None
    event_us: int | None = None
    in_gaps: int = 0
    """Tuples of windows that are not emitted."""
    utilities: Sequence[float] | None = None
    dropped_tuples: Sequence[str] = ()
    read: int | None = None
    """Tuples that Spark read for the batch, where those are what the shed is offered: by all actions on the batch."""
    backlog: int | None = None
    """Tuples that the batch left in the source, where the source tells."""
    ranges: tuple[OffsetRange, ...] = ()
    no_ranges: str = ""
    """Why there are no ranges."""

    @property
    def was_run(self) -> bool:
        """Whether there was anything to count: not in a repeated batch whose results the sink had already."""
        return self.no_ranges != NOT_RUN

    @property
    def uncertain(self) -> bool:
        """Whether the counts are of a part of the batch.

        A batch that a sink uses in several actions (`foreachBatch` that writes, then shows) is read by each. Spark's
        counts are those of the last one. That one read all if the others together read less, or just as much each. A
        part that divides what one whole action read looks the same; where there are positions, they span more then.
        """
        if self.read is None or self.read - self.offered < self.offered:
            return False
        actions, rest = divmod(self.read, self.offered) if self.offered else (0, self.read)
        spanned = sum(one.end - one.start for one in self.ranges)
        return rest > 0 or actions > MOST_ACTIONS or (actions > 2 and spanned >= self.read - self.offered)

    @property
    def would_drop(self) -> dict[str, int]:
        """In mode observe: tuples that enforcing would drop for their age, number or key, by reason."""
        found = {"stale": self.stale, "lag": self.behind, "share": self.over} if self.mode == "observe" else {}
        return {reason: tuples for reason, tuples in found.items() if tuples}

    @property
    def ended_us(self) -> int:
        """When the batch ended, in microseconds of the epoch."""
        return self.started_us + round(self.seconds * 1e6)

    def finished(self, *, lossless: bool = False) -> FinishedBatch:
        """The part that a decision is made from; how long tuples waited for their batch no keep shortens."""
        arrival = None if self.arrival_us is None else self.arrival_us / 1e6
        offered, kept = self.offered, self.kept
        if self.uncertain and self.read is not None and offered:
            # The actions before the last one read the rest: all of the batch, if it was one action.
            offered, kept = self.read - offered, kept * (self.read - offered) // offered
        # What is skipped asks for no share of the capacity.
        offered = max(kept, offered - self.skipped - self.passed_over)
        arrival, backlog = (None, None) if lossless else (arrival, self.backlog)
        return FinishedBatch(self.started_us / 1e6, self.seconds, offered, kept, arrival, backlog)


class Warnings(deque[str]):
    """What an operator must know beside the figures, latest last."""

    def __init__(self, shed: str) -> None:
        super().__init__(maxlen=MOST_WARNINGS)
        self._shed = shed

    def say(self, text: str) -> None:
        """Once, in the log, and in the status from now on."""
        if text not in self:
            self.append(text)
            log.warning("floodway shed %s: %s", self._shed, text)

    def say_only(self, text: str | None, among: Iterable[str]) -> None:
        """This one, and none of the others any more."""
        for other in among:
            if other != text and other in self:
                self.remove(other)
        if text is not None:
            self.say(text)


def latencies_of(mean_seconds: float | None, gap_seconds: float, tuples: int) -> Sketch:
    """The latencies of a batch's results, of which Spark counts the mean only.

    The tuples of a batch arrive evenly between the start of the batch before it and its own, so their latencies are
    even over that gap, as the control laws for percentiles have it.

    >>> found = latencies_of(2.0, 1.0, 1000)
    >>> found.count, round(found.mean, 3), round(found.quantile(0.95), 2)
    (1000, 2.0, 2.42)
    """
    found = Sketch()
    if mean_seconds is not None:
        least, width = max(0.0, mean_seconds - gap_seconds / 2.0), min(gap_seconds, 2.0 * mean_seconds)
        for step in range(STEPS):
            share = tuples * (step + 1) // STEPS - tuples * step // STEPS
            found.add(least + width * (step + 0.5) / STEPS, share)
    return found


def batch_of(report: BatchReport, mode: Mode, reason: str, latencies: Sketch) -> Batch:
    """The figures of a batch on record; `mode` is the one in force where the batch held no tuples."""
    return Batch(
        query=report.query,
        batch=report.batch,
        cut_seconds=report.started_us / 1e6,
        ended_seconds=report.ended_us / 1e6,
        offered=report.offered,
        kept=report.kept,
        keep=1.0 if report.keep_ppm is None else report.keep_ppm / PPM,
        mode=report.mode or mode,
        reason=reason,
        latencies=latencies,
        busy_seconds=report.seconds,
    )


def reason_of(
    query: QueryMemory, mode: Mode, settings: ShedSettings, report: BatchReport, accuracy: AccuracyPart | None
) -> str:
    """Why the batches to come keep what they keep; of a job that drops nothing, how far behind it is."""
    found = _keep_reason(query.decided, mode, settings) if query.behind is None else query.behind.words
    found += would_words(report.would_drop)
    if report.first:
        found = f"{found}; {report.first:,} tuples of the last batch are the first of their keys and stay"
    return found if accuracy is None else f"{found}; {accuracy.words}"


def _keep_reason(decided: KeepDecision | None, mode: Mode, settings: ShedSettings) -> str:
    if settings.lossless:
        return "nothing is dropped"
    if decided is None:
        return NO_MEASUREMENT
    if decided.held_seconds is not None and mode != "off":
        return held_reason(decided.held_seconds, settings.shed_after_seconds)
    control = decided.control
    return keep_reason(
        control.admit,
        control.admit / max(decided.keep, 1.0 / PPM),
        mode=mode,
        batch_seconds=decided.batch_seconds,
        target_seconds=settings.target_seconds,
        floor_seconds=control.floor_seconds if control.unreachable else None,
    )


def shed_part(report: BatchReport, controller: Mapping[str, Any], seen_us: int | None, late_writes: int) -> ShedPart:
    """What a shed needs to resume after a batch, and what only a shed has."""
    return ShedPart(
        query=report.query,
        batch=report.batch,
        batch_seconds=report.seconds,
        controller=dict(controller),
        seen_us=seen_us,
        late_writes=late_writes,
        stale=report.stale,
        over=report.over,
        first=report.first,
        behind=report.behind,
    )
