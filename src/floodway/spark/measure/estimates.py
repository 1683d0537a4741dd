"""Count, sum and average of what was offered, from weighted survivors, with 95% bounds.

Drops by hash are Poisson sampling: every tuple is kept on its own with a known probability p = 1/weight. With weights
w over the survivors (Horvitz-Thompson; all are unbiased, the average nearly so):

    count  N^ = Σ w                 var = Σ w (w - 1)
    sum    X^ = Σ w x               var = Σ w (w - 1) x²
    avg    R^ = X^ / N^             var = Σ w (w - 1) (x - R^)² / N^²     (linearised ratio)

bounds = value ± t · sqrt(var). Where this fails, and what is done:

- Few survivors: a normal interval is too narrow. t is Student's quantile for the survivors that were sampled
  at all (w > 1) less one, and a count's bounds are at least the Poisson-type (√(n + 1) ± 1)² · w̄. An
  average of one survivor has no bounds (infinite). A group without survivors does not appear in a grouped
  result.
- Skewed values: where the estimate is low, so is its variance. The bound on the skewed side is moved out by
  Hall's term, Σ w (w - 1)² x³ · (1 + 2 z²) / (6 var), at most doubling that side. Measured over 2000 trials:
  exponential values hold at 93% and more from about 15 survivors, at 84% to 91% with 10. Heavy tails (Pareto,
  α = 1.5) hold at 94% with 400 survivors, 88% with 100: a value that is not in the sample widens nothing.
  Keep such tuples by `utility=` instead.
- Tuples dropped together (`key=`, or the Floodway source's range drops) are not independent: the bounds are
  then too narrow; for keys, group by key and use one row a key. By `utility=` only what is above the
  threshold can be estimated, and it is exact (w = 1).
- A count is never below the survivors seen, so `low` is at least their number.

Särndal, Swensson, Wretman: Model Assisted Survey Sampling, 3.5 (Poisson sampling) and 5.6 (ratios).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyspark.sql import Column
from pyspark.sql import functions as fn

from floodway.planning.estimates.accuracy import SKEW, Z95, student95
from floodway.spark.query.drops import WEIGHT, column


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95% bounds."""

    value: float
    low: float
    high: float

    def holds(self, truth: float) -> bool:
        """Whether the bounds contain this value, a rounding error allowed."""
        slack = 1e-9 * max(1.0, abs(truth))
        return self.low - slack <= truth <= self.high + slack


def count_estimate(weights: ArrayLike) -> Estimate:
    """How many tuples were offered.

    >>> count_estimate([1.0, 1.0, 1.0])
    Estimate(value=3.0, low=3.0, high=3.0)
    """
    w = np.asarray(weights, dtype=float)
    total, variance = float(w.sum()), float((w * (w - 1.0)).sum())
    sampled = w[w > 1.0]
    low, high = count_bounds(
        total, variance, float(len(w)), float(len(sampled)), float(sampled.sum()), float((w <= 1.0).sum())
    )
    return Estimate(total, low, high)


def sum_estimate(values: ArrayLike, weights: ArrayLike) -> Estimate:
    """The sum over all tuples offered."""
    x, w = np.asarray(values, dtype=float), np.asarray(weights, dtype=float)
    total, squares, cubes = _moments(x, w)
    low, high = _student_bounds(float((w > 1.0).sum()), squares, cubes, 1.0)
    return Estimate(total, total + low, total + high)


def avg_estimate(values: ArrayLike, weights: ArrayLike) -> Estimate | None:
    """The average over all tuples offered; None without survivors."""
    x, w = np.asarray(values, dtype=float), np.asarray(weights, dtype=float)
    if len(w) == 0:
        return None
    count = float(w.sum())
    mean = float((w * x).sum()) / count
    _, squares, cubes = _moments(x - mean, w)
    sampled = float((w > 1.0).sum())
    if sampled == 1.0 and len(w) == 1:
        return Estimate(mean, -math.inf, math.inf)
    # The mean was fitted to the same tuples, which costs one of them.
    fitted = len(w) / (len(w) - 1.0) if sampled else 1.0
    low, high = _student_bounds(sampled, squares * fitted, cubes * fitted, count)
    return Estimate(mean, mean + low, mean + high)


def _moments(x: NDArray[np.float64], w: NDArray[np.float64]) -> tuple[float, float, float]:
    """The Horvitz-Thompson total, its variance, and the covariance of the two."""
    return (
        float((w * x).sum()),
        float((w * (w - 1.0) * x**2).sum()),
        float((w * (w - 1.0) ** 2 * x**3).sum()),
    )


def _student_bounds(sampled: float, squares: float, cubes: float, scale: float) -> tuple[float, float]:
    """Distances of the lower and the upper bound from the estimate, in units of 1 / `scale`."""
    half = float(student95(np.array(sampled - 1.0))) * math.sqrt(squares)
    shift = SKEW * cubes / squares if squares > 0.0 else 0.0
    return (-half - min(max(-shift, 0.0), half)) / scale, (half + min(max(shift, 0.0), half)) / scale


