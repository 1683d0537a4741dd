"""The program on HiGHS: the model is passed once, and only bounds change from solve to solve.

Variables are scaled so that 1 means "all of the scarcest resource this arc uses", rows so that capacities are 1.
Solutions are read off the optimal basis by our own linear algebra, because a basis is exact where a solver's values
are only within its tolerance.

The HiGHS solver as Floodway uses it: quiet, one thread, simplex from the last basis, exact to nine digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import ArrayLike, NDArray

from floodway.errors import PlanningError
from floodway.planning.program import Matrix, Program, Vector

_new: Callable[[], highspy.Highs] = highspy.Highs  # the class has no annotations of its own


def _new_solver() -> highspy.Highs:
    """A solver without a model. Presolve is off: it would throw away the basis that the next solve starts from."""
    highs = _new()
    for option, value in (
        ("output_flag", False),
        ("presolve", "off"),
        ("solver", "simplex"),
        ("threads", 1),
        ("dual_feasibility_tolerance", 1e-9),
        ("primal_feasibility_tolerance", 1e-9),
    ):
        highs.setOptionValue(option, value)
    return highs


def new_model(
    matrix: Matrix, objective: Vector, *, lower: ArrayLike = -np.inf, upper: ArrayLike, most: ArrayLike = np.inf
) -> highspy.Highs:
    """A solver for: maximise objective·x with lower <= matrix·x <= upper and 0 <= x <= most."""
    rows, columns = matrix.shape
    by_column = matrix.T
    column_of, row_of = np.nonzero(by_column)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, rows
    model.col_cost_ = objective
    model.col_lower_, model.col_upper_ = np.zeros(columns), _filled(most, columns)
    model.row_lower_, model.row_upper_ = _filled(lower, rows), _filled(upper, rows)
    model.sense_ = highspy.ObjSense.kMaximize
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.searchsorted(column_of, np.arange(columns + 1)).astype(np.int32)
    model.a_matrix_.index_ = row_of.astype(np.int32)
    model.a_matrix_.value_ = by_column[column_of, row_of]
    highs = _new_solver()
    highs.passModel(model)
    return highs


def _filled(bound: ArrayLike, count: int) -> Vector:
    return np.broadcast_to(np.asarray(bound, dtype=np.float64), count).copy()


def solve(highs: highspy.Highs, network: str) -> None:
    """Solve to the optimum; anything else is an error that names the network."""
    highs.run()
    status = highs.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        # Among identical streams the simplex method now and then loses its way from a warm basis; from a cold start
        # it finds the optimum.
        highs.clearSolver()
        highs.run()
        status = highs.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise PlanningError(
            f"the solver ended with {highs.modelStatusToString(status)} on network {network!r}",
            hint="Costs, weights or rates may differ by too many orders of magnitude; check their units",
        )


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
