"""Latencies of a job's results as its batches tell them (`batches.jsonl`): a histogram, and means over time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from floodway.job.downsample import Downsampled

BUCKETS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0)
"""Upper bounds in seconds: a micro-batch engine's targets lie between half a second and some ten seconds."""


@dataclass(slots=True)
class Mean:
    """A mean that others can be merged into."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float, weight: float = 1.0) -> None:
        """Take in a value."""
        self.total += value * weight
        self.weight += weight

    def merge(self, other: Mean) -> None:
        """Take in all that another has."""
        self.total += other.total
        self.weight += other.weight

    @property
    def value(self) -> float | None:
        """None before the first."""
        return self.total / self.weight if self.weight else None


def mean_of(cells: Iterable[Mean]) -> float | None:
    """The mean over several stretches of time; None where nothing was measured."""
    found = Mean()
    for cell in cells:
        found.merge(cell)
    return found.value


class Latencies:
    """What was measured: tuples in each bucket (the last one open), their sum, and means by when batches ended.

    >>> latencies = Latencies()
    >>> latencies.add(10.0, [(400, 3), (2500, 1)])
    >>> latencies.count, latencies.total_seconds, latencies.means.at(10).value
    (4, 3.7, 0.925)
    >>> latencies.cumulative()[1], latencies.cumulative()[-1]
    (3, 4)
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total_seconds = 0.0
        self.means = Downsampled(Mean)

    def add(self, ended_seconds: float, latencies: list[tuple[int, int]]) -> None:
        """Take in one batch: [milliseconds, tuples] of its results."""
        tuples = sum(count for _, count in latencies)
        if tuples == 0:
            return
        total = 0.0
        for milliseconds, count in latencies:
            self.counts[bisect_left(BUCKETS, milliseconds / 1e3)] += count
            total += milliseconds / 1e3 * count
        self.total_seconds += total
        self.means.at(int(ended_seconds)).merge(Mean(total, tuples))

    def copy(self) -> Latencies:
        """The histogram as it is now, without the means."""
        found = Latencies()
        found.counts, found.total_seconds = self.counts.copy(), self.total_seconds
        return found

    @property
    def count(self) -> int:
        """Results measured."""
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Results at or below each bound of `BUCKETS`, and all of them."""
        found, running = [], 0
        for count in self.counts:
            running += count
            found.append(running)
        return found
