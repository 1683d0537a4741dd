"""Sections 6.2 and 6.3 as printed: tables carried from child to parent row by row: chain, children, union, join.

Floodway's own D-FIT keeps mixtures of rows instead (docs/decisions/0057). Here the papers' operations run as they are
written: the leaf's sample points, the feasibility triangle, division by selectivities, the largest of a split's
branches, pairs of rates before a union or a join, the parent's load, and the merging of similar rows. Each table is
then looked up at rates drawn anew, by the papers' rule (some row at most the observed rates everywhere) and by
Floodway's (every row applied as min(F, r)).

Merging children's tables and carrying them from a node's outputs to its inputs (short paper 3.3, long paper 6.3).

several children   cross product of rows, scores added, filtered by the node's own load
chain              input rate = output rate / selectivity
split              the largest of the branches' input rates; what is too much is dropped on the other branches
union, join        all pairs (r1, r2) on a grid with a1·r1 + a2·r2 = r
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from floodway.errors import PlanningError
from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import SOURCE, figure1
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.planning.fit.leaf import leaf_table
from floodway.planning.fit.spread import percent_points
from floodway.planning.fit.table import FitTable, outside_triangle, without_dominated, without_similar
from floodway.planning.lp import LinearProgram
from floodway.planning.program import FEASIBILITY_TOLERANCE, Program, Vector

MOST_ROWS = 2_000_000


def merge_tables(tables: Sequence[FitTable]) -> FitTable:
    """Every row of each table with every row of the others; scores add up.

    Children run on machines of their own, so their loads are set to zero: what counts next is this node's load.
    """
    merged = tables[0]
    for table in tables[1:]:
        if len(merged) * len(table) > MOST_ROWS:
            raise PlanningError(
                f"merging tables of {len(merged)} and {len(table)} rows makes more than {MOST_ROWS}",
                hint="Thin the tables first (without_dominated, without_similar), or use the exact planner",
            )
        left = np.repeat(np.arange(len(merged)), len(table))
        right = np.tile(np.arange(len(table)), len(merged))
        merged = FitTable(
            inputs=merged.inputs + table.inputs,
            rates=np.column_stack([merged.rates[left], table.rates[right]]),
            scores=merged.scores[left] + table.scores[right],
            loads=np.zeros(len(left)),
        )
    return replace(merged, loads=np.zeros(len(merged)), plans=None)


def through_chain(table: FitTable, inputs: Sequence[str], selectivity: Vector) -> FitTable:
    """Rows in terms of inputs whose tuples reach the table's own through paths of these selectivities."""
    return replace(table, inputs=tuple(inputs), rates=table.rates / selectivity)


def through_split(table: FitTable, sources: Sequence[str]) -> FitTable:
    """Columns fed by one source become one: the maximum. Branches that need less get the rest dropped locally.

    `sources` names for every column what feeds it; columns are already in terms of that source's rate.
    """
    names = tuple(dict.fromkeys(sources))
    member = np.array([[source == name for source in sources] for name in names])
    rates = np.stack([table.rates[:, columns].max(axis=1) for columns in member], axis=1)
    arriving = rates[:, [names.index(source) for source in sources]]
    less = table.rates < arriving * (1 - 1e-12)
    plans = np.where(less, table.rates, np.inf)
    return replace(
        table,
        inputs=names,
        rates=rates,
        plans=plans if less.any() else None,
    )


def through_pair(
    table: FitTable, column: int, inputs: tuple[str, str], contribution: tuple[float, float], points: Vector
) -> FitTable:
    """A union or join in front of `column`: all (r1, r2) with a1·r1 + a2·r2 = r, r1 on the grid `points`.

    Union: a = (1, 1). Join with count windows w and selectivity s: a = (s·w2, s·w1). Each row also gets the pair with
    r2 = 0, so that both ends of its line are there.
    """
    first, second = contribution
    target = table.rates[:, column]
    most = target / first
    grid = np.minimum(points[None, :], most[:, None])
    grid = np.column_stack([grid, most])
    fresh = np.ones(grid.shape, dtype=bool)
    fresh[:, 1:-1] = points[None, 1:] < most[:, None] * (1 - 1e-12)
    fresh[:, -1] = most > 0
    row, sample = np.nonzero(fresh)
    one = grid[row, sample]
    two = np.maximum(target[row] - first * one, 0.0) / second
    rates = np.column_stack([table.rates[row, :column], one, two, table.rates[row, column + 1 :]])
    names = (*table.inputs[:column], *inputs, *table.inputs[column + 1 :])
    return replace(table.take(row), inputs=names, rates=rates)


