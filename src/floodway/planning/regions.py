"""The map of optimal bases: where each is optimal, and what flows there.

Rates stand only on the right-hand side of the program, so an optimal basis stays optimal wherever it stays feasible,
and there the optimal flows are linear in the rates. Every basis seen is kept as a region

    x(r) = X·[r, 1]        optimal wherever  C·[r, 1] >= 0,   score(r) = s·[r, 1]

By duality each s·[r, 1] is an upper bound on the optimum anywhere, so the region of a point, if known, is the one
with the least bound. `region_kernel.py` does the search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from floodway.planning.lp import Basis, LinearProgram
from floodway.planning.program import Matrix, Vector

TOLERANCE = 1e-9
FEWEST = 8
"""A map with room for fewer regions than this is of no use."""


SEARCHES = 1000
"""Look-ups after which the compiled search is loaded."""
_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Region:
    """One optimal basis. `rows` stacks the checks C (first `checks` rows) on the flows X."""

    rows: Matrix
    checks: int
    bound: Vector

    def holds(self, rates: Vector) -> bool:
        """Whether the basis is feasible, and so optimal, at these rates."""
        block = self.rows[: self.checks]
        return bool((block[:, :-1] @ rates + block[:, -1] >= -TOLERANCE).all())

    def flows(self, rates: Vector) -> Vector:
        """Optimal flows at rates within the region."""
        block = self.rows[self.checks :]
        return np.asarray(block[:, :-1] @ rates + block[:, -1])


class RegionMap:
    """Regions in arrays that grow by doubling, bounded in memory: when full, the half that was hit least goes."""

    def __init__(self, streams: int, arcs: int, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._arcs = arcs
        self._width = streams + 1
        self._hits: list[int] = []
        self.last = 0
        self._searched = 0
        self._locate: Callable[..., int] | None = None
        self._reset(16, 256)

    def _reset(self, regions: int, rows: int) -> None:
        self._bounds: Matrix = np.zeros((regions, self._width))
        self._rows: Matrix = np.zeros((rows, self._width))
        self._place = np.zeros((regions, 3), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._hits)

    def __getitem__(self, index: int) -> Region:
        start, flows, end = self._place[index]
        return Region(self._rows[start:end], int(flows - start), self._bounds[index])

    @property
    def hits(self) -> int:
        """Look-ups that a region now in the map answered."""
        return sum(self._hits)

    def find(self, rates: Vector, as_keeps: bool = False) -> Vector | None:
        """Flows (or flows over rates) of the region that holds these rates; None if it is not in the map."""
        if self._locate is None:
            return self._search(rates, as_keeps)
        flows = np.empty(self._arcs)
        found = self._locate(rates, self._bounds, self._rows, self._place, len(self._hits), self.last, as_keeps, flows)
        if found < 0:
            return None
        self.last = found
        self._hits[found] += 1
        return flows

    def _search(self, rates: Vector, as_keeps: bool) -> Vector | None:
        """The same in NumPy, for planners that are asked seldom: loading numba takes half a second and 100 MB."""
        known = len(self._hits)
        bounds = self._bounds[:known, :-1] @ rates + self._bounds[:known, -1]
        tied = np.flatnonzero(bounds <= bounds.min(initial=np.inf) * (1.0 + TOLERANCE))
        found = next((i for i in tied.tolist() if self[i].holds(rates)), None)
        if found is None:
            return None
        self.last = found
        self._hits[found] += 1
        self._searched += 1
        if self._searched == SEARCHES:
            from floodway.planning.region_kernel import locate

            self._locate = locate
        flows = self[found].flows(rates)
        if not as_keeps:
            return flows
        return np.clip(np.divide(flows, rates, out=np.ones(len(rates)), where=rates > 0), 0.0, 1.0)

    def add(self, region: Region) -> None:
        """Remember a region, as far as there is room."""
        room = self._most_bytes // max(region.rows.nbytes + region.bound.nbytes, 1)
        if room < FEWEST:
            return  # A program this large is quicker to solve than to look up.
        if len(self) >= room:
            kept = sorted(np.argsort(self._hits)[len(self) // 2 :].tolist())
            held = [self[i] for i in kept]
            self._hits, self.last = [], 0
            self._reset(16, 256)
            for one in held:
                self._append(one)
        self._append(region)

    def _append(self, region: Region) -> None:
        index = len(self)
        start = int(self._place[index - 1, 2]) if index else 0
        end = start + len(region.rows)
        if index == len(self._bounds):
            self._bounds, self._place = _doubled(self._bounds), _doubled(self._place)
        while end > len(self._rows):
            self._rows = _doubled(self._rows)
        self._rows[start:end] = region.rows
        self._bounds[index] = region.bound
        self._place[index] = (start, start + region.checks, end)
        self._hits.append(0)


def _doubled(array: NDArray[_T]) -> NDArray[_T]:
    return np.concatenate([array, np.zeros_like(array)])


def region_of(lp: LinearProgram, basis: Basis) -> Region | None:
    """The affine solution that a basis stands for; None if its matrix is singular to working precision."""
    program = lp.program
    streams = len(program.streams)
    basic, at_upper = np.flatnonzero(basis.basic), np.flatnonzero(basis.at_upper)
    tight, loose = np.flatnonzero(basis.tight), np.flatnonzero(~basis.tight)
    x: Matrix = np.zeros((program.size, streams + 1))  # scaled flows over [r, 1]
    x[at_upper, program.stream_of[at_upper]] = 1.0 / lp.unit[at_upper]
    right: Matrix = np.zeros((len(lp.bound), streams + 1))
    right[:, -1] = lp.bound
    try:
        x[basic] = np.linalg.solve(lp.matrix[np.ix_(tight, basic)], right[tight] - lp.matrix[tight] @ x)
    except np.linalg.LinAlgError:
        return None
    slack = right[loose] - lp.matrix[loose] @ x
    checks = np.vstack([x[basic], _room_above(lp, x, basic), slack])
    flows = x * lp.unit[:, None]
    return Region(np.vstack([checks, flows]), len(checks), program.objective @ flows)


def _room_above(lp: LinearProgram, x: Matrix, basic: NDArray[np.int64]) -> Matrix:
    """What basic flows out of a stream leave below the stream's rate, over [r, 1]."""
    bounded = basic[lp.program.stream_of[basic] >= 0]
    room = -x[bounded]
    room[np.arange(len(bounded)), lp.program.stream_of[bounded]] += 1.0 / lp.unit[bounded]
    return room


def stacked(regions: Sequence[Region], width: int) -> tuple[Matrix, NDArray[np.int64]]:
    """All rows in one block, and how many of each region are checks: the form in which a map is saved."""
    rows = np.vstack([np.zeros((0, width)), *(region.rows for region in regions)])
    return rows, np.array([region.checks for region in regions], dtype=np.int64)
