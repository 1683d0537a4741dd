"""Figure 13: plan generation as more queries share one operator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import SOURCE, fan_out
from floodway.experiments.staying_fit.plan_errors import PlannerErrors, accuracy, within
from floodway.planning.fit.planner import FitPlanner
from floodway.planning.program import Program
from floodway.planning.solver import SolverPlanner

TITLE = "Effect of operator fan-out"
CLAIM = Claim(
    SOURCE,
    "Figure 13",
    "both take longer with fan-out; Solver is slightly quicker at 2 branches, C-FIT at many (ε = 1%)",
)
EPSILON = 0.01
FAN_OUTS = (2, 4, 8, 16, 32, 64)


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Solver calls and seconds for one input and 2^k branches; the best of three runs each."""
    measured: dict[str, dict[str, Any]] = {}
    checks: dict[str, list[PlannerErrors]] = {"Solver": [], "C-FIT": []}
    for place, branches in enumerate(FAN_OUTS, 1):
        program = Program(fan_out(branches))
        solvers = [SolverPlanner(program, EPSILON, use_map=False, mix=False, clock=time.process_time) for _ in range(3)]
        fits = [_fit(program) for _ in range(3)]
        checks["Solver"].append(accuracy(solvers[0], seeds))
        checks["C-FIT"].append(accuracy(fits[0][1], seeds))
        measured[str(branches)] = {
            "solver calls": solvers[0].lp_calls,
            "solver seconds": round(min(solver.build_seconds for solver in solvers), 4),
            "c-fit seconds": round(min(seconds for seconds, _ in fits), 4),
            "c-fit rows": fits[0][1].size,
            "plans against the linear program": {name: found[-1].to_dict() for name, found in checks.items()},
        }
        progress(place / len(FAN_OUTS))
    first, last = measured[str(FAN_OUTS[0])], measured[str(FAN_OUTS[-1])]
    calls = [row["solver calls"] for row in measured.values()]
    return Result(
        measured=measured,
        criteria=(
            Criterion("Solver's calls rise with fan-out", calls == sorted(calls) and calls[0] < calls[-1], str(calls)),
            Criterion(
                "C-FIT takes longer with 64 branches than with 2",
                last["c-fit seconds"] > first["c-fit seconds"],
                f"{last['c-fit seconds']:.3f} and {first['c-fit seconds']:.3f} s",
            ),
            Criterion(
                "Solver is quicker than C-FIT with 2 branches",
                first["solver seconds"] < first["c-fit seconds"],
                f"{first['solver seconds']:.3f} and {first['c-fit seconds']:.3f} s",
            ),
            Criterion(
                "C-FIT is quicker than Solver with 64 branches",
                last["c-fit seconds"] < last["solver seconds"],
                f"{last['c-fit seconds']:.3f} and {last['solver seconds']:.3f} s",
            ),
            *(within(name, EPSILON, found) for name, found in checks.items()),
        ),
        where="computation",
        notes=(
            "Branch costs are a choice: evenly spread, so that every branch is a drop location of its own rank.",
            "Solver calls HiGHS for every corner, as the paper's calls GLPK.",
        ),
        headline=f"2 branches: Solver {first['solver seconds']:.3f} s, C-FIT {first['c-fit seconds']:.3f} s; 64: "
        f"{last['solver seconds']:.3f} s and {last['c-fit seconds']:.3f} s",
        plots={"staying-fit-fig13": lambda: _draw(measured)},
    )


def _fit(program: Program) -> tuple[float, FitPlanner]:
    started = time.process_time()
    planner = FitPlanner(program, EPSILON)
    return time.process_time() - started, planner


def _draw(measured: dict[str, dict[str, Any]]) -> Figure:
    figure, axes = panels(1, 2, width=9.6, height=3.6)
    rows = list(measured.values())
    seconds = {"Solver": "solver seconds", "C-FIT": "c-fit seconds"}
    lines(axes[0], FAN_OUTS, {name: [row[key] for row in rows] for name, key in seconds.items()}, marker="o")
    lines(axes[1], FAN_OUTS, {"Solver": [row["solver calls"] for row in rows]}, marker="o")
    for panel in axes:
        panel.set_xscale("log", base=2)
        panel.set_xticks(list(FAN_OUTS), [str(n) for n in FAN_OUTS])
    axes[0].set_yscale("log")
    style(axes[0], title="Plan generation, ε = 1%", x="branches", y="seconds", legend=True)
    style(axes[1], title="Solver calls", x="branches", y="calls")
    return figure
