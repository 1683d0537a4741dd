"""What the groups of a stream hold, from a small sample that every batch delivers.

A tuple x is sampled with probability π = min(1, (|x| + base) / unit), so large values are in it nearly all, and small
ones still stand for their number. `base` is the mean |x|, and `unit` makes the sample as large as it is to be. Of the
sampled tuples a batch delivers at most so many *points*, evenly spaced in the order of their groups; a point stands for
sampled / points tuples of the sample, and for 1 / π as many of the stream.

The sums of a group with m points are known to about 1 / √m. Who must be sure takes the group to be smaller by some
standard errors: with one point nothing is known of it.

Keeps by group, so that the groups that count are accurate enough and no tuple is kept in vain.

A group g with the share n_g of the tuples needs the keep p_g (`accuracy.py`). At most `most` groups have a keep of
their own; all others have one together, which is the largest that one of them needs. Which groups have their own is
chosen so that the fewest tuples are kept: the j that need most, and of the rest those that save most, for the best j.

    needed = Σ n_g p_g       what is kept when nobody has more than it needs

What the keep leaves beyond that raises all groups to one level λ: keep_g = max(p_g, λ). Where it is less, either the
groups have what they need all the same, or all have the same part of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.planning.estimates.accuracy import Moments, Numbers

LEAST_OTHERS = 0.01
"""Groups that do not count are still seen, each tuple for at most a hundred."""

HALVINGS = 30


@dataclass(frozen=True, slots=True)
class Strata:
    """The keep of each group in `names`, and that of all others. `needed` and `keep` are over all tuples."""

    names: NDArray[np.int64]
    keeps: Numbers
    others: float
    needed: float
    keep: float
    whole: float = 0.0
    """The share of the tuples whose groups are kept whole."""


def strata(keep: float, names: NDArray[np.int64], shares: Numbers, needs: Numbers, *, most: int, firm: bool) -> Strata:
    """The keeps of groups that have these shares of all tuples and need these keeps; `firm`: they have them anyway.

    >>> two = np.array([0.5, 0.25])
    >>> found = strata(0.6, np.array([7, 8]), two, np.array([0.2, 0.8]), most=8, firm=True)
    >>> found.keeps.round(3), round(found.others, 3), round(found.needed, 4)
    (array([0.8  , 0.533]), 0.533, 0.3025)
    >>> round(strata(0.2, np.array([7, 8]), two, np.array([0.2, 0.8]), most=8, firm=True).keep, 4)
    0.3025
    """
    own, others = _chosen(shares, needs, most)
    names, shares, needs = names[own], shares[own], needs[own]
    rest = max(0.0, 1.0 - float(shares.sum()))

    def kept(level: float) -> float:
        return float((shares * np.maximum(needs, level)).sum()) + rest * max(others, level)

    needed = min(1.0, kept(0.0))
    if keep < needed:
        part = 1.0 if firm else keep / needed
        return _strata(names, shares, rest, needs * part, others * part, needed)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if kept(middle) <= keep else (low, middle)
    return _strata(names, shares, rest, np.maximum(needs, low), max(others, low), needed)


def _strata(
    names: NDArray[np.int64], shares: Numbers, rest: float, keeps: Numbers, others: float, needed: float
) -> Strata:
    keep = min(1.0, float((shares * keeps).sum()) + rest * others)
    whole = float(shares[keeps >= 1.0].sum()) + (rest if others >= 1.0 else 0.0)
    return Strata(names, keeps, others, needed, keep, min(1.0, whole))


def _chosen(shares: Numbers, needs: Numbers, most: int) -> tuple[NDArray[np.int64], float]:
    """The places of the groups with a keep of their own, and the keep of all others."""
    order = np.argsort(-needs, kind="stable")
    if len(order) <= most:
        return order, LEAST_OTHERS
    n, p = shares[order], needs[order]

    def choice(first: int) -> tuple[float, NDArray[np.int64], float]:
        """What is kept if the `first` that need most have a keep of their own."""
        others = max(LEAST_OTHERS, float(p[first]))
        saved = np.maximum(n[first:] * (others - p[first:]), 0.0)
        also = first + np.argsort(-saved, kind="stable")[: min(most - first, np.count_nonzero(saved))]
        own = np.concatenate([np.arange(first), also])
        return float((n[own] * p[own]).sum()) + others * (1.0 - float(n[own].sum())), order[own], others

    return min((choice(first) for first in range(most + 1)), key=lambda one: one[0])[1:]


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
