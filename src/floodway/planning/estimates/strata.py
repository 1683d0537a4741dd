"""Keeps by group, so that the groups that count are accurate enough and no tuple is kept in vain.

A group g with the share n_g of the tuples needs the keep p_g (`accuracy.py`). At most `most` groups have a keep of
their own; all others have one together, which is the largest that one of them needs. Which groups have their own is
chosen so that the fewest tuples are kept: the j that need most, and of the rest those that save most, for the best j.

    needed = Σ n_g p_g       what is kept when nobody has more than it needs

What the keep leaves beyond that raises all groups to one level λ: keep_g = max(p_g, λ). Where it is less, either the
groups have what they need all the same, or all have the same part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.planning.estimates.accuracy import Numbers

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