def within_load(table: FitTable, cost: Vector) -> FitTable:
    """Rows that this node's own operators can take; `cost` is CPU-seconds per tuple of each input, all it triggers."""
    loads = table.rates @ cost
    fits = loads <= 1 + FEASIBILITY_TOLERANCE
    return replace(table, loads=loads).take(fits)


TITLE = "Tables carried from child to parent, row by row"
CLAIM = Claim(
    SOURCE,
    "Sections 6.2 and 6.3",
    "a node whose table is made from its children's sheds for itself and its subtree within ε of the optimum; rows "
    "inside the feasibility triangle and rows that are alike can be left out",
)
EPSILON = 0.05
POINTS = 40
"""Rates drawn for each seed."""
WINDOWS, MATCHES = (4.0, 2.0), 0.1
"""Count windows and selectivity of the join."""


@dataclass(frozen=True)
class Case:
    """A network of two levels, its parent's table from the children's, and the score of a row at observed rates."""

    network: Network
    table: Callable[[float], FitTable]
    score: Callable[[FitTable, Vector], Vector]


def leaf(costs: Sequence[float], epsilon: float) -> FitTable:
    """The table of a leaf with one operator per input, at points ε apart (percent error)."""
    operators = {f"o{i}": Operator(f"o{i}", "N", (f"s{i}",), cost=cost) for i, cost in enumerate(costs)}
    streams = {f"s{i}": Stream(f"s{i}") for i in range(len(costs))}
    outputs = {f"q{i}": Output(f"q{i}", f"o{i}") for i in range(len(costs))}
    program = Program(Network("leaf", streams, {"N": Node("N")}, operators, outputs))
    return leaf_table(program, [percent_points(epsilon, float(t), len(costs)) for t in program.max_feasible_rates])


def chain_case() -> Case:
    """Figure 1: B's table, without the triangle that no boundary can cross, in terms of A's inputs."""

    def table(epsilon: float) -> FitTable:
        below = outside_triangle(leaf((3.0, 1.0), epsilon), np.array([1 / 3, 1 / 2]))
        return within_load(through_chain(below, ("s1", "s2"), np.array([1.0, 1.0])), np.array([1.0, 2.0]))

    return Case(figure1(), table, _plain)


def children_case() -> Case:
    """A feeds B and C from one split: their tables merged, the larger of the two rates wanted, the rest dropped."""
    operators = {
        "a": Operator("a", "A", ("s",), cost=0.5, selectivity=0.8),
        "b": Operator("b", "B", ("a",), cost=2.0),
        "c": Operator("c", "C", ("a",), cost=5.0),
    }
    outputs = {"q1": Output("q1", "b"), "q2": Output("q2", "c")}
    network = Network("children", {"s": Stream("s", 2.0)}, {n: Node(n) for n in "ABC"}, operators, outputs)

    def table(epsilon: float) -> FitTable:
        merged = merge_tables([leaf((2.0,), epsilon), leaf((5.0,), epsilon)])
        above = through_split(through_chain(merged, ("s", "s"), np.array([0.8, 0.8])), ("s", "s"))
        return within_load(above, np.array([0.5]))

    def score(found: FitTable, observed: Vector) -> Vector:
        kept = np.minimum(found.rates[:, :1], observed)
        caps = found.rates[:, [0, 0]] if found.plans is None else np.minimum(found.plans, found.rates[:, :1])
        earned: Vector = 0.8 * np.minimum(caps, kept).sum(axis=1)
        return earned

    return Case(network, table, score)


def pair_case(kind: OperatorKind) -> Case:
    """A joins or unites two streams and feeds B: pairs of rates that give each of B's."""
    join = kind is OperatorKind.JOIN
    gives = (MATCHES * WINDOWS[1], MATCHES * WINDOWS[0]) if join else (1.0, 1.0)
    operators = {
        "a": Operator("a", "A", ("s1", "s2"), kind, cost=0.5, selectivity=MATCHES, windows=WINDOWS)
        if join
        else Operator("a", "A", ("s1", "s2"), kind, cost=0.5),
        "b": Operator("b", "B", ("a",), cost=2.0),
    }
    network = Network(
        str(kind),
        {name: Stream(name, 3.0) for name in ("s1", "s2")},
        {name: Node(name) for name in "AB"},
        operators,
        {"q": Output("q", "b")},
    )

    def table(epsilon: float) -> FitTable:
        below = leaf((2.0,), epsilon)
        points = percent_points(epsilon, float(below.rates.max()) / min(gives), 2)
        return within_load(through_pair(below, 0, ("s1", "s2"), gives, points), np.array([0.5, 0.5]))

    def score(found: FitTable, observed: Vector) -> Vector:
        earned: Vector = np.minimum(found.rates, observed) @ np.array(gives)
        return earned

    return Case(network, table, score)


