"""Table 3: rows of a FIT and bytes a row with 2, 4 and 8 inputs at 10%, beside what is printed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import SOURCE, many_inputs
from floodway.experiments.staying_fit.plan_errors import PlannerErrors, accuracy, within
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.fit.direct import SpreadRule
from floodway.planning.fit.lattice import feasible_codes, rates_of
from floodway.planning.fit.node import NodeTable
from floodway.planning.fit.planner import FitPlanner
from floodway.planning.fit.spread import steps
from floodway.planning.fit.wire import encode_table
from floodway.planning.program import Program

TITLE = "Effect of dimensionality on the size of a FIT"
CLAIM = Claim(SOURCE, "Table 3", "46, 984 and 42472 entries of 52, 96 and 184 bytes for 2, 4 and 8 inputs at 10%")
PRINTED = {2: (46, 52), 4: (984, 96), 8: (42472, 184)}
EPSILON = 0.1


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Points 10% of the largest feasible rate apart: all feasible ones of one server, and of Figure 14's two."""
    measured: dict[str, dict[str, Any]] = {}
    checks: list[PlannerErrors] = []
    for place, (inputs, (rows, size)) in enumerate(PRINTED.items(), 1):
        program = Program(one_server(inputs))
        started = time.perf_counter()
        planner = FitPlanner(program, EPSILON, spread=SpreadRule.UNIFORM)
        seconds = time.perf_counter() - started
        two = FitPlanner(Program(many_inputs(inputs, 100.0)), EPSILON, spread=SpreadRule.UNIFORM)
        checks += [accuracy(planner, seeds), accuracy(two, seeds)]
        measured[str(inputs)] = {
            "rows of one server": planner.size,
            "rows of two servers": two.size,
            "rows printed": rows,
            "bytes a row": round(_bytes_a_row(program), 2),
            "bytes a row printed": size,
            "seconds": round(seconds, 4),
            "plans against the linear program": {"one server": checks[-2].to_dict(), "two": checks[-1].to_dict()},
        }
        progress(place / len(PRINTED))
    ours = [row["rows of one server"] for row in measured.values()]
    return Result(
        measured=measured,
        criteria=(
            Criterion(
                "as many entries as printed",
                all(row["rows of one server"] == row["rows printed"] for row in measured.values()),
                f"{ours} instead of {[rows for rows, _ in PRINTED.values()]}",
            ),
            Criterion("entries rise with the inputs", ours == sorted(ours) and ours[0] < ours[-1], str(ours)),
            Criterion(
                "an entry takes fewer bytes than printed",
                all(row["bytes a row"] < row["bytes a row printed"] for row in measured.values()),
                ", ".join(f"{row['bytes a row']:g} of {row['bytes a row printed']}" for row in measured.values()),
            ),
            within("C-FIT", EPSILON, checks),
        ),
        why="The printed counts follow from no reading of the text: all feasible points of one server, 10% of the "
        "largest feasible rate apart, are C(10+m, m) = 66, 1001, 43758; on two servers there are more",
        where="computation",
        notes=(
            "Bytes a row: 22·m + 8 in the paper; here as sent by fit_wire, with the header shared out over the rows.",
        ),
        headline=f"rows {ours[0]}, {ours[1]}, {ours[2]} (printed 46, 984, 42472); bytes a row "
        + ", ".join(f"{row['bytes a row']:.3g}" for row in measured.values())
        + " (printed 52, 96, 184)",
        plots={"staying-fit-table3": lambda: _draw(measured)},
    )


def one_server(inputs: int) -> Network:
    """Equal chains on one server."""
    names = [f"s{i}" for i in range(inputs)]
    operators = {f"o{i}": Operator(f"o{i}", "N", (name,), cost=0.128 / inputs) for i, name in enumerate(names)}
    outputs = {f"q{i}": Output(f"q{i}", f"o{i}") for i in range(inputs)}
    return Network(f"one-server-{inputs}", {n: Stream(n, 100.0) for n in names}, {"N": Node("N")}, operators, outputs)


def _bytes_a_row(program: Program) -> float:
    """A row as it travels: the table without its local plans, of which there are none here."""
    top = program.max_feasible_rates
    points = [steps(float(t) / 10, float(t)) for t in top]
    codes = feasible_codes(points, program.full_use / program.capacity[:, None], 10**6)
    if codes is None:
        return float("nan")
    rates = rates_of(points, codes)
    table = NodeTable(program.streams, rates, rates @ program.objective)
    return len(encode_table(table)) / len(table)


def _draw(measured: dict[str, dict[str, Any]]) -> Figure:
    figure, axes = panels(1, 2, width=9.6, height=3.4)
    inputs = [int(name) for name in measured]
    rows = {"one server": "rows of one server", "two servers": "rows of two servers", "printed": "rows printed"}
    lines(axes[0], inputs, {n: [row[k] for row in measured.values()] for n, k in rows.items()}, marker="o")
    axes[0].set_yscale("log")
    size = {"Floodway": "bytes a row", "printed": "bytes a row printed"}
    lines(axes[1], inputs, {n: [row[k] for row in measured.values()] for n, k in size.items()}, marker="o")
    style(axes[0], title="Rows at 10%", x="inputs", y="rows", legend=True)
    style(axes[1], title="Wire size", x="inputs", y="bytes a row", legend=True)
    axes[1].set_ylim(bottom=0)
    return figure
