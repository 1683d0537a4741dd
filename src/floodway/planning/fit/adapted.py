"""Tables that are fine where the rates go and coarse where they never do: ε that adapts to a workload.

Rates are drawn from the workload. Of a table without splits those rows stay that are needed for all of them to be
within ε/2 of the optimum (greedy set cover); a table of plans gets its grid lines by halving the intervals in which a
drawn rate misses that. Elsewhere a table may miss ε: the planner compares every answer with a dual bound (`planner.py`)
and solves where it does, so ε holds at any rates, and what is coarse costs a solve when rates go there after all.

Short paper, section 4 asks for small tables; long paper, section 5.2 uses the workload for Solver only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from floodway.planning.fit.direct import DirectTable
from floodway.planning.fit.lattice import rates_of
from floodway.planning.fit.plan_table import MOST_ROWS, PlanTable, block_filler, useful_rates
from floodway.planning.fit.reduce import ProgramBlock
from floodway.planning.program import Matrix, Vector

DRAWN = 512
SAFE = 0.5
"""Part of ε that drawn rates may miss: those to come lie between them."""
_LEAST_PART = 1e-4
"""Intervals below this part of their axis are not halved any more."""


def adapted_rows(table: DirectTable, block: ProgramBlock, drawn: Matrix, epsilon: float) -> DirectTable:
    """The table with the rows that the drawn rates need, and no others."""
    column = block.column_of()
    value = block.value[column]
    rates = rates_of(table.points, table.codes)
    chosen = [int((np.minimum(rates, here) @ value).argmax()) for here in drawn]
    best = np.array([np.minimum(rates[row], here) @ value for row, here in zip(chosen, drawn, strict=True)])
    rows = np.unique(chosen)
    earned = np.minimum(rates[rows][:, None, :], drawn[None, :, :]) @ value
    served = earned >= (1.0 - SAFE * epsilon) * best
    return DirectTable(block, table.points, table.codes[rows[_cover(served)]])


def _cover(served: np.ndarray) -> list[int]:
    """Rows, few of them, that together serve every column; the row that serves most of what is left comes next.

    >>> _cover(np.array([[True, True, False], [False, True, True], [False, False, True]]))
    [0, 1]
    """
    left = np.ones(served.shape[1], dtype=bool)
    cover: list[int] = []
    while left.any():
        cover.append(int((served & left).sum(axis=1).argmax()))
        left &= ~served[cover[-1]]
    return cover


def adapted_plans(
    block: ProgramBlock,
    epsilon: float,
    drawn: Matrix,
    optimal: Callable[[Matrix], Matrix],
    errors: Callable[[PlanTable], Vector],
    most_rows: int = MOST_ROWS,
) -> PlanTable:
    """A table of plans whose grid lines lie where drawn rates need them; `errors(table)` is the error at each."""
    axes = [np.array([0.0, most]) for most in useful_rates(block)]
    while True:
        points = np.array(list(itertools.product(*(axis.tolist() for axis in axes))))
        table = PlanTable(axes, optimal(points), block.value, block_filler(block))
        found = errors(table)
        finer = _halved(axes, drawn[found > SAFE * epsilon])
        if finer is None or math.prod(map(len, finer)) > most_rows:
            return table
        axes = finer


def _halved(axes: Sequence[Vector], missed: Matrix) -> list[Vector] | None:
    """The axes with the intervals halved that hold a missed rate; None if none is left to halve.

    >>> _halved([np.array([0.0, 1.0, 2.0])], np.array([[1.2]]))
    [array([0. , 1. , 1.5, 2. ])]
    """
    finer: list[Vector] = []
    for axis, rates in zip(axes, missed.T, strict=True):
        place = np.unique(np.clip(np.searchsorted(axis, rates, side="right") - 1, 0, len(axis) - 2))
        wide = place[np.diff(axis)[place] > _LEAST_PART * axis[-1]]
        finer.append(np.unique(np.concatenate([axis, (axis[wide] + axis[wide + 1]) / 2])))
    grown = any(len(new) > len(old) for new, old in zip(finer, axes, strict=True))
    return finer if grown else None
