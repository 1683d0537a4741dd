"""The HiGHS solver as Floodway uses it: quiet, one thread, simplex from the last basis, exact to nine digits."""

from __future__ import annotations

from collections.abc import Callable

import highspy
import numpy as np
from numpy.typing import ArrayLike

from floodway.errors import PlanningError
from floodway.planning.program import Matrix, Vector

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
