"""Figures 3 and 7: a split with branches of cost 2 and 5, and what local plans make of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import SOURCE
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.exact import ExactPlanner
from floodway.planning.fit.leaf import greedy_order, leaf_table
from floodway.planning.program import Program, Vector

TITLE = "Complementary local plans for a split"
CLAIM = Claim(
    SOURCE,
    "Figure 7",
    "drop from the lower branch before the input; r = 1/8 needs no plan, r = 1/3 is feasible with one; at r = 0.2 shed "
    "60% of the lower branch for a score of 0.28, against 0.25 by input drops (37.5%)",
)


def split() -> Network:
    """Shared operator of cost 1, branches of cost 2 and 5, all selectivities 1."""
    operators = {
        "shared": Operator("shared", "N", ("s",), cost=1.0),
        "top": Operator("top", "N", ("shared",), cost=2.0),
        "bottom": Operator("bottom", "N", ("shared",), cost=5.0),
    }
    outputs = {"q1": Output("q1", "top"), "q2": Output("q2", "bottom")}
    return Network("split", {"s": Stream("s", 1.0)}, {"N": Node("N")}, operators, outputs)


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """The greedy order, both limits and the plan at r = 0.2, beside the linear program's optimum."""
    program = Program(split())
    order = greedy_order(program)
    points = np.append(np.arange(0, 401) / 1000, [1 / 8, 1 / 3])
    table = leaf_table(program, [np.unique(points)])
    free = np.ones(len(table), dtype=bool) if table.plans is None else np.isinf(table.plans).all(axis=1)
    at = int(np.argmin(np.abs(table.rates[:, 0] - 0.2)))
    kept = float(table.plans[at][np.isfinite(table.plans[at])][0]) if table.plans is not None else 0.2
    exact = ExactPlanner(program)
    worst = max(abs(exact.optimum(r) - s) for r, s in zip(table.rates, table.scores, strict=True))
    by_input = program.max_feasible_rates[0]
    measured = {
        "order": list(order),
        "limit without a plan": float(table.rates[free, 0].max()),
        "limit with a plan": float(table.rates[:, 0].max()),
        "drop of the lower branch at 0.2": 1 - kept / 0.2,
        "score at 0.2": float(table.scores[at]),
        "score by input drops": float(2 * by_input),
        "input drop": float(1 - by_input / 0.2),
        "largest difference to the optimum": float(worst),
    }
    progress(1.0)
    wanted = [1 / 8, 1 / 3, 0.6, 0.28, 0.25, 0.375, 0.0]
    found = [value for value in measured.values() if isinstance(value, float)]
    return Result(
        measured=measured,
        criteria=(
            Criterion(
                "the lower branch is dropped from before the input", order == ("shared->bottom", "s"), str(order)
            ),
            Criterion(
                "limits, drops and scores as printed, and equal to the linear program's optimum",
                bool(np.allclose(found, wanted, atol=1e-7)),
                ", ".join(f"{value:.4g}" for value in found),
            ),
        ),
        where="computation",
        notes=("The greedy local plans equal the optimum of the linear program at every rate up to 1/3.",),
        headline=f"order {' then '.join(order)}; limits {measured['limit without a plan']:.4g} and "
        f"{measured['limit with a plan']:.4g}; score {measured['score at 0.2']:.3g} at 0.2 against 0.25",
        plots={"staying-fit-split-example": lambda: _draw(table.rates[:, 0], table.scores)},
    )


def _draw(rates: Vector, scores: Vector) -> Figure:
    figure, (axes,) = panels(width=5.6, height=3.4)
    lines(axes, rates, {"with local plans": scores, "input drops only": np.minimum(2 * rates, 0.25)})
    style(axes, title="Score of the split", x="input rate (tuples/s)", y="throughput (tuples/s)", legend=True)
    return figure
