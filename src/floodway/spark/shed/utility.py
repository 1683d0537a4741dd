"""Which utility is worth keeping: a threshold from quantiles of the utilities seen in the last micro-batches.

Each batch reports a quantile summary (Spark's `percentile_approx`, a Greenwald-Khanna sketch, as an observed metric:
no extra pass). Its values at evenly spaced levels stand for equal shares of the batch. For a keep k the threshold is
the least value v with P(u > v) <= k; tuples above it are kept, and of those that equal it

    tie = (k - P(u > v)) / P(u = v)

by hash, so that the expected keep is k also when utilities are few and repeated.

With a floor f, a share f of all tuples is kept by hash whatever its utility, and the threshold is that of the rest:

    k' = (k - f) / (1 - f),   tie = f + (1 - f) tie'
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as fn

from floodway.spark.shed.quantiles import quantiles
from floodway.units import PPM

LEVELS = tuple(i / 200 for i in range(201))
ACCURACY = 2000
REMEMBERED_BATCHES = 8
WORST = -sys.float_info.max
"""The utility of a tuple whose utility is null or not a number; finite, because it travels in JSON."""


def utility_column(utility: Column) -> Column:
    """The utility as a double without null, NaN and infinities."""
    number = utility.cast("double")
    broken = number.isNull() | fn.isnan(number)
    return fn.when(broken, fn.lit(WORST)).otherwise(fn.greatest(fn.least(number, fn.lit(-WORST)), fn.lit(WORST)))


def utility_summary(utility: Column) -> Column:
    """The observed metric: utilities at LEVELS, an array of doubles, null without tuples."""
    return quantiles(utility, LEVELS, ACCURACY)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Keep what is above `value`, and `tie_ppm` of what equals it."""

    value: float
    tie_ppm: int


@dataclass
class Utilities:
    """Summaries of the last batches, each weighted by the tuples it stands for.

    >>> seen = Utilities()
    >>> seen.add([1.0, 2.0, 2.0, 3.0], offered=400)
    >>> seen.threshold(0.5)
    Threshold(value=2.0, tie_ppm=500000)
    """

    batches: deque[tuple[Sequence[float], int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    def add(self, values: Sequence[float] | None, offered: int) -> None:
        """Remember a batch; one without tuples says nothing."""
        if values and offered > 0:
            self.batches.append((values, offered))

    def threshold(self, keep: float, floor: float = 0.0) -> Threshold | None:
        """The threshold for a keep in [0, 1]; None before any utility was seen."""
        if not self.batches:
            return None
        points = np.concatenate([np.asarray(values, dtype=float) for values, _ in self.batches])
        shares = np.concatenate([np.full(len(v), offered / len(v)) for v, offered in self.batches])
        values, positions = np.unique(points, return_inverse=True)
        mass = np.bincount(positions, weights=shares) / shares.sum()
        above = np.concatenate([np.cumsum(mass[::-1])[::-1][1:], [0.0]])
        rest = max(0.0, keep - floor) / (1.0 - floor)
        first = int(np.argmax(above <= rest + 1e-12))
        tie = floor + (1.0 - floor) * min(1.0, max(0.0, (rest - above[first]) / mass[first]))
        return Threshold(float(values[first]), round(tie * PPM))
