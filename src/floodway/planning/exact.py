"""The exact planner: the LP, with a map of its optimal bases in front of it.

Rates stand only on the right-hand side of the program, so an optimal basis stays optimal wherever it stays feasible, and
there the optimal flows are linear in the rates. Every basis seen is kept as a region

    x(r) = X·[r, 1]        optimal wherever  C·[r, 1] >= 0,   score(r) = s·[r, 1]

By duality each s·[r, 1] is an upper bound on the optimum anywhere, so the region of a point, if known, is the one with
the least bound: one matrix-vector product finds it and one more checks it. A miss is solved and remembered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.planning.lp import Basis, LinearProgram
from floodway.planning.plan import Planner
from floodway.planning.program import Matrix, Program, Vector

_TOLERANCE = 1e-9
DEFAULT_MAP_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Region:
    """One optimal basis. `rows` stacks the checks C (first `checks` rows) on the flows X."""

    rows: Matrix
    checks: int
    bound: Vector

    def flows(self, augmented: Vector) -> Vector | None:
        """Optimal flows at [r, 1], or None where this basis is not feasible."""
        values: Vector = self.rows.dot(augmented)
        # argmin and an index take half the time of min() on arrays this short.
        if self.checks and values[values[: self.checks].argmin()] < -_TOLERANCE:
            return None
        return values[self.checks :]


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
        self._augmented = np.ones(len(program.streams) + 1)
        self.hits = 0
        self.misses = 0

    @property
    def size(self) -> int:
        """Regions in the map."""
        return len(self._regions)

    def lookup(self, rates: Vector) -> Vector:
        """Keeps of an optimal plan."""
        return self.program.keeps(self.flows(rates), rates)

    def flows(self, rates: Vector) -> Vector:
        """Optimal flows x (tuples/s) on the free arcs."""
        augmented = self._augmented
        augmented[:-1] = rates
        if self._regions:
            bounds = self._bounds.dot(augmented)
            best = bounds.argmin()
            flows = self._regions[best].flows(augmented)
            if flows is not None:
                self._hits[best] += 1
                return flows
            # Several bases may share the least bound where the optimum is degenerate; any feasible one is optimal.
            for tied in np.flatnonzero(bounds <= bounds[best] * (1 + _TOLERANCE)):
                flows = self._regions[tied].flows(augmented)
                if flows is not None:
                    self._hits[tied] += 1
                    return flows
        return self._solve(rates)

    def optimum(self, rates: Vector) -> float:
        """The best weighted throughput at these rates."""
        return self.program.score(self.flows(rates))

    def _solve(self, rates: Vector) -> Vector:
        self.misses += 1
        solved, basis = self._lp.solve(rates)
        region = _region(self._lp, basis)
        if region is None:
            return solved
        flows = region.flows(self._augmented)
        self._remember(region)
        return solved if flows is None else flows

    def _remember(self, region: Region) -> None:
        size = region.rows.nbytes + region.bound.nbytes
        room = self._map_bytes // max(size, 1)
        if room < 8:
            return  # A program this large is quicker to solve than to look up.
        if len(self._regions) >= room:
            kept = sorted(np.argsort(self._hits)[len(self._hits) // 2 :].tolist())
            self._regions = [self._regions[i] for i in kept]
            self._hits = [0 for _ in kept]
        self._regions.append(region)
        self._hits.append(0)
        self._bounds = np.array([r.bound for r in self._regions])


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
    checks = np.vstack([x[basic], _room_above(lp, x, basic), slack])
    flows = x * lp.unit[:, None]
    return Region(np.ascontiguousarray(np.vstack([checks, flows])), len(checks), program.objective @ flows)


def _room_above(lp: LinearProgram, x: Matrix, basic: NDArray[np.int64]) -> Matrix:
    """What basic flows out of a stream leave below the stream's rate, over [r, 1]."""
    bounded = basic[lp.program.stream_of[basic] >= 0]
    room = -x[bounded]
    room[np.arange(len(bounded)), lp.program.stream_of[bounded]] += 1.0 / lp.unit[bounded]
    return room
