"""Latencies of a job's results as its batches tell them (`batches.jsonl`): a histogram, and the mean over time."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from pathlib import Path

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


class LatencyTail:
    """Follows a `batches.jsonl`: `advance` feeds what was appended since to `latencies`."""

    def __init__(self, path: Path, latencies: Latencies) -> None:
        self._path = path
        self._latencies = latencies
        self._read = 0

    def advance(self) -> None:
        """Read on from where the last call ended; a torn line is passed over."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                raw = file.read()
        except OSError:
            return
        whole = raw.rfind(b"\n") + 1
        self._read += whole
        for line in raw[:whole].splitlines():
            try:
                body = json.loads(line)
                pairs = [(int(milliseconds), int(count)) for milliseconds, count in body["latencies"]]
                ended = float(body["ended_seconds"])
            except (ValueError, TypeError, KeyError):
                continue
            self._latencies.add(ended, pairs)
