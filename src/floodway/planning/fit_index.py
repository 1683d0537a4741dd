"""Finding the best row: the one with the largest sum of v_i·min(F_i, r_i).

The score of a row splits into a sum over inputs, and rows are combinations of sample points, so the table
is kept as a *relation* between left halves and right halves of rows. A look-up scores every left half and
every right half once (about the square root of the table), takes the best right half of each distinct set,
and joins: 43,758 rows of eight inputs are 1001 + 1001 halves. See docs/decisions/0055 for why this and not
the papers' point quadtree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.planning.fit_lattice import Codes, rates_of
from floodway.planning.program import Matrix, Vector

Indices = NDArray[np.int64]
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
        return np.asarray(self.value.dot(np.minimum(self.rates, observed[self.inputs, None])))


class RowIndex:
    """Index over a table of feasible codes. `best(observed)` returns the rates of the best row."""

    def __init__(self, points: Sequence[Vector], codes: Codes, value: Vector, share: Matrix) -> None:
        self.rows = len(codes)
        self._value = value
        self._scan: Matrix | None = None
        if len(points) < 4 or self.rows <= SCAN_ROWS:
            self._scan = rates_of(points, _maximal(points, codes))
            return
        order = _alike(share)
        left, right = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        left_codes, left_id = _distinct(points, codes, left)
        right_codes, right_id = _distinct(points, codes, right)
        set_of, members, starts = _relation(left_id, right_id, len(left_codes), len(right_codes))
        members, starts = _best_members(points, right, right_codes, members, starts)
        kept = _best_left(points, left, left_codes, set_of)
        self._left = _Half.of(points, left, left_codes[kept], value)
        self._right = _Half.of(points, right, right_codes, value)
        self._set_of = set_of[kept]
        self._members, self._starts = members, starts
        self._ends = np.append(starts[1:], len(members))

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
        right = self._right.earned(observed)[self._members]
        total = self._left.earned(observed) + np.maximum.reduceat(right, self._starts)[self._set_of]
        one = int(total.argmax())
        group = self._set_of[one]
        start = self._starts[group]
        two = self._members[start + right[start : self._ends[group]].argmax()]
        row = np.empty(len(self._value))
        row[self._left.inputs] = self._left.rates[:, one]
        row[self._right.inputs] = self._right.rates[:, two]
        return row


def _alike(share: Matrix) -> Indices:
    """Inputs ordered so that those with alike use of resources are neighbours: fewer distinct sets."""
    scaled = share / share.max(axis=0)
    return np.lexsort(np.round(scaled, 6))


def _radix(points: Sequence[Vector], inputs: Indices) -> Indices:
    """Weights that make one integer of the codes of some inputs, with room for code + 1."""
    sizes = [len(points[i]) + 1 for i in inputs]
    return np.cumprod([1, *sizes[:-1]]).astype(np.int64)


def _distinct(points: Sequence[Vector], codes: Codes, inputs: Indices) -> tuple[Codes, Indices]:
    keys = codes[:, inputs].astype(np.int64) @ _radix(points, inputs)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return codes[np.ix_(first, inputs)], inverse.astype(np.int64)


def _relation(left: Indices, right: Indices, lefts: int, rights: int) -> tuple[Indices, Indices, Indices]:
    """For every left half the number of its set of right halves; the sets' members one after the other, and
    starts.
    """
    order = np.lexsort((right, left))
    left, right = left[order], right[order]
    starts = np.searchsorted(left, np.arange(lefts))
    sizes = np.diff(np.append(starts, len(left)))
    # Sets are told apart by the sum of random 64-bit marks (and their size); seeded, so that builds repeat.
    marks = np.random.default_rng(20070923).integers(0, 2**63, rights, dtype=np.uint64)
    signature = np.add.reduceat(marks[right], starts) + sizes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    _, first, set_of = np.unique(signature, return_index=True, return_inverse=True)
    members = np.concatenate([right[starts[i] : starts[i] + sizes[i]] for i in first])
    return set_of.astype(np.int64), members, np.cumsum(np.append(0, sizes[first[:-1]])).astype(np.int64)


def _best_members(
    points: Sequence[Vector], inputs: Indices, codes: Codes, members: Indices, starts: Indices
) -> tuple[Indices, Indices]:
    """Keep in every set only the members with no larger neighbour in it: the others can never earn more."""
    radix = _radix(points, inputs)
    span = int(radix[-1]) * (len(points[inputs[-1]]) + 2)
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(members))))
    keys = group * span + codes[members].astype(np.int64) @ radix
    ordered = np.sort(keys)
    top = ~_with_larger_neighbour(keys, ordered, radix)
    return members[top], np.searchsorted(group[top], np.arange(len(starts)))


def _best_left(points: Sequence[Vector], inputs: Indices, codes: Codes, set_of: Indices) -> NDArray[np.bool_]:
    """Of left halves with the same set only those with no larger neighbour among them."""
    radix = _radix(points, inputs)
    span = int(radix[-1]) * (len(points[inputs[-1]]) + 2)
    keys = set_of * span + codes.astype(np.int64) @ radix
    return ~_with_larger_neighbour(keys, np.sort(keys), radix)


def _with_larger_neighbour(keys: Indices, ordered: Indices, radix: Indices) -> NDArray[np.bool_]:
    larger = np.zeros(len(keys), dtype=bool)
    for step in radix:
        place = np.minimum(np.searchsorted(ordered, keys + step), len(ordered) - 1)
        larger |= ordered[place] == keys + step
    return larger


def _maximal(points: Sequence[Vector], codes: Codes) -> Codes:
    """Rows with no larger neighbour in the table; in a table of all feasible points these dominate the
    rest.
    """
    inputs = np.arange(len(points), dtype=np.int64)
    radix = _radix(points, inputs)
    if float(radix[-1]) * (len(points[-1]) + 1) > 2**62 or len(points) == 0:
        return codes
    keys = codes.astype(np.int64) @ radix
    return codes[~_with_larger_neighbour(keys, np.sort(keys), radix)]
