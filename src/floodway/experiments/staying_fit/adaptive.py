"""Tables that adapt to where the rates are: rows and error of C-FIT with and without knowledge of the workload.

Rates are those of recorded or generated traffic round a level at which the network is overloaded. A table is adapted to
the first half of that traffic and checked against the linear program at rates of the second, and at rates from the
whole space, where it is allowed to be coarse and the planner has to solve.

The long paper (8.2.5) makes tables smaller by one larger ε for all rates. So what adapting brings is compared with
that: tables of every coarser ε, of which those count that are within the given error where the rates go, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from floodway.experiments.plots import PALETTE, Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import fan_out, figure9, many_inputs
from floodway.experiments.staying_fit.plan_errors import PlannerErrors, accuracy, within
from floodway.planning.fit.planner import FitPlanner
from floodway.planning.program import Program
from floodway.planning.workload import Empirical
from floodway.simulation.arrivals import binned, read_trace, self_similar

TITLE = "C-FIT's tables adapted to where the rates are"
CLAIM = Claim(
    "fit-short",
    "Section 4",
    "tables can be large, and have to be kept small for upkeep and for the links they travel; ε can be adapted for "
    "that (long paper, 8.2.5)",
)
EPSILON = 0.02
LEVEL = 1.2
"""Mean rate of every stream, of what it can bring alone."""
COARSER = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""What tables for all rates are made with, as multiples of ε."""
SECONDS = 400.0


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Three networks: two chains, four inputs, and one split twenty times."""
    before, after, traffic = _halves(trace, seeds[0])
    networks = (figure9(64, 32), many_inputs(4, 100.0), fan_out(20))
    rows: dict[str, dict[str, int]] = {}
    inside: dict[str, PlannerErrors] = {}
    outside: dict[str, PlannerErrors] = {}
    for place, network in enumerate(networks, 1):
        program = Program(network)
        means = LEVEL * program.max_feasible_rates
        known, later = (
            Empirical.of_trace(part, len(means), means=(part.mean() * means).tolist()) for part in (before, after)
        )
        adapted = FitPlanner(program, EPSILON, workload=known)
        inside[network.name] = accuracy(adapted, seeds, later)
        outside[network.name] = accuracy(adapted, seeds)
        rows[network.name] = {
            "for all rates": FitPlanner(program, EPSILON).size,
            "coarser for all rates": _fewest(program, seeds, later),
            "adapted": adapted.size,
        }
        progress(place / len(networks))
    elsewhere = max(found.worst for found in outside.values())
    return Result(
        measured={
            "traffic": traffic,
            **{
                name: {
                    "rows": found,
                    "where the rates go": inside[name].to_dict(),
                    "whole rate space": outside[name].to_dict(),
                }
                for name, found in rows.items()
            },
        },
        criteria=(
            Criterion(
                f"no table of a coarser ε for all rates has as few rows and is within {EPSILON:.0%} where the rates go",
                all(found["adapted"] < found["coarser for all rates"] for found in rows.values()),
                ", ".join(
                    f"{name}: {found['adapted']} and {found['coarser for all rates']}" for name, found in rows.items()
                ),
            ),
            within("the adapted table", EPSILON, inside.values()),
            Criterion(
                f"elsewhere its planner is within {EPSILON:.0%} too, by solving",
                elsewhere <= EPSILON * (1 + 1e-9),
                f"{elsewhere:.2%}",
            ),
        ),
        where="computation",
        notes=(
            "The paper asks for smaller tables and does not say how; adapting them to the workload is ours.",
            f"Rates of {traffic}, scaled to a mean of {LEVEL:g} times what a stream can bring alone; ε = {EPSILON:g}.",
        ),
        headline="; ".join(
            f"{name}: {found['for all rates']} → {found['adapted']} rows "
            f"({found['coarser for all rates']} by a coarser ε), "
            f"{inside[name].solved:.0%} of look-ups solved where the rates go, "
            f"{outside[name].solved:.0%} elsewhere"
            for name, found in rows.items()
        ),
        plots={"staying-fit-adaptive": lambda: _draw(rows)},
    )


def _fewest(program: Program, seeds: Sequence[int], workload: Empirical) -> int:
    """Rows of the smallest table of one ε for all rates that is within EPSILON at this workload's."""
    fewest = []
    for factor in COARSER:
        planner = FitPlanner(program, min(factor * EPSILON, 0.99))
        if within("", EPSILON, [accuracy(planner, seeds, workload)]).met:
            fewest.append(planner.size)
    return min(fewest)


def _halves(trace: Path | None, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Arrivals per bin over their mean, in the first half of the traffic and in the second, and what they are."""
    if trace is not None:
        series, name = read_trace(trace).counts.astype(np.float64), trace.name
    else:
        times = self_similar(200.0, SECONDS, np.random.default_rng(seed))
        series, name = binned(times, SECONDS).astype(np.float64), "generated self-similar traffic"
    middle = len(series) // 2
    return series[:middle] / series.mean(), series[middle:] / series.mean(), name


def _draw(rows: Mapping[str, Mapping[str, int]]) -> Figure:
    figure, (axes,) = panels(1, 1, width=7.0)
    places = np.arange(len(rows))
    for index, name in enumerate(("for all rates", "coarser for all rates", "adapted")):
        values = [found[name] for found in rows.values()]
        axes.bar(places + 0.25 * index, values, 0.25, color=PALETTE[index], label=name)
    axes.set_yscale("log")
    axes.set_xticks(places + 0.25, list(rows))
    style(axes, title="Rows of C-FIT's tables", x="network", y="rows", legend=True)
    return figure
