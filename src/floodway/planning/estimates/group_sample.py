"""What the groups of a stream hold, from a small sample that every batch delivers.

A tuple x is sampled with probability π = min(1, (|x| + base) / unit), so large values are in it nearly all, and small
ones still stand for their number. `base` is the mean |x|, and `unit` makes the sample as large as it is to be. Of the
sampled tuples a batch delivers at most so many *points*, evenly spaced in the order of their groups; a point stands for
sampled / points tuples of the sample, and for 1 / π as many of the stream.

The sums of a group with m points are known to about 1 / √m. Who must be sure takes the group to be smaller by some
standard errors: with one point nothing is known of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.planning.estimates.accuracy import Moments, Numbers

REMEMBERED_BATCHES = 10
WANTED = 4000
"""Tuples in the sample of a batch, about."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How the tuples of a batch were sampled."""

    base: float
    unit: float

    def chance(self, values: Numbers) -> Numbers:
        """π for each value."""
        return np.minimum(1.0, (np.abs(values) + self.base) / self.unit)


@dataclass(frozen=True, slots=True)
class Points:
    """The points of one batch: the group and the value of each, and of how many sampled tuples they are."""

    groups: NDArray[np.int64]
    values: Numbers
    sampled: int
    sizes: Sizes | None = None
    """None: every tuple was in the sample."""

    @property
    def weights(self) -> Numbers:
        """How many tuples of the stream each point stands for."""
        chance = np.ones_like(self.values) if self.sizes is None else self.sizes.chance(self.values)
        return self.sampled / len(self.values) / chance


@dataclass(frozen=True, slots=True)
class Groups:
    """What is known of every group; `points` says how well."""

    names: NDArray[np.int64]
    moments: Moments
    points: Numbers

    def smaller(self, errors: float) -> Moments:
        """The moments if each group is smaller by so many standard errors.

        >>> one = np.array([100.0])
        >>> Groups(np.array([7]), Moments(one, one, one, one), np.array([16.0])).smaller(2.0).tuples
        array([50.])
        """
        return self.moments.scaled(np.maximum(0.0, 1.0 - errors / np.sqrt(np.maximum(self.points, 1e-9))))


class GroupSample:
    """The points of the last batches.

    >>> sample = GroupSample()
    >>> sample.add(Points(np.array([7, 7, 8]), np.array([1.0, 3.0, 5.0]), sampled=30), seconds=2.0)
    >>> found = sample.groups(over_seconds=4.0)
    >>> found.names, found.moments.tuples, found.moments.total
    (array([7, 8]), array([40., 20.]), array([ 80., 100.]))
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[Points, float]] = deque(maxlen=REMEMBERED_BATCHES)

    def add(self, points: Points, seconds: float) -> None:
        """Take in a batch whose tuples came in so many seconds; one without tuples says nothing."""
        if len(points.values):
            self._batches.append((points, seconds))

    def groups(self, over_seconds: float | None = None) -> Groups | None:
        """What the groups hold in so many seconds, or in a batch; None before any tuple was seen."""
        if not self._batches:
            return None
        seconds = sum(seconds for _, seconds in self._batches)
        share = 1.0 / len(self._batches)
        if over_seconds is not None and seconds > 0.0:
            share = over_seconds / seconds
        names, at = np.unique(np.concatenate([points.groups for points, _ in self._batches]), return_inverse=True)
        x = np.concatenate([points.values for points, _ in self._batches])
        w = share * np.concatenate([points.weights for points, _ in self._batches])
        # Of fewer tuples than points some are points several times.
        once = [np.full(len(p.values), min(1.0, p.sampled / len(p.values))) for p, _ in self._batches]
        moments = Moments(*(_sums(at, w * x**power) for power in range(4)))
        return Groups(names, moments, _sums(at, np.concatenate(once)))

    def sizes(self) -> Sizes | None:
        """How the next batch is to be sampled; None: as a whole."""
        if not self._batches:
            return None
        points, _ = self._batches[-1]
        tuples, total = float(points.weights.sum()), float((points.weights * np.abs(points.values)).sum())
        base = total / tuples or 1.0
        return Sizes(base, (total + base * tuples) / WANTED)


def _sums(at: NDArray[np.intp], terms: Numbers) -> Numbers:
    """The sum of the terms at each place."""
    return np.asarray(np.bincount(at, weights=terms), dtype=np.float64)
