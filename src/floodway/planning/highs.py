"""The HiGHS solver as Floodway uses it: quiet, one thread, simplex from the last basis, exact to nine digits."""

from __future__ import annotations

from collections.abc import Callable

import highspy

from floodway.errors import PlanningError

_new: Callable[[], highspy.Highs] = highspy.Highs  # the class has no annotations of its own


def new_solver() -> highspy.Highs:
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
