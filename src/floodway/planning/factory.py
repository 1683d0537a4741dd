"""Planners by name: the one place that knows them all. Modules are imported only when asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from floodway.errors import InputError, PlanningError, suggestion
from floodway.network.model import Network
from floodway.planning.plan import Objective, Planner
from floodway.planning.program import Program

PLANNERS = {
    "exact": ("floodway.planning.exact", "ExactPlanner"),
    "solver": ("floodway.planning.solver", "SolverPlanner"),
    "solver-w": ("floodway.planning.solver_w", "SolverWPlanner"),
    "fit": ("floodway.planning.fit.planner", "FitPlanner"),
    "dfit": ("floodway.planning.fit.planner", "DFitPlanner"),
}

BY_WORKLOAD = ("fit", "solver-w")
"""Those that make finer plans where rates go."""


def make_planner(
    network: Network,
    name: str = "exact",
    *,
    objective: Objective = Objective.THROUGHPUT,
    epsilon: float = 0.05,
    headroom: float = 1.0,
    workload: Path | None = None,
    **options: Any,
) -> Planner:
    """Build a planner: all its preparation happens here, its look-ups are quick.

    `epsilon` is the relative error allowed against the optimum; the exact planner has none and ignores it.
    `workload` is a file of rates that were seen (`Empirical.of_file`), for planners that make finer plans where rates
    go. `options` go to the planner's own constructor.
    """
    check_choice(name, objective, workload)
    if name != "exact" and not 0 < epsilon < 1:
        raise InputError(f"epsilon {epsilon} is outside (0, 1)", hint="Use 0.05 for 5% of the optimum")
    program = Program(network, headroom)
    if workload is not None:
        from floodway.planning.workload import Empirical

        options["workload"] = Empirical.of_file(workload, program.streams)
    if objective is not Objective.THROUGHPUT:
        return _class("floodway.planning.objectives", "ObjectivePlanner")(program, objective, **options)
    build = planner_class(name)
    return build(program, **options) if name == "exact" else build(program, epsilon=epsilon, **options)


def planner_class(name: str) -> Callable[..., Planner]:
    """The class of a planner, imported."""
    return _class(*PLANNERS[name])


def _class(module: str, name: str) -> Callable[..., Planner]:
    return cast(Callable[..., Planner], getattr(import_module(module), name))


def check_choice(name: str, objective: Objective, workload: Path | None = None) -> None:
    """Refuse an unknown planner, an objective that only the exact planner knows, and rates that a planner ignores."""
    if name not in PLANNERS:
        raise InputError(f"no planner is called {name!r}", hint=suggestion(name, PLANNERS))
    if objective is not Objective.THROUGHPUT and name != "exact":
        raise PlanningError(
            f"the {name!r} planner prepares plans for weighted throughput only, not for {objective.value!r}",
            hint="Use the exact planner (--planner exact) for this objective",
        )
    if workload is not None and name not in BY_WORKLOAD:
        raise InputError(
            f"the {name!r} planner does not ask how likely rates are", hint=f"Use --planner {' or '.join(BY_WORKLOAD)}"
        )
