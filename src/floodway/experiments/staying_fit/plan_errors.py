"""How good a planner's plans are: compared with the linear program at rates that its construction has not seen.

The rates are drawn anew for each seed. A plan counts with what it earns in the network itself (`network/flow.py`), and
only if it fits every node; the optimum is solved by HiGHS, without any table or map of the planner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from floodway.experiments.result import Criterion
from floodway.planning.lp import LinearProgram
from floodway.planning.plan import Planner
from floodway.planning.program import FEASIBILITY_TOLERANCE, Program
from floodway.planning.workload import Uniform, Workload

POINTS = 30
"""Rates drawn for each seed."""
MOST_SOLVED = 0.1
"""Share of look-ups that C-FIT may answer by a solve instead of its table."""


@dataclass(frozen=True, slots=True)
class PlannerErrors:
    """Errors of a planner relative to the optimum, over `points` overloaded rates; `load` is the fullest node's.

    `solved` is the share of the look-ups that were not answered by the table (C-FIT only).
    """

    points: int
    worst: float
    mean: float
    load: float
    solved: float

    def to_dict(self) -> dict[str, Any]:
        """For the measured values of a result."""
        return {
            "points": self.points,
            "worst error": round(self.worst, 6),
            "mean error": round(self.mean, 6),
            "fullest node": round(self.load, 6),
            "solved": round(self.solved, 4),
        }


def accuracy(planner: Planner, seeds: Sequence[int], workload: Workload | None = None) -> PlannerErrors:
    """Errors at `POINTS` rates for each seed, drawn from the workload or evenly from the whole rate space.

    Rates that overload nothing count as points without error in the mean: the expected error is over all rates.
    """
    program = planner.program
    space = workload or Uniform(_tops(program))
    optimum = LinearProgram(program)
    errors: list[float] = []
    overloaded, load, before = 0, 0.0, getattr(planner, "solved", 0)
    for seed in seeds:
        for rates in space.sample(POINTS, np.random.default_rng([seed, 2007])):
            if not program.overloaded(rates):
                errors.append(0.0)
                continue
            overloaded += 1
            plan = planner.plan(dict(zip(program.network.streams, rates.tolist(), strict=True)))
            best = program.score(optimum.solve(rates)[0])
            errors.append(1.0 - plan.score / best if best > 0 else 0.0)
            load = max(load, *plan.load.values())
    solved = (getattr(planner, "solved", 0) - before) / max(overloaded, 1)
    return PlannerErrors(overloaded, max(errors, default=1.0), float(np.mean(errors)), load, solved)


def within(name: str, epsilon: float, found: Iterable[PlannerErrors]) -> Criterion:
    """Every plan earns at least (1 − ε) of the optimum and fits every node; C-FIT reads nearly all from its table."""
    every = list(found)
    worst, load = max(one.worst for one in every), max(one.load for one in every)
    solved = max(one.solved for one in every)
    points = min(one.points for one in every)
    met = worst <= epsilon * (1 + 1e-9) and load <= 1 + FEASIBILITY_TOLERANCE and solved <= MOST_SOLVED and points > 0
    text = f"{name}'s plans are feasible and within {epsilon:.0%} of the linear program at rates drawn anew"
    return Criterion(
        text, met, f"worst error {worst:.2%}, fullest node {load:.4f}, {solved:.0%} solved, {points} points or more"
    )


def _tops(program: Program) -> list[float]:
    """The bound of the rate space; a stream without one reaches as far as its rates are of use."""
    bounds = zip(program.network.streams.values(), program.max_feasible_rates.tolist(), strict=True)
    return [feasible if stream.max_rate is None else stream.max_rate for stream, feasible in bounds]
