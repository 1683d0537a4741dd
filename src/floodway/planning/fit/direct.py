"""The table of a block without splits: all feasible combinations of sample points, applied as min(F, r).

Why min(F, r) stays within ε. Let R_i be the most stream i can bring alone and the step be (ε/m)·R_i, so one step of
one stream takes at most ε/m of any resource. For the optimum f* the point (1−ε)·f*, rounded *up* to the grid, is
feasible: rounding adds at most ε. As f* <= r, that row applied as min(F, r) earns at least (1−ε) of the optimum, at
any rates, tiny ones too. Where that grid is too large the planner takes a coarser one and checks its answers
(`fit_bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from floodway.errors import PlanningError
from floodway.planning.fit.index import RowIndex
from floodway.planning.fit.lattice import Codes, feasible_codes
from floodway.planning.fit.plan_table import Filler
from floodway.planning.fit.reduce import ProgramBlock
from floodway.planning.fit.spread import (
    absolute_spreads,
    fixed_size_spreads,
    percent_points,
    steps,
    uniform_spreads,
)
from floodway.planning.program import Vector

AUTO_ROWS = 100_000
"""Rows from which on `auto` takes a coarser grid: a bound on build time more than on memory."""
MOST_ROWS = 2_000_000
"""Rows that a rule asked for by name may make."""
_COARSER = (64, 48, 32, 24, 20, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)
_MOST_STEPS = 2**16
"""Codes of sample points are 16 bits wide."""


class SpreadRule(StrEnum):
    """Which spread rule makes the grid; `auto` takes the finest uniform one that fits."""

    AUTO = "auto"
    ABSOLUTE = "absolute"
    FIXED = "fixed"
    PERCENT = "percent"
    UNIFORM = "uniform"


class DirectTable:
    """Rows over the streams of one block."""

    def __init__(self, block: ProgramBlock, points: Sequence[Vector], codes: Codes) -> None:
        self.points = tuple(points)
        self.codes = codes
        self._column = block.column_of()
        share, value = block.share[:, self._column], block.value[self._column]
        self._index = RowIndex(self.points, codes, value, share)
        self._filler = Filler(block)

    @property
    def rows(self) -> int:
        """Feasible combinations held."""
        return len(self.codes)

    def flows(self, rates: Vector) -> Vector:
        """Flows on the block's arcs at these rates."""
        flow = np.empty(len(rates))
        flow[self._column] = np.minimum(self._index.best(rates), rates)
        return self._filler.fill(flow, rates)


def direct_table(block: ProgramBlock, epsilon: float, spread: SpreadRule, most_rows: int | None = None) -> DirectTable:
    """Build the table of a block without splits."""
    if most_rows is None:
        most_rows = MOST_ROWS if spread in (SpreadRule.ABSOLUTE, SpreadRule.PERCENT, SpreadRule.UNIFORM) else AUTO_ROWS
    column = block.column_of()
    share, value = block.share[:, column], block.value[column]
    top = 1.0 / share.max(axis=0)
    for points in _grids(epsilon, spread, top, value, most_rows):
        codes = feasible_codes(points, share, most_rows)
        if codes is not None:
            return DirectTable(block, points, codes)
    raise PlanningError(
        f"a table over {len(top)} inputs needs more than {most_rows} rows",
        hint="Use the exact planner, which needs no table, or a larger epsilon",
    )


def _grids(epsilon: float, spread: SpreadRule, top: Vector, value: Vector, most_rows: int) -> Sequence[list[Vector]]:
    inputs = len(top)
    if spread is SpreadRule.ABSOLUTE:
        return [[steps(min(s, t), t) for s, t in zip(absolute_spreads(epsilon, value), top, strict=True)]]
    if spread is SpreadRule.FIXED:
        return [[steps(s, t) for s, t in zip(fixed_size_spreads(most_rows, top, value), top, strict=True)]]
    if spread is SpreadRule.PERCENT:
        return [[percent_points(epsilon, t, inputs) for t in top]]
    if spread is SpreadRule.UNIFORM:
        return [[steps(s, t) for s, t in zip(uniform_spreads(epsilon, top), top, strict=True)]]
    counts = [math.ceil(inputs / epsilon), math.ceil(1 / epsilon)]
    counts += [count for count in _COARSER if count < counts[1]]
    # All C(K+m, m) points of the simplex below R are feasible in any network: no need to try where they are too many.
    tried = [k for k in counts if k < _MOST_STEPS and math.comb(k + inputs, inputs) <= most_rows]
    return [[np.arange(k + 1) * (t / k) for t in top] for k in tried]
