"""The queues of a running fragment as the agent sees them: one for each partition of each stream that it reads.

What waits in a queue is known from three places: the cursor that the last batch journaled, the end of the log, and
marks that tell when tuples came. Nothing else is remembered, so a restart that reads the journal knows all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from floodway.buffering.cursors import QueueView
from floodway.buffering.marks import ArrivalMarks
from floodway.buffering.queues import QueueClass
from floodway.buffering.ranges import Cursor
from floodway.spark.query.buffer_logs import QueueLog
from floodway.spark.source.offsets import BatchOffset

SAMPLES = 17
"""Arrival times looked up in a queue for one decision, among the waiting and among the new tuples each."""
RATE_SECONDS = 10.0


@dataclass
class Queue:
    """One partition of a stream: its class, nominal CPU-seconds a tuple, and what the last batch left.

    `location` is the name that the stream's source has in decisions and offsets.
    """

    location: str
    partition: int
    kind: QueueClass
    work_seconds: float
    log: QueueLog
    cursor: Cursor
    end: int = 0
    served: int = 0
    adaptor_state: Any = None
    marks: ArrivalMarks = field(default_factory=ArrivalMarks)

    @property
    def name(self) -> str:
        """`location/partition`, as in the sinks' counts."""
        return f"{self.location}/{self.partition}"

    @property
    def waiting(self) -> int:
        """Tuples that wait, judged or new, dropped ones not counted."""
        return self.cursor.waiting + max(0, self.end - self.cursor.tail)

    def look(self, now: float, end: int) -> None:
        """Note how far the log reaches, and when its newest tuple came."""
        self.end = end
        if end <= self.cursor.head:
            return
        if self.marks.newest is None:
            for position in _spread(self.cursor.head, end):
                self._mark(position, now)
        self._mark(end - 1, now)

    def _mark(self, position: int, now: float) -> None:
        if self.marks.newest is not None and position <= self.marks.newest:
            return
        arrived = self.log.arrival_seconds(self.partition, position)
        self.marks.note(position, now if arrived is None else arrived)

    def settled(self, offset: BatchOffset, adaptor_state: Any) -> None:
        """A batch was cut and journaled: the queue is what its offset says, the adaptor's state what it was then."""
        self.cursor = offset.cursor(self.partition)
        self.served = offset.account(self.partition).kept
        self.marks.forget_before(self.cursor.head)
        if adaptor_state is not None:
            self.adaptor_state = adaptor_state

    def view(self, now: float) -> QueueView:
        """The queue for its manager, at the nominal cost of a tuple."""
        waiting, arrived = self.cursor.waiting, max(0, self.end - self.cursor.tail)
        places = [self.cursor.position(place) for place in _spread(0, waiting)]
        return QueueView(
            name=self.name,
            queue=self.kind,
            waiting=waiting,
            arrived=arrived,
            served=self.served,
            cost_seconds=self.work_seconds,
            rate=self.marks.rate(now, window_seconds=RATE_SECONDS),
            waiting_times=self._times(places, now),
            arrived_times=self._times(_spread(self.cursor.tail, self.end), now),
            adaptor_state=self.adaptor_state,
        )

    def _times(self, positions: Sequence[int], now: float) -> tuple[float, ...]:
        # A tuple from the future came now: a clock that was set back must neither age nor starve it.
        return tuple(min(seconds, now) for seconds in self.marks.times(positions)) if positions else ()


def _spread(start: int, end: int) -> list[int]:
    """At most SAMPLES numbers evenly spread over [start, end), the first and the last included."""
    if end <= start:
        return []
    return sorted({int(at) for at in np.linspace(start, end - 1, min(SAMPLES, end - start))})
