"""Figure 15: how many rows a FIT has, and how many must be sent again after a change.

(a) rows against ε and load; (b) share of rows to send again when a selectivity falls; (c) when load moves from parent
to child. A new row can stay unsent if the parent has an old row that is still feasible, that asks for no more of any
input, and whose score as the parent knows it is within the allowed difference both of the truth and of the new row's
score.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import SOURCE
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.planning.fit.leaf import leaf_table
from floodway.planning.fit.spread import percent_points, steps
from floodway.planning.fit.table import FitTable
from floodway.planning.program import FEASIBILITY_TOLERANCE, Program

TITLE = "What a FIT costs to keep and to send"
CLAIM = Claim(
    SOURCE,
    "Figure 15",
    "rows fall with ε and rise as the load falls; more rows are sent again for a larger change of selectivity or "
    "more load moved, fewer if a larger difference in score is allowed",
)
LOADS_MS = ((64, 32), (56, 28), (48, 24), (40, 20), (32, 16))
EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2)
SPACE = 100.0
SELECTIVITIES = (0.9, 0.8, 0.6, 0.4, 0.2)
MOVED_MS = (4, 8, 16, 24)
DIFFERENCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
TABLE_EPSILON = 0.1


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Leaf tables of two chains before and after each change."""
    rows = {f"{a}, {b}": [len(_even(a, b, epsilon)) for epsilon in EPSILONS] for a, b in LOADS_MS}
    progress(1 / 3)
    before = _table(_node((32, 32), (32, 32), 1.0))
    selectivity = {}
    for value in SELECTIVITIES:
        program = _node((32, 32), (32, 32), value)
        selectivity[f"{value:g}"] = _shares(before, program)
    progress(2 / 3)
    moved = {}
    for amount in MOVED_MS:
        program = _node((8 + amount, 0), (32, 0), 1.0)
        moved[f"{amount}"] = _shares(_table(_node((8, 0), (32, 0), 1.0)), program)
    progress(1.0)
    by_epsilon = all(more > less for counts in rows.values() for more, less in pairwise(counts))
    by_load = all(light > heavy for heavy, light in pairwise(counts[0] for counts in rows.values()))
    return Result(
        measured={
            "rows": {"epsilon": list(EPSILONS), **rows},
            "selectivity change": {"allowed difference": list(DIFFERENCES), **selectivity},
            "load moved (ms)": {"allowed difference": list(DIFFERENCES), **moved},
        },
        criteria=(
            Criterion("rows fall with ε at every load", by_epsilon, str(rows)),
            Criterion("rows at 1% rise as the load falls", by_load, str(rows)),
            Criterion(
                "more rows for a larger change of selectivity, fewer for a larger difference", _rises(selectivity)
            ),
            Criterion("more rows for more load moved, fewer for a larger difference", _rises(moved)),
        ),
        where="computation",
        notes=(
            "(a) Points ε·100/m tuples/s apart in a rate space of 100 tuples/s a stream; costs in ms of two chains.",
            "(b) Two chains of two operators of 32 ms each; the first operator's selectivity falls from 1.",
            "(c) Chains of 8 and 32 ms on the child; load moves from the parent to the first. The paper's networks are "
            "not printed in full, so sizes are a choice; judged on the orderings.",
        ),
        headline=f"rows at 1%: {rows['64, 32'][0]} at (64, 32) ms, {rows['32, 16'][0]} at half the load; sent again "
        f"at a difference of 5%: {100 * selectivity['0.9'][2]:.0f}% for selectivity 0.9, "
        f"{100 * selectivity['0.4'][2]:.0f}% for 0.4; "
        f"{100 * moved['4'][2]:.0f}% for 4 ms moved, {100 * moved['24'][2]:.0f}% for 24",
        plots={"staying-fit-fig15": lambda: _draw(rows, selectivity, moved)},
    )


