"""What the next micro-batch will find waiting: what has arrived and was not taken, and what comes until it is cut.

The plan is made for *demand*, the tuples that will wait at the next cut over the batch period P*, and not for the
arrival rate alone: a backlog counts, so that it is shed or absorbed as a whole, and a burst that fits into one batch
costs nothing.

What another node writes comes in deliveries, one for each of its batches. A delivery that has just come is no backlog:
such an input counts at its rate, and beyond that with what waits above one delivery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from threading import Lock
from types import MappingProxyType

from floodway.network.model import Network
from floodway.spark.query.fragments import Fragment
from floodway.spark.query.journal import JournaledBatch


class RateMeter:
    """Rates of several streams over a sliding window (seconds); the clock is the caller's.

    >>> meter = RateMeter(window_seconds=1.0)
    >>> for second, total in enumerate((0, 100, 300)):
    ...     meter.sample(float(second), {"s1": total})
    >>> meter.rates()
    {'s1': 200.0}
    """

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._samples: deque[tuple[float, dict[str, int]]] = deque()

    def sample(self, time_seconds: float, totals: Mapping[str, int]) -> None:
        """Note how many tuples had arrived in all; a clock that jumps back starts the window anew."""
        if self._samples and time_seconds <= self._samples[-1][0]:
            self._samples.clear()
        self._samples.append((time_seconds, dict(totals)))
        while len(self._samples) > 2 and time_seconds - self._samples[1][0] >= self._window:
            self._samples.popleft()

    def rates(self) -> dict[str, float]:
        """Tuples/s of each stream, 0 before the second sample."""
        if len(self._samples) < 2:
            return {name: 0.0 for _, totals in self._samples for name in totals}
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return {name: max(0, after[name] - before.get(name, 0)) / (end - begin) for name in after}


class Backlog:
    """Positions taken by each query, and when its batch under way is expected to end."""

    def __init__(
        self,
        network: Network,
        fragments: Mapping[str, Fragment],
        delivered_every: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._network = network
        self._delivered_every = delivered_every
        self._fragments = fragments
        self._taken: dict[str, dict[str, int]] = {name: {} for name in fragments}
        self._cut_at: dict[str, float] = {}
        self._last_cut: dict[str, float] = {}
        self._length: dict[str, float] = {}
        self._lock = Lock()

    def cut(self, query: str, journal: JournaledBatch, now: float) -> None:
        """A batch was cut just now: its tuples wait no longer. Called from the query's thread."""
        with self._lock:
            self._cut_at[query] = self._last_cut[query] = now
            for at, offset in journal.offsets.items():
                self._taken[query][at] = sum(offset.end.values())

    def ended(self, query: str, batch_seconds: float) -> None:
        """A batch ended: the next is expected to take about as long."""
        with self._lock:
            self._cut_at.pop(query, None)
            self._length[query] = batch_seconds

    def waiting(self, arrived: Mapping[str, int]) -> dict[str, int]:
        """Tuples of each stream that no batch has taken yet (the most that any of its readers sees)."""
        with self._lock:
            found = dict.fromkeys(arrived, 0)
            for query, fragment in self._fragments.items():
                for spec in fragment.sources:
                    if spec.location is not None:
                        taken = self._taken[query].get(spec.location, 0)
                        waits = max(0, arrived[spec.producer] - taken)
                        found[spec.producer] = max(found[spec.producer], waits)
            return found

    def idle(self, arrived: Mapping[str, int]) -> bool:
        """Whether nothing waits and no batch is under way."""
        return not self._cut_at and not any(self.waiting(arrived).values())

    def until_cut(self, now: float) -> float:
        """Seconds until the next batch is expected to be cut; 0 when none is under way or it is overdue."""
        with self._lock:
            ends = [at + self._length.get(query, 0.0) for query, at in self._cut_at.items()]
        return max(0.0, max(ends, default=now) - now)

    def demand(
        self,
        now: float,
        arrived: Mapping[str, int],
        rates: Mapping[str, float],
        period_seconds: float,
        batch_seconds: float | None = None,
    ) -> dict[str, float]:
        """Tuples/s of each stream that the next batches have to carry: what a batch will hold, over the period P*.

        `batch_seconds` is how long batches are expected to take, if not P*: a delivered input brings that much a batch.
        """
        until = self.until_cut(now)
        waiting = self.waiting(arrived)
        found = {name: (waiting[name] + rates[name] * until) / period_seconds for name in rates}
        length = period_seconds if batch_seconds is None else batch_seconds
        for name, every in self._delivered_every.items():
            above = waiting[name] - rates[name] * max(every, length)
            found[name] = (rates[name] * length + max(0.0, above)) / period_seconds
        return found

    def offered(
        self, now: float, arrived: Mapping[str, int], rates: Mapping[str, float], period_seconds: float
    ) -> dict[str, float]:
        """Tuples/s of each stream that links, memory and other nodes have to carry: what arrives, a backlog over P*.

        What came since the last cut is no backlog. The demand is less than that where batches are shorter than P*.
        """
        waiting = self.waiting(arrived)
        with self._lock:
            since: dict[str, float] = {}
            for query, fragment in self._fragments.items():
                ago = max(0.0, now - self._last_cut.get(query, now))
                for spec in fragment.sources:
                    since[spec.producer] = max(since.get(spec.producer, 0.0), ago)
        found = {}
        for name, rate in rates.items():
            fresh = rate * max(since.get(name, 0.0), self._delivered_every.get(name, 0.0))
            found[name] = rate + max(0.0, waiting[name] - fresh) / period_seconds
        return found