def _plain(found: FitTable, observed: Vector) -> Vector:
    earned: Vector = np.minimum(found.rates, observed).sum(axis=1)
    return earned


CASES: dict[str, Callable[[], Case]] = {
    "chain": chain_case,
    "two children": children_case,
    "union": lambda: pair_case(OperatorKind.UNION),
    "join": lambda: pair_case(OperatorKind.JOIN),
}


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Rows, worst errors and points without a row, for each kind of parent, before and after rows are left out."""
    measured: dict[str, dict[str, Any]] = {}
    for place, (name, make) in enumerate(CASES.items(), 1):
        measured[name] = _measure(make(), seeds)
        progress(place / len(CASES))
    worst = {name: row["all rows"]["worst error"] for name, row in measured.items()}
    fewer = {name: row["similar rows merged"]["worst error"] for name, row in measured.items()}
    lost = {name: row["without dominated rows"]["points without a row, as printed"] for name, row in measured.items()}
    return Result(
        measured=measured,
        criteria=(
            Criterion(
                f"applied as min(F, r), the rows carried up are within {EPSILON:.0%} of the optimum",
                max(worst.values()) <= EPSILON,
                _percent(worst),
            ),
            Criterion(
                "no row earns more than the optimum: what was carried up is feasible",
                min(row["all rows"]["least error"] for row in measured.values()) >= -1e-9,
                _percent({name: row["all rows"]["least error"] for name, row in measured.items()}),
            ),
            Criterion(
                f"merging rows that are alike within {EPSILON:.0%} costs at most as much again",
                max(fewer.values()) <= 2 * EPSILON,
                _percent(fewer),
            ),
            Criterion(
                "by the paper's look-up every overloaded point has a row once dominated ones are left out",
                not any(lost.values()),
                _percent(lost),
            ),
        ),
        where="computation",
        why="The papers' rule takes a row that asks for no more than what is observed of any input. Where one input is "
        "slow and the others are overloaded, all such rows were dominated and are gone. Floodway applies every row as "
        "min(F, r) and always has an answer",
        headline="; ".join(
            f"{name}: {row['all rows']['rows']} rows, error {row['all rows']['worst error']:.1%}, alike merged "
            f"{row['similar rows merged']['rows']}"
            for name, row in measured.items()
        ),
        plots={"staying-fit-propagation": lambda: _draw(measured)},
    )


def _measure(case: Case, seeds: Sequence[int]) -> dict[str, Any]:
    table = case.table(EPSILON)
    similar = without_similar(table, table.rates.max(axis=0) * EPSILON, float(table.scores.max()) * EPSILON)
    variants = {"all rows": table, "without dominated rows": without_dominated(table), "similar rows merged": similar}
    program = Program(case.network)
    optimum = LinearProgram(program)
    tops = np.array([stream.max_rate for stream in case.network.streams.values()], dtype=np.float64)
    drawn = [tops * np.random.default_rng([seed, 63]).random((POINTS, len(tops))) for seed in seeds]
    rates = [point for point in np.vstack(drawn) if program.overloaded(point)]
    best = [program.score(optimum.solve(point)[0]) for point in rates]
    found: dict[str, Any] = {"points": len(rates)}
    for name, rows in variants.items():
        errors = [1 - float(case.score(rows, point).max()) / top for point, top in zip(rates, best, strict=True)]
        without = [not np.any(np.all(rows.rates <= point * (1 + 1e-12), axis=1)) for point in rates]
        found[name] = {
            "rows": len(rows),
            "worst error": max(errors),
            "least error": min(errors),
            "points without a row, as printed": sum(without) / len(rates),
        }
    return found


def _percent(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.1%}" for name, value in values.items())


def _draw(measured: dict[str, dict[str, Any]]) -> Figure:
    figure, axes = panels(1, 2, width=9.6)
    names = list(measured)
    places = range(len(names))
    for panel, key, factor in ((axes[0], "rows", 1), (axes[1], "worst error", 100)):
        series: dict[str, ArrayLike] = {
            kind: [factor * row[kind][key] for row in measured.values()] for kind in list(measured[names[0]])[1:]
        }
        lines(panel, places, series, marker="o")
        panel.set_xticks(list(places), names)
    style(axes[0], title="Rows of the parent's table", x="", y="rows", legend=True)
    style(axes[1], title="Worst error", x="", y="% of the optimum")
    return figure
