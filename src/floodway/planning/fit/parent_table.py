"""Merging children's tables and carrying them from a node's outputs to its inputs (short paper 3.3, long paper 6.3).

several children   cross product of rows, scores added, filtered by the node's own load
chain              input rate = output rate / selectivity
split              the largest of the branches' input rates; what is too much is dropped on the other branches
union, join        all pairs (r1, r2) on a grid with a1·r1 + a2·r2 = r
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from floodway.errors import PlanningError
from floodway.planning.fit.table import FitTable
from floodway.planning.program import FEASIBILITY_TOLERANCE, Vector

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
