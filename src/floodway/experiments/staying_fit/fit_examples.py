"""The short paper's FIT examples: node B of Figure 1, its spreads, feasible points and two look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from floodway.experiments.plots import FAINT, PALETTE, Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.fit.leaf import leaf_table
from floodway.planning.fit.spread import absolute_spreads, steps
from floodway.planning.fit.table import FitTable, without_dominated
from floodway.planning.program import Program

TITLE = "Feasible Input Table of node B"
CLAIM = Claim(
    "fit-short",
    "Section 3 and Figure 2",
    "spreads (0.1, 0.05), 46 entries, best (0, 1.0) with score 1.0; (0.2, 0.35) is not overloaded; (0.5, 0.5) takes "
    "the row (0.15, 0.5) with load 0.95 and score 0.575, a drop of 0.7 on the first input",
)
EPSILON = 0.1
PRINTED_ROWS = 46
COSTS = (3.0, 1.0)


def node_b() -> Program:
    """Node B alone. These examples need selectivity 0.5 on the first chain; Table 1 needs 1."""
    operators = {
        "b1": Operator("b1", "B", ("s1",), cost=COSTS[0], selectivity=0.5),
        "b2": Operator("b2", "B", ("s2",), cost=COSTS[1]),
    }
    streams = {"s1": Stream("s1", 1.0), "s2": Stream("s2", 1.0)}
    outputs = {"q1": Output("q1", "b1"), "q2": Output("q2", "b2")}
    return Program(Network("node-b", streams, {"B": Node("B")}, operators, outputs))


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Every number of the section from the tables themselves."""
    program = node_b()
    tops = program.max_feasible_rates
    spreads = absolute_spreads(EPSILON, program.objective)
    table = leaf_table(program, [steps(float(s), float(t)) for s, t in zip(spreads, tops, strict=True)])
    best = int(table.scores.argmax())
    other = leaf_table(program, [steps(0.05, float(tops[0])), steps(0.1, float(tops[1]))])
    observed = np.array([0.5, 0.5])
    row, score = other.best(observed, program.objective)
    plain = _plain_rows(spreads.tolist())
    progress(1.0)
    measured: dict[str, Any] = {
        "maximum rates": tops.tolist(),
        "spreads": spreads.tolist(),
        "rows": len(table),
        "rows in plain floating point": plain,
        "rows on the boundary": int(np.isclose(table.loads, 1.0).sum()),
        "rows printed": PRINTED_ROWS,
        "rows without dominated ones": len(without_dominated(table)),
        "best row": [*table.rates[best].tolist(), float(table.scores[best])],
        "(0.2, 0.35) overloaded": not table.covers(np.array([0.2, 0.35])),
        "(0.5, 0.5)": {
            "row": other.rates[row].tolist(),
            "load": float(other.loads[row]),
            "score": score,
            "drop": float(1 - other.rates[row][0] / observed[0]),
        },
    }
    wanted = [0.1, 0.05, 0.0, 1.0, 1.0, 0.15, 0.5, 0.95, 0.575, 0.7]
    look = measured["(0.5, 0.5)"]
    found = [*spreads, *measured["best row"], *look["row"], look["load"], look["score"], look["drop"]]
    numbers = ", ".join(f"{float(value):.4g}" for value in found)
    return Result(
        measured=measured,
        criteria=(
            Criterion("spreads, best entry and look-up as printed", bool(np.allclose(found, wanted)), numbers),
            Criterion(
                "46 entries in plain floating point, as printed; 48 in exact arithmetic",
                plain == PRINTED_ROWS and len(table) == 48,
                f"{plain} and {len(table)}",
            ),
            Criterion("(0.2, 0.35) is not overloaded", not measured["(0.2, 0.35) overloaded"]),
        ),
        where="computation",
        notes=(
            "In exact arithmetic 48 points are feasible. The paper prints 46: two of the four on the boundary are lost "
            "if sample points are made by adding up the step in double precision.",
        ),
        headline=f"{len(table)} rows (printed: {PRINTED_ROWS}), best (0, 1) with score {table.scores[best]:.3g}; "
        f"(0.5, 0.5) takes ({look['row'][0]:.3g}, {look['row'][1]:.3g}), score {score:.4g}, drop {look['drop']:.2g}",
        plots={"staying-fit-fit-examples": lambda: _draw(table)},
    )


def _plain_rows(spreads: list[float]) -> int:
    """Feasible points counted without care for rounding: sample points by repeated addition, loads compared with 1."""
    points = [
        list(accumulate([spread] * round(1 / cost / spread), initial=0.0))
        for cost, spread in zip(COSTS, spreads, strict=True)
    ]
    return sum(COSTS[0] * first + COSTS[1] * second <= 1.0 for first in points[0] for second in points[1])


def _draw(table: FitTable) -> Figure:
    figure, (axes,) = panels(width=5.6, height=4.0)
    edge = np.isclose(table.loads, 1.0)
    axes.plot([1 / 3, 0], [0, 1], color=FAINT, linewidth=1.4, label="load 1")
    inner, outer = table.rates[~edge], table.rates[edge]
    axes.plot(inner[:, 0], inner[:, 1], "o", ms=4, color=PALETTE[0], label="feasible")
    axes.plot(outer[:, 0], outer[:, 1], "o", ms=6, color=PALETTE[1], label="on the boundary")
    style(axes, title="Feasible points of node B", x="r1 (tuples/s)", y="r2 (tuples/s)", legend=True)
    return figure
