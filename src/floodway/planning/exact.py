"""The exact planner: the LP, with a map of its optimal bases in front of it.

Rates stand only on the right-hand side of the program, so an optimal basis stays optimal wherever it stays feasible,
and there the optimal flows are linear in the rates. Every basis seen is kept as a region

    x(r) = X·[r, 1]        optimal wherever  C·[r, 1] >= 0,   score(r) = s·[r, 1]

By duality each s·[r, 1] is an upper bound on the optimum anywhere, so the region of a point, if known, is the one
with the least bound: one matrix-vector product finds it and one more checks it. A miss is solved and remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.planning import store
from floodway.planning.lp import Basis, LinearProgram
from floodway.planning.plan import Planner
from floodway.planning.program import Matrix, Program, Vector

_TOLERANCE = 1e-9
_STACKED = 4096
"""Numbers in a matrix up to which evaluating all regions at once is quicker than finding one first."""
DEFAULT_MAP_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Region:
    """One optimal basis. `rows` stacks the checks C (first `checks` rows) on the flows X.

    `keeps` are the keeps of the flows at a bound (1 at the stream's rate, 0 at zero); `basic` are the others.
    """

    rows: Matrix
    checks: int
    bound: Vector
    basic: tuple[int, ...]
    keeps: Vector

    def values(self, augmented: Vector) -> Vector | None:
        """Checks and optimal flows at [r, 1], or None where this basis is not feasible."""
        values: Vector = self.rows.dot(augmented)
        # argmin and an index take half the time of min() on arrays this short.
        return None if values[values[: self.checks].argmin()] < -_TOLERANCE else values


class ExactPlanner(Planner):
    """Optimal plans; a look-up in the region map takes microseconds, a miss one solve."""

    name = "exact"

    def __init__(self, program: Program, map_bytes: int = DEFAULT_MAP_BYTES) -> None:
        super().__init__(program)
        self._lp = LinearProgram(program)
        self._map_bytes = map_bytes
        self._regions: list[Region] = []
        self._hits: list[int] = []
        self._bounds: Matrix = np.zeros((0, len(program.streams) + 1))
        self._augmented: Vector = np.ones(len(program.streams) + 1)
        self._stack: Matrix | None = None
        # One product with the stack fills `_values`; the views into it are cut in advance: bounds, then checks and
        # flows of every region.
        self._values: Vector = np.zeros(0)
        self._least: Vector = self._values
        self._views: list[tuple[Vector, Vector]] = []
        self._rates: Vector = self._augmented[:-1]
        self._last: int | np.int64 = -1  # the region found last; -1 while the map is empty
        self._steady = False  # whether the last two look-ups fell in the same region
        # Without splits a variable is a stream, and keeps are flows over rates with no further arithmetic.
        self._plain = program.size == len(program.streams) == len(program.network.drop_locations)
        self.misses = 0

    @property
    def size(self) -> int:
        """Regions in the map."""
        return len(self._regions)

    @property
    def hits(self) -> int:
        """Look-ups that a region now in the map answered."""
        return sum(self._hits)

    def lookup(self, rates: Vector) -> Vector:
        """Keeps of an optimal plan."""
        if not self._plain or np.count_nonzero(rates) < len(rates):
            return self.program.keeps(self.flows(rates), rates)
        flows = self._find(rates)
        if flows is None:
            return self.program.keeps(self._solve(rates), rates)
        region = self._regions[self._last]
        keeps = region.keeps.copy()
        # Flows at a bound have their keeps already; the few basic ones are quicker one by one than as arrays.
        for i in region.basic:
            keep = flows.item(i) / rates.item(i)
            keeps[i] = 1.0 if keep > 1.0 else max(keep, 0.0)
        return keeps

    def flows(self, rates: Vector) -> Vector:
        """Optimal flows x (tuples/s) on the free arcs."""
        flows = self._find(rates)
        return self._solve(rates) if flows is None else flows.copy()

    def _find(self, rates: Vector) -> Vector | None:
        """The flows of the point's region, which becomes `_last`; None if the region is not in the map.

        What is returned may be overwritten by the next look-up.
        """
        self._rates[:] = rates
        stack = self._stack
        if stack is None:
            return self._find_in_steps(self._augmented)
        stack.dot(self._augmented, self._values)
        best = self._least.argmin()
        checks, flows = self._views[best]
        if checks[checks.argmin()] < -_TOLERANCE:
            return self._find_in_steps(self._augmented)
        self._last = best
        self._hits[best] += 1
        return flows

    def _find_in_steps(self, augmented: Vector) -> Vector | None:
        """The same for maps too large to evaluate whole, and where several regions share the least bound."""
        last = self._last
        if self._steady:
            # Rates mostly stay within a region; a basis that is feasible is optimal, whatever the bounds say.
            values = self._regions[last].values(augmented)
            if values is not None:
                self._hits[last] += 1
                return values[self._regions[last].checks :]
        elif last < 0:
            return None
        bounds: Vector = self._bounds.dot(augmented)
        best = bounds.argmin()
        values = self._regions[best].values(augmented)
        if values is None:
            # Bases may share the least bound where the optimum is degenerate; any feasible one is optimal.
            tied = np.flatnonzero(bounds <= bounds[best] * (1 + _TOLERANCE))
            for best in tied:
                values = self._regions[best].values(augmented)
                if values is not None:
                    break
            else:
                return None
        self._steady = best == last
        self._last = best
        self._hits[best] += 1
        return None if values is None else values[self._regions[best].checks :]

    def tangent(self, rates: Vector) -> tuple[Vector, Vector | None]:
        """Optimal flows, and the s for which s·[r, 1] is the optimum here and above it everywhere else.

        The second is None where no basis could be read off.
        """
        known = self._find(rates)
        if known is not None:
            return known, self._regions[self._last].bound
        flows, solved = self._solve_region(rates)
        return flows, None if solved is None else solved.bound

    def optimum(self, rates: Vector) -> float:
        """The best weighted throughput at these rates."""
        return self.program.score(self.flows(rates))

    def _solve(self, rates: Vector) -> Vector:
        return self._solve_region(rates)[0]

    def _solve_region(self, rates: Vector) -> tuple[Vector, Region | None]:
        self.misses += 1
        solved, basis = self._lp.solve(rates)
        region = _region(self._lp, basis)
        if region is None:
            return solved, None
        values = region.values(self._augmented)
        self._remember(region)
        return (solved if values is None else values[region.checks :]), region

    def _remember(self, region: Region) -> None:
        size = region.rows.nbytes + region.bound.nbytes
        room = self._map_bytes // max(size, 1)
        if room < 8:
            return  # A program this large is quicker to solve than to look up.
        if len(self._regions) >= room:
            kept = sorted(np.argsort(self._hits)[len(self._hits) // 2 :].tolist())
            self._regions = [self._regions[i] for i in kept]
            self._hits = [0 for _ in kept]
            self._last, self._steady = 0, False
        self._add([region])

    def _add(self, regions: Sequence[Region]) -> None:
        self._regions.extend(regions)
        self._hits.extend(0 for _ in regions)
        if self._regions:
            self._bounds = np.array([r.bound for r in self._regions])
            self._last = max(self._last, 0)
            self._stack_up()

    def _stack_up(self) -> None:
        """Bounds and rows of all regions as one matrix, while one product with it costs no more than two small ones."""
        ends = np.cumsum([len(self._regions), *(len(r.rows) for r in self._regions)])
        self._stack = None
        if int(ends[-1]) * self._bounds.shape[1] <= _STACKED:
            self._stack = np.vstack([self._bounds, *(r.rows for r in self._regions)])
            self._values = np.zeros(len(self._stack))
            self._least = self._values[: len(self._regions)]
            self._views = [
                (self._values[start : start + region.checks], self._values[start + region.checks : end])
                for region, start, end in zip(self._regions, ends.tolist(), ends[1:].tolist(), strict=False)
            ]

    def to_arrays(self) -> tuple[store.Meta, store.Arrays]:
        """The region map: the rows of all regions in one block, and how many checks and flows each has."""
        width, size = len(self.program.streams) + 1, self.program.size
        return {}, {
            "rows": np.vstack([np.zeros((0, width)), *(r.rows for r in self._regions)]),
            "checks": np.array([r.checks for r in self._regions], dtype=np.int64),
            "basic": _mask(size, [r.basic for r in self._regions]),
            "keeps": np.array([r.keeps for r in self._regions]).reshape(self.size, size),
        }

    @classmethod
    def from_arrays(cls, program: Program, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ExactPlanner:
        """The planner again, with its map as it was; what is not in it is still solved when seen."""
        planner = cls(program)
        checks = store.array(arrays, "checks", (None,)).astype(np.int64)
        rows = store.array(arrays, "rows", (None, len(program.streams) + 1)).astype(np.float64)
        basic = store.array(arrays, "basic", (len(checks), program.size)).astype(np.bool_)
        keeps = store.array(arrays, "keeps", (len(checks), program.size)).astype(np.float64)
        fits = bool((checks > 0).all()) and int(checks.sum()) + len(checks) * program.size == len(rows)
        store.require(fits, "the regions' rows do not add up")
        ends = np.cumsum(checks + program.size)
        regions = []
        for end, count, mask, at_bounds in zip(ends.tolist(), checks.tolist(), basic, keeps, strict=True):
            block = np.ascontiguousarray(rows[end - count - program.size : end])
            chosen = tuple(np.flatnonzero(mask).tolist())
            regions.append(Region(block, count, program.objective @ block[count:], chosen, at_bounds))
        planner._add(regions)
        return planner


def _region(lp: LinearProgram, basis: Basis) -> Region | None:
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
    # A row of zeros, which is never violated, so that there is always something to check.
    checks = np.vstack([x[basic], _room_above(lp, x, basic), slack, np.zeros((1, streams + 1))])
    flows = x * lp.unit[:, None]
    return Region(
        rows=np.ascontiguousarray(np.vstack([checks, flows])),
        checks=len(checks),
        bound=program.objective @ flows,
        basic=tuple(basic.tolist()),
        keeps=basis.at_upper.astype(np.float64),
    )


def _room_above(lp: LinearProgram, x: Matrix, basic: NDArray[np.int64]) -> Matrix:
    """What basic flows out of a stream leave below the stream's rate, over [r, 1]."""
    bounded = basic[lp.program.stream_of[basic] >= 0]
    room = -x[bounded]
    room[np.arange(len(bounded)), lp.program.stream_of[bounded]] += 1.0 / lp.unit[bounded]
    return room


def _mask(size: int, chosen: Sequence[tuple[int, ...]]) -> NDArray[np.bool_]:
    mask = np.zeros((len(chosen), size), dtype=np.bool_)
    for row, indexes in enumerate(chosen):
        mask[row, list(indexes)] = True
    return mask
