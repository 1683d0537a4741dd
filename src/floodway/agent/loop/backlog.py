"""What the next micro-batch will find waiting: what has arrived and was not taken, and what comes until it is cut.

The plan is made for *demand*, the tuples that will wait at the next cut over the batch period P*, and not for the
arrival rate alone: a backlog counts, so that it is shed or absorbed as a whole, and a burst that fits into one batch
costs nothing.

What another node writes comes in deliveries, one for each of its batches. A delivery that has just come is no backlog:
such an input counts at its rate, and beyond that with what waits above one delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from types import MappingProxyType

from floodway.network.model import Network
from floodway.spark.query.fragments import Fragment
from floodway.spark.query.journal import JournaledBatch


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
        self._length: dict[str, float] = {}
        self._lock = Lock()

    def cut(self, query: str, journal: JournaledBatch, now: float) -> None:
        """A batch was cut just now: its tuples wait no longer. Called from the query's thread."""
        with self._lock:
            self._cut_at[query] = now
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
