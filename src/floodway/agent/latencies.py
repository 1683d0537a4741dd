"""Latencies of a job's results as its batches tell them (`batches.jsonl`): a histogram, and the mean over time."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

BUCKETS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0)
"""Upper bounds in seconds: a micro-batch engine's targets lie between half a second and some ten seconds."""
MOST_BATCHES = 20_000


class Latencies:
    """What was measured: tuples in each bucket (the last one open), their sum, and each batch's end and mean.

    >>> latencies = Latencies()
    >>> latencies.add(10.0, [(400, 3), (2500, 1)])
    >>> latencies.count, latencies.total_seconds, latencies.means[-1]
    (4, 3.7, (10.0, 0.925))
    >>> latencies.cumulative()[1], latencies.cumulative()[-1]
    (3, 4)
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total_seconds = 0.0
        self.means: deque[tuple[float, float]] = deque(maxlen=MOST_BATCHES)

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
        self.means.append((ended_seconds, total / tuples))

    def copy(self) -> Latencies:
        """As they are now."""
        found = Latencies()
        found.counts, found.total_seconds, found.means = self.counts.copy(), self.total_seconds, self.means.copy()
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
