"""Finding the best row: the one with the largest sum of v_i·min(F_i, r_i).

The score of a row splits into a sum over inputs, and rows are combinations of sample points, so the table is kept as
a *relation* between left halves and right halves of rows. A look-up scores every left half and every right half once
(about the square root of the table), takes the best right half of each distinct set, and joins: 43,758 rows of eight
inputs are 1001 + 1001 halves. See docs/decisions/0055 for why this and not the papers' point quadtree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.planning.fit.lattice import Codes, rates_of
from floodway.planning.program import Matrix, Vector

Indices = NDArray[np.int64]
Keys = NDArray[np.uint64]
SCAN_ROWS = 1500
"""Below this many rows a plain scan is quicker than the joins."""


def scan(rates: Matrix, value: Vector, observed: Vector) -> int:
    """The best row by looking at all of them: what every index has to agree with."""
    return int((np.minimum(rates, observed) @ value).argmax())


@dataclass(frozen=True)
class _Half:
    """Half rows as columns (inputs × halves): the long axis last, where arrays are quick."""

    inputs: Indices
    rates: Matrix
    value: Vector

    @classmethod
    def of(cls, points: Sequence[Vector], inputs: Indices, codes: Codes, value: Vector) -> _Half:
        rates = rates_of([points[i] for i in inputs], codes)
        return cls(inputs, np.ascontiguousarray(rates.T), value[inputs])

    def earned(self, observed: Vector) -> Vector:
        """Sum of v_i·min(F_i, r_i) of every half row."""
        return np.asarray(self.value @ np.minimum(self.rates, observed[self.inputs, None]))


class RowIndex:
    """Index over a table of feasible codes. `best(observed)` returns the rates of the best row."""

    def __init__(self, points: Sequence[Vector], codes: Codes, value: Vector, share: Matrix) -> None:
        self.rows = len(codes)
        self._value = value
        self._scan: Matrix | None = None
        if len(points) < 4 or self.rows <= SCAN_ROWS:
            # In a table of all feasible points the rows without a larger neighbour dominate the rest.
            self._scan = rates_of(points, codes[~_with_larger_neighbour(codes)])
            return
        order = _alike(share)
        left, right = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        left_codes, left_id = _distinct(codes, left)
        right_codes, right_id = _distinct(codes, right)
        set_of, members, starts = _relation(left_id, right_id, len(left_codes), len(right_codes))
        members, starts = _best_members(right_codes, members, starts)
        kept = ~_with_larger_neighbour(left_codes, set_of)
        self._left = _Half.of(points, left, left_codes[kept], value)
        self._right = _Half.of(points, right, right_codes, value)
        self._set_of = set_of[kept]
        self._members, self._starts = members, np.append(starts, len(members))

    @property
    def work(self) -> int:
        """Halves and members looked at by one look-up, against `rows` for a scan."""
        if self._scan is not None:
            return len(self._scan)
        return int(self._left.rates.shape[1] + self._right.rates.shape[1] + len(self._members))

    def best(self, observed: Vector) -> Vector:
        """Rates of the row that earns most as min(F, r)."""
        if self._scan is not None:
            return np.asarray(self._scan[scan(self._scan, self._value, observed)])
        left = self._left.earned(observed)
        right = self._right.earned(observed)[self._members]
        # The best right half of every set, then the left half that earns most with the best of its own set.
        one = int(np.argmax(left + np.maximum.reduceat(right, self._starts[:-1])[self._set_of]))
        group = self._set_of[one]
        start = self._starts[group]
        two = self._members[start + int(np.argmax(right[start : self._starts[group + 1]]))]
        row = np.empty(len(self._value))
        row[self._left.inputs] = self._left.rates[:, one]
        row[self._right.inputs] = self._right.rates[:, two]
        return row


def _alike(share: Matrix) -> Indices:
    """Inputs ordered so that those with alike use of resources are neighbours: fewer distinct sets."""
    scaled = share / share.max(axis=0)
    return np.lexsort(np.round(scaled, 6))


def _marks(count: int) -> Keys:
    """Random weights that make one 64-bit key of the codes of some inputs, or of a set; seeded: builds repeat.

    Sums wrap round; that two different rows of a table get the same key has a chance below one in a billion.
    """
    return np.random.default_rng(20070923).integers(0, 2**64, count, dtype=np.uint64, endpoint=False) | np.uint64(1)


def _keys(codes: Codes) -> Keys:
    return np.asarray((codes.astype(np.uint64) * _marks(codes.shape[1])).sum(axis=1, dtype=np.uint64))


def _distinct(codes: Codes, inputs: Indices) -> tuple[Codes, Indices]:
    _, first, inverse = np.unique(_keys(codes[:, inputs]), return_index=True, return_inverse=True)
    return codes[np.ix_(first, inputs)], inverse.astype(np.int64)


def _relation(left: Indices, right: Indices, lefts: int, rights: int) -> tuple[Indices, Indices, Indices]:
    """For every left half the number of its set of right halves; the sets' members one after the other, and starts."""
    order = np.lexsort((right, left))
    left, right = left[order], right[order]
    starts = np.searchsorted(left, np.arange(lefts))
    sizes = np.diff(np.append(starts, len(left)))
    signature = np.add.reduceat(_marks(rights)[right], starts)
    _, first, set_of = np.unique(signature, return_index=True, return_inverse=True)
    members = np.concatenate([right[starts[i] : starts[i] + sizes[i]] for i in first])
    return set_of.astype(np.int64), members, np.cumsum(np.append(0, sizes[first[:-1]])).astype(np.int64)


def _best_members(codes: Codes, members: Indices, starts: Indices) -> tuple[Indices, Indices]:
    """Keep in every set only the members with no larger neighbour in it: the others can never earn more."""
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(members))))
    top = ~_with_larger_neighbour(codes[members], group)
    return members[top], np.searchsorted(group[top], np.arange(len(starts)))


def _with_larger_neighbour(codes: Codes, group: Indices | None = None) -> NDArray[np.bool_]:
    """Rows for which the same row with one input a step higher is there too (in the same group)."""
    keys = _keys(codes)
    if group is not None:
        keys = keys + group.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    ordered = np.sort(keys)
    larger = np.zeros(len(keys), dtype=bool)
    for step in _marks(codes.shape[1]):
        wanted = keys + step
        place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        larger |= ordered[place] == wanted
    return larger
