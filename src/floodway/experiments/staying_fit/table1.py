"""Table 1: five plans for the network of Figure 1, under the fair scheduler; the fourth is the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from floodway.experiments.plots import Figure, bars, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import SOURCE, figure1
from floodway.network.fair import fair
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program

TITLE = "Alternate load shedding plans for the motivating example"
CLAIM = Claim(SOURCE, "Table 1", "plan 4, rates (1/5, 2/5), removes all overload and has the highest throughput")

Row = tuple[str, str, str, str, str]
PRINTED: dict[str, Row] = {
    "0": ("1, 1", "3", "1/3, 1/3", "4/3", "1/4, 1/4"),
    "1": ("1/3, 1/3", "1", "1/3, 1/3", "4/3", "1/4, 1/4"),
    "2": ("1, 0", "1", "1, 0", "3", "1/3, 0"),
    "3": ("0, 1/2", "1", "0, 1/2", "1/2", "0, 1/2"),
    "4": ("1/5, 2/5", "1", "1/5, 2/5", "1", "1/5, 2/5"),
}
COLUMNS = ("rates kept", "A load", "A throughput", "B load", "B throughput")


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Every number of the table, as a fraction; plan 4 from the planner, the others as printed."""
    network = figure1()
    rates = {"s1": 1.0, "s2": 1.0}
    best = ExactPlanner(Program(network)).plan(rates)
    kept = {
        "0": (1.0, 1.0),
        "1": (1 / 3, 1 / 3),
        "2": (1.0, 0.0),
        "3": (0.0, 0.5),
        "4": (best.keeps["s1"], best.keeps["s2"]),
    }
    rows: dict[str, Row] = {}
    scores: dict[str, float] = {}
    for place, (plan, keeps) in enumerate(kept.items(), 1):
        served = fair(network, rates, {"s1": keeps[0], "s2": keeps[1]})
        rows[plan] = (
            _fractions(*keeps),
            _fractions(served.load["A"]),
            _fractions(*served.node_throughput["A"].values()),
            _fractions(served.load["B"]),
            _fractions(*served.node_throughput["B"].values()),
        )
        scores[plan] = served.score
        progress(place / len(kept))
    return Result(
        measured={
            "rows": {plan: dict(zip(COLUMNS, row, strict=True)) for plan, row in rows.items()},
            "printed": {plan: dict(zip(COLUMNS, row, strict=True)) for plan, row in PRINTED.items()},
            "score": scores,
        },
        criteria=(
            Criterion("all 25 entries as printed", rows == PRINTED, str(rows)),
            Criterion(
                "plan 4, found by the planner, has the highest throughput",
                max(scores, key=lambda plan: scores[plan]) == "4",
                str(scores),
            ),
        ),
        where="computation",
        headline=f"all {len(COLUMNS) * len(rows)} entries as printed: {rows == PRINTED}; plan 4 scores "
        f"{scores['4']:.4g}, the next best {max(s for p, s in scores.items() if p != '4'):.4g}",
        plots={"staying-fit-table1": lambda: _draw(scores)},
    )


def _fractions(*values: float) -> str:
    return ", ".join(str(Fraction(value).limit_denominator(1000)) for value in values)


def _draw(scores: dict[str, float]) -> Figure:
    figure, (axes,) = panels(width=5.6, height=3.2)
    bars(axes, [f"plan {plan}" for plan in scores], [[score] for score in scores.values()])
    style(axes, title="Total throughput of the five plans", x="", y="tuples/s")
    return figure
