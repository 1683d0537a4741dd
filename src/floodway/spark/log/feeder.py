"""Feeding a log or a topic at a profile's pace: every tick has a deadline on one schedule, so delays never add up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import pyarrow as pa

from floodway.spark.log.writer import LogWriter, now_micros

TICK = 0.05


class FeedTarget(Protocol):
    """Where tuples go."""

    def send(self, batch: pa.RecordBatch, partition: int) -> None:
        """Take a batch for one partition; visible to readers soon after."""


class Maker(Protocol):
    """What makes the tuples."""

    def make(self, count: int, *, start_us: int, end_us: int) -> pa.RecordBatch:
        """`count` tuples of the time from `start_us` to `end_us`, microseconds UTC."""


class LogTarget:
    """Appends to an embedded log."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    def send(self, batch: pa.RecordBatch, partition: int) -> None:
        """One segment."""
        self._writer.append(batch, partition)


@dataclass(frozen=True, slots=True)
class Fed:
    """What was offered: tuples, seconds from the start to the end of the last tick, and how late the worst tick was."""

    offered: int
    seconds: float
    per_partition: tuple[int, ...]
    worst_lag_seconds: float

    @property
    def rate(self) -> float:
        """Tuples per second."""
        return self.offered / self.seconds if self.seconds > 0 else 0.0


def feed(
    target: FeedTarget,
    maker: Maker,
    per_tick: Iterable[int],
    *,
    partitions: int,
    tick: float = TICK,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    wall_us: Callable[[], int] = now_micros,
    progress: Callable[[int, float, float], None] | None = None,
) -> Fed:
    """Send the tuples of tick i when the tick ends, at start + (i + 1)·tick; a late tick is sent at once.

    The tuples of a tick are shared evenly between the partitions; what does not divide goes round. `progress` is told
    the tuples so far, the seconds so far and the lag.
    """
    started, wall_started = clock(), wall_us()
    given = [0] * partitions
    worst = elapsed = 0.0
    for index, count in enumerate(per_tick):
        opens, closes = index * tick, (index + 1) * tick
        batch = maker.make(count, start_us=wall_started + int(opens * 1e6), end_us=wall_started + int(closes * 1e6))
        wait = started + closes - clock()
        if wait > 0:
            sleep(wait)
        for place, (first, length) in enumerate(_shares(count, partitions)):
            if length:
                partition = (place + index) % partitions
                target.send(batch.slice(first, length), partition)
                given[partition] += length
        elapsed = clock() - started
        worst = max(worst, elapsed - closes)
        if progress is not None:
            progress(sum(given), elapsed, elapsed - closes)
    return Fed(sum(given), elapsed, tuple(given), worst)


def _shares(count: int, parts: int) -> list[tuple[int, int]]:
    bounds = [count * part // parts for part in range(parts + 1)]
    return [(low, high - low) for low, high in pairwise(bounds)]
