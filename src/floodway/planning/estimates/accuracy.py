"""How wide the 95% bounds of an estimate are at a keep, and which keep a given width needs.

Tuples are kept on their own with probability p. The Horvitz-Thompson estimate of a group's sum X = Σ x then has the
variance r Q with r = (1 - p) / p and Q = Σ x². Its bounds (`spark/measure/estimates.py`) are Student's, moved out on
the skewed side by Hall's term, at most as far again:

    width = (t √(r Q) + min(t √(r Q), h r |C| / Q)) / |X|,   C = Σ x³,   h = (1 + 2 z²) / 6

with Student's t for the p n tuples that are expected to be kept. A count is the sum of x = 1. An average R = X / n has
the bounds of Σ (x - R), relative to the same X. The width falls as p grows, so the keep needed is found by halving.

Särndal, Swensson, Wretman: Model Assisted Survey Sampling, 3.5. Hall: On the removal of skewness by transformation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Function = Literal["count", "sum", "avg"]

Z95 = 1.959963984540054
SKEW = (1.0 + 2.0 * Z95**2) / 6.0
"""Hall's factor: how far skewness moves the bounds of a studentised mean."""

LEAST_KEEP = 1e-6
HALVINGS = 18


@dataclass(frozen=True, slots=True)
class Moments:
    """n, Σ x, Σ x² and Σ x³ of what is offered, one number per group."""

    tuples: Numbers
    total: Numbers
    squares: Numbers
    cubes: Numbers

    def scaled(self, factor: Numbers | float) -> Moments:
        """Of groups that are so many times as large."""
        return Moments(self.tuples * factor, self.total * factor, self.squares * factor, self.cubes * factor)

    def where(self, chosen: NDArray[np.bool_]) -> Moments:
        """Those of some groups."""
        return Moments(self.tuples[chosen], self.total[chosen], self.squares[chosen], self.cubes[chosen])

    def of(self, function: Function) -> Moments:
        """Those whose width is the width of this aggregate: of (x - R) for an average R, but for the total."""
        if function != "avg":
            return self
        mean = self.total / np.maximum(self.tuples, 1e-300)
        squares = self.squares - mean * self.total
        cubes = self.cubes - 3.0 * mean * self.squares + 2.0 * mean**2 * self.total
        return Moments(self.tuples, self.total, np.maximum(squares, 0.0), cubes)

    def weight(self, function: Function) -> Numbers:
        """What a group carries of the total: of a sum its size, else its tuples."""
        return np.abs(self.total) if function == "sum" else self.tuples


def student95(degrees: Numbers) -> Numbers:
    """The two-sided 95% quantile of Student's t, by its series in 1/degrees (within 0.5% from 3 degrees up).

    >>> student95(np.array([1.0, 10.0, 1e9])).round(2)
    array([12.71,  2.23,  1.96])
    """
    z, v = Z95, np.maximum(degrees, 2.5)
    first = (z**3 + z) / 4.0
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96.0
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384.0
    series = z + first / v + second / v**2 + third / v**3
    return np.where(degrees < 1.5, 12.706, np.where(degrees < 2.5, 4.303, series))


def widths(moments: Moments, keep: Numbers) -> Numbers:
    """The width of each group's bounds at its keep, relative to the group's total; 0 where all is kept.

    >>> one = Moments(*(np.array([10_000.0]) for _ in range(4)))
    >>> widths(one, np.array([0.5])).round(4)
    array([0.0197])
    """
    kept = np.clip(keep, LEAST_KEEP, 1.0)
    rest = (1.0 - kept) / kept
    half = student95(kept * moments.tuples - 1.0) * np.sqrt(rest * moments.squares)
    shift = SKEW * rest * np.abs(moments.cubes) / np.maximum(moments.squares, 1e-300)
    total = np.abs(moments.total)
    found = np.where(total > 0.0, (half + np.minimum(half, shift)) / np.maximum(total, 1e-300), np.inf)
    return np.where(rest > 0.0, found, 0.0)


def needed_keeps(moments: Moments, within: float) -> Numbers:
    """The least keep of each group at which its bounds are no wider than this.

    >>> one = Moments(*(np.array([10_000.0]) for _ in range(4)))
    >>> needed_keeps(one, 0.02).round(2), needed_keeps(one.scaled(0.01), 0.02).round(2)
    (array([0.49]), array([0.99]))
    """
    low, high = np.full_like(moments.tuples, LEAST_KEEP), np.ones_like(moments.tuples)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        held = widths(moments, middle) <= within
        low, high = np.where(held, low, middle), np.where(held, middle, high)
    return high
