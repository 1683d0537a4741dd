"""The Feasible Input Table: which input rates a node (with all below it) can take, and the score they earn.

A row is (F_1 … F_m, score). Rows "feasible with a plan" carry the flows of their local plan on the node's own arcs;
plans stay local and never travel (short paper 3.1, long paper 6.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from floodway.planning.program import Matrix, Vector

_SAME = 1e-12


@dataclass(frozen=True)
class FitTable:
    """Rows of feasible rates with their scores and the load they put on this node.

    `plans` (rows × arcs) are the flows a local plan leaves on branches; infinite where it drops nothing.
    """

    inputs: tuple[str, ...]
    rates: Matrix
    scores: Vector
    loads: Vector
    plans: Matrix | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> FitTable:
        """Some of the rows."""
        plans = None if self.plans is None else self.plans[rows]
        return replace(self, rates=self.rates[rows], scores=self.scores[rows], loads=self.loads[rows], plans=plans)

    def best(self, observed: Vector, value: Vector) -> tuple[int, float]:
        """The row that earns most when applied as min(F, r), with that score; `value` is the score per tuple/s.

        Among equals the one that drops least of what it admits, so the paper's own choice where it has one.
        """
        earned = np.minimum(self.rates, observed) @ value
        top = float(earned.max())
        tied = np.flatnonzero(earned >= top - _SAME * max(top, 1.0))
        return int(tied[np.argmin(np.abs(self.scores[tied] - top))]), top

    def covers(self, observed: Vector) -> bool:
        """Whether some row without a plan is at least the observed rates everywhere: nothing is overloaded."""
        above = np.all(self.rates >= observed - _SAME, axis=1)
        if self.plans is not None:
            above &= np.isinf(self.plans).all(axis=1)
        return bool(above.any())


def without_dominated(table: FitTable) -> FitTable:
    """Remove rows that another row beats in every rate and in score (long paper 6.2.1, "Excluding Redundant Points").

    Rows are visited from the largest score down in blocks; a row can only be dominated by one before it. Equal rows
    keep the first.
    """
    order = np.lexsort((*(-table.rates.T), -table.scores))
    rates = table.rates[order]
    kept = np.zeros(len(table), dtype=bool)
    front: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    block = 256
    for start in range(0, len(rates), block):
        part = np.arange(start, min(start + block, len(rates)))
        beaten = np.zeros(len(part), dtype=bool)
        for low in range(0, len(front), 4096):
            beaten |= np.all(rates[front[low : low + 4096]][:, None, :] >= rates[part][None], axis=2).any(axis=0)
        inside = np.all(rates[part][:, None, :] >= rates[part][None], axis=2)
        inside &= np.tri(len(part), k=-1, dtype=bool).T  # only rows before, scores being sorted
        beaten |= inside.any(axis=0)
        kept[part[~beaten]] = True
        front = np.concatenate([front, part[~beaten]])
    return table.take(np.sort(order[kept]))


def outside_triangle(table: FitTable, maximum: Vector) -> FitTable:
    """Remove rows inside the feasibility triangle with corners `maximum`: sum F_i/R_i < 1 (long paper, Figure 6).

    `maximum` holds the smallest maximum feasible rates over this node and all above it; no point inside can lie on
    the global boundary.
    """
    return table.take((table.rates / maximum).sum(axis=1) >= 1.0 - 1e-9)


def without_similar(table: FitTable, rate_step: Vector, score_step: float) -> FitTable:
    """The long paper's tactics for large merges (6.3), on cells of `rate_step` × `score_step`.

    Rows alike in rates and score: only the one with the least load stays. Rows alike in rates: only the best score.
    """
    cell = np.floor(table.rates / rate_step + 1e-9).astype(np.int64)
    level = np.floor(table.scores / score_step + 1e-9).astype(np.int64)
    # Best score level first, then least load: the first row of every cell is the one to keep.
    order = np.lexsort((table.loads, -level, *cell.T[::-1]))
    ordered = cell[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    return table.take(np.sort(order[first]))
