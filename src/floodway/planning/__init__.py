"""WHAT to drop, and where: LP, exact region map, Solver, Solver-W, FIT; plans and their indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.front import lazy

if TYPE_CHECKING:
    from floodway.planning.factory import make_planner
    from floodway.planning.plan import Objective, Plan, Planner

__all__ = [
    "Objective",
    "Plan",
    "Planner",
    "make_planner",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "floodway.planning.factory": ("make_planner",),
        "floodway.planning.plan": (
            "Objective",
            "Plan",
            "Planner",
        ),
    },
)
