"""Figure 11: Solver-W under workloads of growing rates, and on systems provisioned better and better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.experiments.plots import PALETTE, Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import FIGURE_9, SOURCE, figure9
from floodway.experiments.staying_fit.plan_errors import accuracy
from floodway.planning.program import Program
from floodway.planning.solver_w import SolverWPlanner
from floodway.planning.workload import Empirical, Exponential
from floodway.simulation.arrivals import read_trace

TITLE = "Effect of workload distribution and provision level on Solver-W"
CLAIM = Claim(
    SOURCE,
    "Figure 11",
    "plan generation takes longer as λ and the imbalance grow, and less as the system is provisioned better",
)
THRESHOLD = 0.01
LAMBDAS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
COSTS = (64, 56, 48, 40, 32, 24, 16)
"""ms of the dearer operator of Figure 9(b), scaled down; the cheaper one costs half."""
FIRST_LEVEL = 0.2
"""Provision level of the first system, the paper's "about 20%"."""
SAMPLES = 4000


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Solver calls for an expected error of 1%; part (c) on a trace if one is given, else on generated traffic."""
    by_lambda: dict[str, list[int]] = {}
    for place, costs in enumerate(FIGURE_9, 1):
        program = Program(figure9(*costs))
        by_lambda[f"({costs[0]}, {costs[1]})"] = [
            _calls(program, Exponential([mean] * len(program.streams))) for mean in LAMBDAS
        ]
        progress(0.6 * place / len(FIGURE_9))
    samples, traffic = scaled_traffic(trace, seeds[0] if seeds else 1)
    levels: list[float] = []
    calls: list[int] = []
    errors: list[float] = []
    for place, cost in enumerate(COSTS, 1):
        program, workload = Program(figure9(cost, cost / 2)), Empirical(samples)
        levels.append(provision_level(program, samples))
        planner = SolverWPlanner(program, THRESHOLD, workload=workload, clamp=False, mix=False)
        calls.append(planner.lp_calls)
        errors.append(accuracy(planner, seeds, workload).mean)
        progress(0.6 + 0.4 * place / len(COSTS))
    rises = all(row == sorted(row) and row[0] < row[-1] for row in by_lambda.values())
    at_ten = [row[-1] for row in by_lambda.values()]
    falls = calls == sorted(calls, reverse=True) and calls[-1] < calls[0]
    measured: dict[str, Any] = {
        "lambda": list(LAMBDAS),
        "solver calls by lambda": by_lambda,
        "traffic": traffic,
        "provision level": levels,
        "solver calls by provision": calls,
        "mean error at rates of the workload": [round(error, 6) for error in errors],
    }
    return Result(
        measured=measured,
        criteria=(
            Criterion("calls rise with λ on every network", rises, str(by_lambda)),
            Criterion("calls at λ = 10 rise with imbalance", at_ten == sorted(at_ten), str(at_ten)),
            Criterion("calls fall as the system is provisioned better", falls, str(calls)),
            Criterion(
                f"the mean error at rates drawn from the workload is at most {THRESHOLD:.0%}",
                max(errors) <= THRESHOLD,
                f"{max(errors):.2%}",
            ),
        ),
        where="computation",
        notes=(
            "λ is the mean rate: the paper says that more rates lie above the feasibility boundary as λ grows.",
            f"Expected error {THRESHOLD:.0%}, rates not clamped, as in the paper.",
            f"Part (c) on {traffic}; the paper's own trace is not to be had. Each stream reads it shifted, scaled so "
            f"that the first system is provisioned for {FIRST_LEVEL:.0%} of the rates.",
        ),
        headline=f"λ = 1…10: {by_lambda['(88, 8)'][0]}…{by_lambda['(88, 8)'][-1]} calls on (88, 8); provision "
        f"{levels[0]:.0%}…{levels[-1]:.0%}: {calls[0]}…{calls[-1]} calls",
        plots={"staying-fit-fig11": lambda: _draw(by_lambda, samples, levels, calls, traffic)},
    )


def _calls(program: Program, workload: Exponential | Empirical) -> int:
    return SolverWPlanner(program, THRESHOLD, workload=workload, clamp=False, mix=False).lp_calls


def scaled_traffic(trace: Path | None, seed: int) -> tuple[NDArray[np.float64], str]:
    """Rates of two streams, scaled to the first provision level, and what they are."""
    generator = np.random.default_rng(seed)
    if trace is None:
        shape, name = generator.exponential(1.0, (SAMPLES, 2)), "generated exponential rates"
    else:
        read = read_trace(trace)
        spread = Empirical.of_trace(read.counts.astype(np.float64), 2, means=[1.0, 1.0])
        shape, name = spread.sample(SAMPLES, generator), read.name
    program = Program(figure9(COSTS[0], COSTS[0] / 2))
    low, high = 0.1, 1000.0
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if provision_level(program, shape * middle) > FIRST_LEVEL else (low, middle)
    return shape * low, name


def provision_level(program: Program, samples: NDArray[np.float64]) -> float:
    """Share of the rates that the system bears without dropping."""
    return float(np.mean([not program.overloaded(rates) for rates in samples]))


def _draw(
    by_lambda: dict[str, list[int]],
    samples: NDArray[np.float64],
    levels: list[float],
    calls: list[int],
    traffic: str,
) -> Figure:
    figure, axes = panels(1, 3, width=13.0, height=3.6)
    lines(axes[0], LAMBDAS, dict(by_lambda), marker="o")
    axes[0].set_yscale("log")
    style(axes[0], title="(a) Workload", x="λ: mean rate (tuples/s)", y="solver calls", legend=True)
    axes[1].hist(samples[:, 0], bins=60, color=PALETTE[0])
    style(axes[1], title=f"(b) Rates: {traffic}", x="tuples/s", y="samples")
    lines(axes[2], [100 * level for level in levels], {"Solver-W": calls}, marker="o")
    style(axes[2], title="(c) Provisioning", x="rates borne without dropping (%)", y="solver calls")
    return figure
