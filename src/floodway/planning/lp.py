"""The program on HiGHS: the model is passed once, and only bounds change from solve to solve.

Variables are scaled so that 1 means "all of the scarcest resource this arc uses", rows so that capacities are 1.
Solutions are read off the optimal basis by our own linear algebra, because a basis is exact where a solver's values
are only within its tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from floodway.planning.highs import new_model, solve
from floodway.planning.program import Matrix, Program, Vector

OBJECTIVE_SIZE = 1e3
NONZERO_DUAL = 1e-7
"""A dual of this size, of an objective of that one, says that its constraint holds the optimum down."""

"""Largest objective coefficient handed to HiGHS: makes its absolute dual tolerance (1e-9) a relative 1e-12."""
_TIE_BREAK = 2e-10
"""Relative perturbation of the objective. Above the solver's tolerance, so ties between identical streams always go the
same way; below 1e-9, so that no plan is worse by more than the error we promise."""

_BASIC = int(highspy.HighsBasisStatus.kBasic)
_UPPER = int(highspy.HighsBasisStatus.kUpper)


@dataclass(frozen=True, slots=True)
class Basis:
    """An optimal basis: which columns are basic, which sit at their upper bound, which rows are tight."""

    basic: NDArray[np.bool_]
    at_upper: NDArray[np.bool_]
    tight: NDArray[np.bool_]


class LinearProgram:
    """`Program` as a HiGHS model. `solve(rates)` returns flows in tuples/s and the optimal basis."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.unit = column_units(program.use / program.capacity[:, None])
        nesting = program.nesting * self.unit
        nesting = nesting / np.abs(nesting).max(axis=1, keepdims=True) if len(nesting) else nesting
        resources = program.use * self.unit / program.capacity[:, None]
        self.matrix: Matrix = np.vstack([resources, nesting])
        self.bound: Vector = np.concatenate([np.ones(len(resources)), np.zeros(len(nesting))])
        self._stream_columns = np.flatnonzero(program.stream_of >= 0).astype(np.int32)
        self._stream_rows = program.stream_of[self._stream_columns]
        self._stream_units = self.unit[self._stream_columns]
        self._lower = np.zeros(len(self._stream_columns))
        objective = _tie_broken(program.objective * self.unit)
        self._highs = new_model(self.matrix, objective, upper=self.bound)

    def solve(self, rates: Vector) -> tuple[Vector, Basis]:
        """Optimal flows x (tuples/s) for these rates, with the basis that gives them."""
        self.run(rates)
        raw = self._highs.getBasis()
        columns = np.array([int(s) for s in raw.col_status])
        rows = np.array([int(s) for s in raw.row_status])
        solution = self._highs.getSolution()
        at_upper = columns == _UPPER
        # Where a rate is 0 both bounds coincide and the status says nothing; the sign of the dual tells which
        # bound the column would stay at if the rate grew, and so makes the basis good beyond this point.
        fixed = self._stream_columns[(rates[self._stream_rows] <= 0) & (columns[self._stream_columns] != _BASIC)]
        at_upper[fixed] = np.array(solution.col_dual)[fixed] > 0
        basis = Basis(columns == _BASIC, at_upper, rows != _BASIC)
        return np.array(solution.col_value) * self.unit, basis

    def run(self, rates: Vector) -> None:
        """Change the bounds to these rates and solve, from the basis of the solve before."""
        upper = rates[self._stream_rows] / self._stream_units
        self._highs.changeColsBounds(len(upper), self._stream_columns, self._lower, upper)
        solve(self._highs, self.program.network.name)


def column_units(share: Matrix) -> Vector:
    """Tuples/s that one scaled unit of each variable stands for, by its share of each resource."""
    scarcest = share.max(axis=0, initial=0.0)
    costly = scarcest > 0
    typical = 1.0 / float(np.median(scarcest[costly])) if costly.any() else 1.0
    return np.where(costly, 1.0 / np.where(costly, scarcest, 1.0), typical)


def _tie_broken(objective: Vector) -> Vector:
    top = float(np.abs(objective).max()) if len(objective) else 0.0
    if top <= 0:
        return np.zeros_like(objective)
    # A fixed irrational step spreads the perturbations evenly and never repeats one.
    jitter = np.modf(np.arange(1, len(objective) + 1) * 0.6180339887498949)[0]
    return np.asarray(objective / top * OBJECTIVE_SIZE * (1.0 + _TIE_BREAK * jitter))
