"""Tables that adapt to where the rates are: rows and error of C-FIT with and without knowledge of the workload.

Rates are those of recorded or generated traffic round a level at which the network is overloaded. The table adapted to
them is checked against the linear program at rates of the same traffic drawn anew, and at rates from the whole space,
where it is allowed to be coarse and the planner has to solve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.accuracy import PlannerErrors, accuracy, within
from floodway.experiments.staying_fit.networks import fan_out, figure9, many_inputs
from floodway.planning.fit.planner import FitPlanner
from floodway.planning.program import Program
from floodway.planning.workload import Empirical
from floodway.simulation.arrivals import binned, read_trace, self_similar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "C-FIT's tables adapted to where the rates are"
CLAIM = Claim(
    "fit-short", "Section 4", "tables can be large, and have to be kept small for upkeep and for the links they travel"
)
EPSILON = 0.02
LEVEL = 1.2
"""Mean rate of every stream, of what it can bring alone."""
FEWER = 0.25
SECONDS = 400.0


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Three networks: two chains, four inputs, and one split twenty times."""
    series, traffic = _series(trace, seeds[0])
    networks = (figure9(64, 32), many_inputs(4, 100.0), fan_out(20))
    rows: dict[str, tuple[int, int]] = {}
    inside: dict[str, PlannerErrors] = {}
    outside: dict[str, PlannerErrors] = {}
    for place, network in enumerate(networks, 1):
        program = Program(network)
        means = (LEVEL * program.max_feasible_rates).tolist()
        workload = Empirical.of_trace(series, len(means), means=means)
        whole, adapted = FitPlanner(program, EPSILON), FitPlanner(program, EPSILON, workload=workload)
        rows[network.name] = (whole.size, adapted.size)
        inside[network.name] = accuracy(adapted, seeds, workload)
        outside[network.name] = accuracy(adapted, seeds)
        progress(place / len(networks))
    shares = {name: small / large for name, (large, small) in rows.items()}
    elsewhere = max(found.worst for found in outside.values())
    return Result(
        id="staying-fit-adaptive",
        title=TITLE,
        paper=CLAIM,
        measured={
            "traffic": traffic,
            **{
                name: {
                    "rows": large,
                    "rows, adapted": small,
                    "where the rates go": inside[name].as_json(),
                    "whole rate space": outside[name].as_json(),
                }
                for name, (large, small) in rows.items()
            },
        },
        criteria=(
            Criterion(
                f"an adapted table has at most {FEWER:.0%} of the rows",
                max(shares.values()) <= FEWER,
                ", ".join(f"{name} {share:.1%}" for name, share in shares.items()),
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
            f"{name}: {large} → {small} rows, {inside[name].solved:.0%} of look-ups solved where the rates go, "
            f"{outside[name].solved:.0%} elsewhere"
            for name, (large, small) in rows.items()
        ),
        plots={"staying-fit-adaptive": lambda: _draw(rows)},
    )


def _series(trace: Path | None, seed: int) -> tuple[np.ndarray, str]:
    """Arrivals per bin, and what they are."""
    if trace is not None:
        return read_trace(trace).counts.astype(np.float64), trace.name
    times = self_similar(200.0, SECONDS, np.random.default_rng(seed))
    return binned(times, SECONDS).astype(np.float64), "generated self-similar traffic"


def _draw(rows: Mapping[str, tuple[int, int]]) -> Figure:
    from floodway.experiments.plots import PALETTE, panels, style

    figure, (axes,) = panels(1, 1, width=7.0)
    places = np.arange(len(rows))
    for index, name in enumerate(("for all rates", "adapted")):
        values = [pair[index] for pair in rows.values()]
        axes.bar(places + 0.4 * index, values, 0.4, color=PALETTE[index], label=name)
    axes.set_yscale("log")
    axes.set_xticks(places + 0.2, list(rows))
    style(axes, title="Rows of C-FIT's tables", x="network", y="rows", legend=True)
    return figure
