"""What a run remembers for its report: batches, latencies, and how much had arrived when.

Batches are added up as they end: after a month a run holds what it held after an hour. Of single batches the latest
`MOST_POINTS` stay, for plots; all of them are in the run's `batches/`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from floodway.agent.loop.report import Point
from floodway.job.ledger.fold import Counts
from floodway.job.status.batches import Batch
from floodway.job.status.latencies import Sketch
from floodway.network.model import Network

MOST_POINTS = 20_000


@dataclass
class _Sums:
    """Batches that ended in the measured part, added up: tuples at places and outputs, and the latencies of results."""

    ended_seconds: float | None = None
    counts: Counts = field(default_factory=Counts)
    delivered: Counter[str] = field(default_factory=Counter)
    latencies: Sketch = field(default_factory=Sketch)

    def add(self, batch: Batch, counts: Counts) -> None:
        self.ended_seconds = batch.ended_seconds
        self.counts.merge(counts)
        self.delivered.update(batch.delivered)


class Record:
    """Collects while a run goes on. Figures "after settling" begin at `settle`.

    The measured part reaches from the end of one batch to the end of another: cut anywhere else, it would hold a part
    of a batch at either end, whose results all come at once. With a single batch it reaches back to the settling.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self.points: deque[Point] = deque(maxlen=MOST_POINTS)
        self.started = 0.0
        self._settled_at: float | None = None
        self._ended_at = 0.0
        self._over = False
        self._arrived: dict[str, Mapping[str, int]] = {}
        self._first = _Sums()
        self._later = _Sums()

    def begin(self, now: float, arrived: Mapping[str, int]) -> None:
        """The queries run and the load has started."""
        self.started = self._ended_at = now
        self._arrived["begin"] = self._arrived["end"] = arrived

    def settle(self, now: float, arrived: Mapping[str, int]) -> None:
        """From here on latency, score and rates count."""
        self._settled_at = now
        self._arrived["begin"] = arrived

    def end(self, now: float, arrived: Mapping[str, int]) -> None:
        """The measured part is over."""
        self._ended_at = now
        self._arrived["end"] = arrived
        self._over = True

    def batch(self, fragment: str, batch: Batch, counts: Counts) -> None:
        """Note a finished batch of a fragment."""
        since, length = batch.ended_seconds - self.started, batch.ended_seconds - batch.cut_seconds
        late = batch.latencies.mean
        self.points.append(Point(fragment, since, length, late, batch.offered, batch.kept, batch.scale))
        if self._settled_at is not None and not self._over and batch.ended_seconds >= self._settled_at:
            sums = self._first if self._first.ended_seconds is None else self._later
            sums.add(batch, counts)
            # Latencies count for batches cut after settling: those owe nothing to the start.
            if batch.cut_seconds >= self._settled_at:
                sums.latencies.merge(batch.latencies)

    def _measured(self) -> _Sums:
        """The batches that count: all but the first, whose end only begins the measured part; or the only one."""
        return self._first if self._later.ended_seconds is None else self._later

    def kept_shares(self) -> dict[str, float]:
        """Share kept at each place over the measured part."""
        counts = self._measured().counts
        return {at: counts.kept[at] / offered for at, offered in counts.offered.items() if offered}

    @property
    def measured_seconds(self) -> float:
        """Length of the measured part."""
        if self._first.ended_seconds is None:
            return 0.0
        if self._later.ended_seconds is None:
            return self._first.ended_seconds - (self._settled_at or self.started)
        return self._later.ended_seconds - self._first.ended_seconds

    def latencies(self) -> Sketch:
        """Latencies of results after settling."""
        return self._measured().latencies

    def rates(self) -> dict[str, float]:
        """Mean arrival rates between settling and end, tuples/s."""
        before, after = self._arrived["begin"], self._arrived["end"]
        length = max(self._ended_at - (self._settled_at or self.started), 1e-9)
        return {name: (after[name] - before[name]) / length for name in after}

    def offered_rates(self) -> dict[str, float]:
        """Tuples/s that the measured batches were offered at each stream, over their own seconds."""
        length = self.measured_seconds
        if length == 0.0:
            return self.rates()
        offered = self._measured().counts.offered
        return {name: offered[name] / length for name in self._network.streams}

    def throughput(self) -> dict[str, float]:
        """Tuples/s delivered to each output over the measured part."""
        length = self.measured_seconds or 1.0
        delivered = self._measured().delivered
        return {name: delivered[name] / length for name in self._network.outputs}
