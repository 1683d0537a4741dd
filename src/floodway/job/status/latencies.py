"""Latencies of a job's results as a sketch: exact mean, quantiles within 1%, small enough to write with every batch.

    bucket i holds latencies in (g^(i-1), g^i] milliseconds, g = 1.02        its value: 2 g^i / (1 + g) milliseconds

Sketches are merged by adding their counts, so a minute, a day or several nodes have quantiles as exact as one batch's
(Masson et al., DDSketch, VLDB 2019).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Annotated

from pydantic import Field

GROWTH = 1.02
MOST_BUCKET = 3000
"""Of a latency longer than the universe is old."""
BUCKETS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0)
"""Bounds of the exported histogram in seconds: targets of micro-batch engines lie between half a second and ten."""

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
"""What a file may hold: no NaN, and no number whose sums or powers are none."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from a tuple's arrival to its result being visible; None where nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    target: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """As in the `--json` output."""
        return asdict(self)


@dataclass(slots=True)
class Sketch:
    """Counts of tuples by the bucket of their latency, and the sum of the latencies in seconds.

    >>> sketch = Sketch()
    >>> sketch.add(0.4, 3)
    >>> sketch.add(2.5, 1)
    >>> sketch.count, sketch.mean, round(sketch.quantile(0.5), 2), round(sketch.quantile(0.95), 2)
    (4, 0.925, 0.4, 2.52)
    >>> sketch.cumulative()[1], sketch.cumulative()[-1]
    (3, 4)
    """

    counts: Counter[Annotated[int, Field(ge=0, le=MOST_BUCKET)]] = field(default_factory=Counter)
    total_seconds: Number = 0.0

    @classmethod
    def of(cls, latencies: Iterable[tuple[float, int]]) -> Sketch:
        """From pairs of seconds and tuples."""
        found = cls()
        for seconds, tuples in latencies:
            found.add(seconds, tuples)
        return found

    def add(self, seconds: float, tuples: int = 1) -> None:
        """Count tuples of one latency; what a clock that was set back makes negative counts as 0."""
        if tuples > 0:
            late = max(0.0, seconds)
            self.counts[max(0, math.ceil(math.log(late * 1e3, GROWTH) - 1e-9)) if late > 1e-3 else 0] += tuples
            self.total_seconds += late * tuples

    def merge(self, other: Sketch) -> None:
        """Add another's."""
        self.counts.update(other.counts)
        self.total_seconds += other.total_seconds

    def copy(self) -> Sketch:
        """As it is now."""
        return Sketch(self.counts.copy(), self.total_seconds)

    @property
    def count(self) -> int:
        """Tuples measured."""
        return self.counts.total()

    @property
    def mean(self) -> float | None:
        """None before the first."""
        return self.total_seconds / self.count if self.count else None

    @property
    def width(self) -> float | None:
        """Over how many seconds the latencies are spread: if evenly over W, they deviate by W / √12 from their mean."""
        mean, count = self.mean, self.count
        if mean is None:
            return None
        squares = sum(tuples * (_seconds(bucket) - mean) ** 2 for bucket, tuples in self.counts.items())
        return math.sqrt(12.0 * squares / count)

    def quantile(self, share: float) -> float | None:
        """The latency in seconds that this share of the tuples does not exceed."""
        most, running = share * self.count, 0
        for bucket, tuples in sorted(self.counts.items()):
            running += tuples
            if running >= most:
                return _seconds(bucket)
        return None

    def latency(self, target: float | None) -> Latency:
        """Mean and quantiles."""
        return Latency(self.mean, self.quantile(0.5), self.quantile(0.95), self.quantile(0.99), target)

    def cumulative(self) -> list[int]:
        """Tuples at or below each bound of `BUCKETS`, and all of them."""
        found = [0] * (len(BUCKETS) + 1)
        for bucket, tuples in self.counts.items():
            found[bisect_left(BUCKETS, _seconds(bucket))] += tuples
        return [sum(found[: index + 1]) for index in range(len(found))]


def _seconds(bucket: int) -> float:
    return 2.0 * GROWTH**bucket / (1.0 + GROWTH) / 1e3
