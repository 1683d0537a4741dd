"""Upper bounds on the optimum from dual solutions: how a table's answer is checked against ε without a solve.

Any y >= 0 bounds the optimum at *all* rates (weak duality), because rates stand only on the right-hand side:

    optimum(r) <= sum_k y_k + sum_a max(c_a − y·A_a, 0)·r_s(a)

The bound of an optimal basis is tight in its whole region, so a handful of them covers the rate space.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from floodway.planning.fit.reduce import ProgramBlock, Reduced
from floodway.planning.lp import Basis, LinearProgram
from floodway.planning.program import Matrix, Vector

MOST_BOUNDS = 512


class DualBounds:
    """Bounds for one block, over [rates of its streams, 1]."""

    def __init__(self, reduced: Reduced, block: ProgramBlock, lp: LinearProgram) -> None:
        program = reduced.program
        self._lp = lp
        self._streams = block.streams
        arcs = reduced.costly[block.arcs]
        resources = len(program.use)
        # Rows of other blocks carry no price here: the program is a sum over blocks.
        self._own_rows = np.zeros(len(lp.bound), dtype=bool)
        self._own_rows[:resources] = program.use[:, arcs].any(axis=1)
        self._objective = program.objective * lp.unit
        self.rows: Matrix = np.zeros((0, len(self._streams) + 1))
        self._augmented = np.ones(len(self._streams) + 1)

    def add(self, basis: Basis) -> None:
        """Remember the bound of an optimal basis."""
        row = self._row(basis)
        if row is None or len(self.rows) >= MOST_BOUNDS:
            return
        scale = np.abs(row).max() or 1.0
        if not len(self.rows) or np.abs(self.rows - row).max(axis=1).min() > 1e-12 * scale:
            self.rows = np.vstack([self.rows, row])

    def at(self, rates: Vector) -> float:
        """The least bound at the rates of the block's streams; infinite before the first."""
        if not len(self.rows):
            return float("inf")
        self._augmented[:-1] = rates
        return float(self.rows.dot(self._augmented).min())

    def _row(self, basis: Basis) -> Vector | None:
        program = self._lp.program
        tight, basic = np.flatnonzero(basis.tight), np.flatnonzero(basis.basic)
        try:
            price = np.linalg.solve(self._lp.matrix[np.ix_(tight, basic)].T, self._objective[basic])
        except np.linalg.LinAlgError:
            return None
        prices = np.zeros(len(self._lp.bound))
        prices[tight] = np.maximum(price, 0.0)
        gain = self._objective - prices @ self._lp.matrix
        if np.any(gain[program.stream_of < 0] > 1e-9 * np.abs(self._objective).max()):
            return None  # not dual feasible to working precision
        constant = float(prices[self._own_rows] @ self._lp.bound[self._own_rows])
        per_rate = np.zeros(len(program.streams))
        outer: NDArray[np.int64] = np.flatnonzero(program.stream_of >= 0)
        np.add.at(per_rate, program.stream_of[outer], np.maximum(gain[outer], 0.0) / self._lp.unit[outer])
        return np.append(per_rate[self._streams], constant)