def count_bounds(
    total: float, variance: float, survivors: float, sampled: float, sampled_weight: float, whole: float
) -> tuple[float, float]:
    """Normal bounds, widened to the Poisson-type ones of the `sampled` survivors of weight above 1."""
    half = Z95 * math.sqrt(variance)
    if sampled == 0:
        return total, total
    mean_weight = sampled_weight / sampled
    # 1 - 1/w̄ is the share of a Poisson variance that is left when tuples are drawn without replacement.
    spread = math.sqrt(1.0 - 1.0 / mean_weight)
    root = math.sqrt(sampled + 1.0)
    low = whole + mean_weight * max(0.0, root - spread) ** 2
    high = whole + mean_weight * (root + spread) ** 2
    return max(survivors, min(total - half, low)), max(total + half, high)


def estimate_count(weight: str = WEIGHT) -> Column:
    """An aggregate: struct(value, low, high) of the tuples offered. For `groupBy(...).agg(...)`, streams too."""
    w = column(weight).cast("double")
    total, variance = _sum(w), _sum(w * (w - 1.0))
    sampled, sampled_weight = _sum((w > 1.0).cast("double")), _sum(fn.when(w > 1.0, w).otherwise(0.0))
    survivors = fn.count(w).cast("double")
    mean_weight = sampled_weight / fn.greatest(sampled, fn.lit(1.0))
    spread = fn.sqrt(1.0 - 1.0 / fn.greatest(mean_weight, fn.lit(1.0)))
    root, whole = fn.sqrt(sampled + 1.0), survivors - sampled
    half = Z95 * fn.sqrt(fn.greatest(variance, fn.lit(0.0)))
    low = whole + mean_weight * fn.pow(fn.greatest(root - spread, fn.lit(0.0)), fn.lit(2.0))
    high = whole + mean_weight * fn.pow(root + spread, fn.lit(2.0))
    drawn = sampled > 0
    return _struct(
        total,
        fn.when(drawn, fn.greatest(survivors, fn.least(total - half, low))).otherwise(total),
        fn.when(drawn, fn.greatest(total + half, high)).otherwise(total),
    )


def estimate_sum(value: str | Column, weight: str = WEIGHT) -> Column:
    """An aggregate: struct(value, low, high) of the sum over the tuples offered; nulls count as nothing."""
    x, w = _pair(value, weight)
    total, squares = _sum(w * x), _sum(w * (w - 1.0) * x * x)
    low, high = _bounds(_sampled(x, w), squares, _sum(w * (w - 1.0) * (w - 1.0) * x * x * x))
    return _struct(total, total + low, total + high)


def estimate_avg(value: str | Column, weight: str = WEIGHT) -> Column:
    """An aggregate: struct(value, low, high) of the average over the tuples offered; null without survivors.

    One pass, so powers of (x - mean) are opened up: with values far from 0 against their spread (a thousand times and
    more) subtract a constant first.
    """
    x, w = _pair(value, weight)
    known = fn.when(x.isNotNull(), w)
    count = fn.nullif(_sum(known), fn.lit(0.0))
    mean = _sum(w * x) / count
    two, three = known * (known - 1.0), known * (known - 1.0) * (known - 1.0)
    squares = _sum(two * x * x) - 2.0 * mean * _sum(two * x) + mean * mean * _sum(two)
    cubes = (
        _sum(three * x * x * x)
        - 3.0 * mean * _sum(three * x * x)
        + 3.0 * mean * mean * _sum(three * x)
        - mean * mean * mean * _sum(three)
    )
    survivors = fn.count(known).cast("double")
    fitted = survivors / fn.greatest(survivors - 1.0, fn.lit(1.0))
    sampled = _sampled(x, w)
    low, high = _bounds(sampled, squares * fitted, cubes * fitted)
    alone = (survivors == 1) & (sampled == 1)
    return _struct(
        mean,
        fn.when(alone, float("-inf")).otherwise(mean + low / count),
        fn.when(alone, float("inf")).otherwise(mean + high / count),
    )


def _pair(value: str | Column, weight: str) -> tuple[Column, Column]:
    x = column(value) if isinstance(value, str) else value
    return x.cast("double"), column(weight).cast("double")


def _sum(term: Column) -> Column:
    return fn.coalesce(fn.sum(term), fn.lit(0.0))


def _sampled(x: Column, w: Column) -> Column:
    return _sum(((w > 1.0) & x.isNotNull()).cast("double"))


def _bounds(sampled: Column, squares: Column, cubes: Column) -> tuple[Column, Column]:
    """`_student_bounds` as columns; rounding may leave a sum of squares below 0."""
    variance = fn.greatest(squares, fn.lit(0.0))
    half = _student(sampled - 1.0) * fn.sqrt(variance)
    shift = fn.when(variance > 0, SKEW * cubes / fn.nullif(variance, fn.lit(0.0))).otherwise(0.0)
    down = fn.least(fn.greatest(-shift, fn.lit(0.0)), half)
    up = fn.least(fn.greatest(shift, fn.lit(0.0)), half)
    return -half - down, half + up


def _student(v: Column) -> Column:
    """`student95` as a column."""
    z, safe = Z95, fn.greatest(v, fn.lit(2.5))
    series = (
        fn.lit(z)
        + (z**3 + z) / 4.0 / safe
        + (5 * z**5 + 16 * z**3 + 3 * z) / 96.0 / (safe * safe)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384.0 / (safe * safe * safe)
    )
    return fn.when(v < 1.5, 12.706).when(v < 2.5, 4.303).otherwise(series)


def _struct(value: Column, low: Column, high: Column) -> Column:
    return fn.struct(value.alias("value"), low.alias("low"), high.alias("high"))