def _node(first_ms: tuple[float, float], second_ms: tuple[float, float], selectivity: float) -> Program:
    """Two chains of two operators (cost 0: left out) on one server; `selectivity` of the very first operator."""
    operators: dict[str, Operator] = {}
    outputs: dict[str, Output] = {}
    for i, costs in enumerate((first_ms, second_ms), 1):
        source = f"s{i}"
        for place, cost in enumerate(costs):
            if cost > 0:
                name = f"o{i}{place}"
                value = selectivity if (i, place) == (1, 0) else 1.0
                operators[name] = Operator(name, "N", (source,), OperatorKind.DELAY, cost / 1000, value)
                source = name
        outputs[f"q{i}"] = Output(f"q{i}", source)
    streams = {f"s{i}": Stream(f"s{i}", SPACE) for i in (1, 2)}
    return Program(Network("node", streams, {"N": Node("N")}, operators, outputs))


def _even(first_ms: float, second_ms: float, epsilon: float) -> FitTable:
    program = _node((first_ms, 0), (second_ms, 0), 1.0)
    tops = np.minimum(program.max_feasible_rates, SPACE)
    return leaf_table(program, [steps(epsilon * SPACE / 2, float(top)) for top in tops])


def _table(program: Program) -> FitTable:
    return leaf_table(program, [percent_points(TABLE_EPSILON, float(t), 2) for t in program.max_feasible_rates])


def _shares(old: FitTable, program: Program) -> list[float]:
    """Share of the new table's rows to send, for each allowed difference."""
    new = _table(program)
    feasible = np.all(old.rates @ program.full_use.T <= program.capacity * (1 + FEASIBILITY_TOLERANCE), axis=1)
    truth = old.rates @ program.objective
    return [_share(old.take(feasible), truth[feasible], new, difference) for difference in DIFFERENCES]


def _share(old: FitTable, truth: Any, new: FitTable, difference: float) -> float:
    sound = np.abs(old.scores - truth) <= difference * truth + 1e-12
    rates = np.vstack([old.rates[sound], new.rates])
    scores = np.concatenate([old.scores[sound], new.scores])
    have = np.arange(len(rates)) < int(sound.sum())
    sent = 0
    # Small rows first: a small row may stand in for larger ones, never the other way round.
    for i in np.argsort(new.scores, kind="stable"):
        fits = np.all(rates <= new.rates[i] * (1 + 1e-9), axis=1) & (scores >= new.scores[i] * (1 - difference) - 1e-12)
        if not np.any(have & fits):
            have[int(sound.sum()) + i] = True
            sent += 1
    return round(sent / len(new), 4)


def _rises(shares: dict[str, list[float]]) -> bool:
    """More is sent for larger changes at every difference, and less for larger differences at every change.

    Grids shift with each change, so neighbouring curves may touch: compared are the first and the last.
    """
    curves = list(shares.values())
    by_change = sum(curves[-1]) > sum(curves[0])
    return by_change and all(more >= less - 0.02 for curve in curves for more, less in pairwise(curve))


def _draw(rows: dict[str, list[int]], selectivity: dict[str, list[float]], moved: dict[str, list[float]]) -> Figure:
    figure, axes = panels(1, 3, width=13.0, height=3.6)
    lines(axes[0], [100 * e for e in EPSILONS], {f"({name}) ms": v for name, v in rows.items()}, marker="o")
    axes[0].set_yscale("log")
    percent = [100 * d for d in DIFFERENCES]
    down: dict[str, ArrayLike] = {
        f"1 → {name}": [100 * share for share in shares] for name, shares in selectivity.items()
    }
    lines(axes[1], percent, down, marker="o")
    over: dict[str, ArrayLike] = {f"{name} ms": [100 * share for share in shares] for name, shares in moved.items()}
    lines(axes[2], percent, over, marker="o")
    style(axes[0], title="(a) Rows", x="ε (%)", y="rows", legend=True)
    style(axes[1], title="(b) Selectivity change", x="allowed difference (%)", y="rows sent again (%)", legend=True)
    style(
        axes[2], title="(c) Load moved to the child", x="allowed difference (%)", y="rows sent again (%)", legend=True
    )
    return figure
