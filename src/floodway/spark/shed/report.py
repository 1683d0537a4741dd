"""What Spark reports of one micro-batch of a query that a shed is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from floodway.control.keep_loop import FinishedBatch
from floodway.job.ledger.facts import OffsetRange
from floodway.planning.lag import Waiting
from floodway.spark.shed.positions import NOT_RUN

MOST_ACTIONS = 10
"""Times that a sink may read a whole batch."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What Spark counted in one micro-batch. Times in microseconds of the epoch, `seconds` its duration.

    `batch_time_us` is the journaled timestamp that chose the entry `seq`; both are None without tuples. `arrival_us`
    is the mean arrival of the kept tuples, `event_us` the latest event time offered.
    """

    query: str
    run: str
    batch: int
    started_us: int
    seconds: float
    offered: int
    kept: int
    would_keep: int
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
    """Points of the sample of an accuracy (`keys/group_columns.py`), drawn from `sampled` tuples."""
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
    def ended_us(self) -> int:
        """When the batch ended, in microseconds of the epoch."""
        return self.started_us + round(self.seconds * 1e6)

    def finished(self) -> FinishedBatch:
        """The part that a decision is made from."""
        arrival = None if self.arrival_us is None else self.arrival_us / 1e6
        offered, kept = self.offered, self.kept
        if self.uncertain and self.read is not None and offered:
            # The actions before the last one read the rest: all of the batch, if it was one action.
            offered, kept = self.read - offered, kept * (self.read - offered) // offered
        # What is skipped asks for no share of the capacity.
        offered = max(kept, offered - self.skipped - self.passed_over)
        return FinishedBatch(self.started_us / 1e6, self.seconds, offered, kept, arrival, self.backlog)
