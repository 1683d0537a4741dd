"""A node's decision from its own table alone: the best score, and of all ways to it the one that admits least.

The program of `planning/fit/hull` says what a cluster can earn with the tables of its children. Among its optima some
would take in tuples that are thrown away further down; so a second solve, with the score held, minimises what flows:
an overload three nodes below is shed at the source.

    1. best = max score(x)        2. min Σ x  subject to  score(x) >= best

A capacity scale g of a node, which its controller sets, is the bound of its CPU row; children's tables stay as they
are, for they know their own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence

import highspy
import numpy as np

from floodway.planning.fit.hull import HullProgram, Rows
from floodway.planning.fit.local import LocalProgram
from floodway.planning.program import Vector

_AS_GOOD = 1e-9
_WHOLE = 1e-5
"""A score within this of what everything would earn means that nothing has to be dropped: above the wire's rounding."""


class ThriftyProgram(HullProgram):
    """The program kept in HiGHS; safe to call from several threads."""

    def __init__(self, local: LocalProgram, children: Sequence[Rows]) -> None:
        super().__init__(local, children)
        top = float(np.abs(self._objective).max(initial=0.0)) or 1.0
        self._columns_all = np.arange(len(self._objective), dtype=np.int32)
        self._best_cost = self._objective * (1e3 / top)
        self._least_cost = np.zeros(len(self._objective))
        self._least_cost[: local.program.size] = -1.0
        self._goal = self._objective / top
        self._goal_row = self._highs.getNumRow()
        self._highs.addRow(-math.inf, math.inf, len(self._goal), self._columns_all, self._goal)
        self._slopes = [_slopes(child) for child in children]
        self._lock = threading.Lock()

    def decide(self, offered: Vector, scales: Mapping[str, float]) -> tuple[Vector, bool]:
        """Flows on the cluster's free arcs at these offers, and whether they are all that is offered."""
        with self._lock:
            bounds = self._bounds(scales)
            best = self._best(offered, bounds)
            if self._nothing_to_drop(offered, bounds, best[1]):
                return np.asarray(self.local.program.full_flow @ offered), True
            return self._least(best), False

    def _best(self, offered: Vector, bounds: Vector) -> tuple[Vector, float]:
        for row, bound in enumerate(bounds.tolist()):
            self._highs.changeRowBounds(row, -math.inf, bound)
        self._highs.changeRowBounds(self._goal_row, -math.inf, math.inf)
        self._highs.changeColsCost(len(self._columns_all), self._columns_all, self._best_cost)
        return self.solve(offered)

    def _least(self, best: tuple[Vector, float]) -> Vector:
        flows, _ = best
        goal = float(self._goal @ np.maximum(np.array(self._highs.getSolution().col_value), 0.0))
        self._highs.changeRowBounds(self._goal_row, goal * (1.0 - _AS_GOOD), math.inf)
        self._highs.changeColsCost(len(self._columns_all), self._columns_all, self._least_cost)
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return flows  # as good, only less thrifty
        values = np.maximum(np.array(self._highs.getSolution().col_value), 0.0)
        return np.asarray(values[: self.local.program.size] * self._unit)

    def _bounds(self, scales: Mapping[str, float]) -> Vector:
        bounds = np.ones(len(self.local.share))
        for row, resource in enumerate(self.local.program.resources):
            if resource.kind == "cpu":
                bounds[row] = scales.get(resource.name, 1.0)
        return bounds

    def _nothing_to_drop(self, offered: Vector, bounds: Vector, best: float) -> bool:
        """Whether own resources suffice for all, and the score is what everything would earn, below too."""
        local = self.local
        use = local.share @ (local.program.full_flow @ offered)
        if np.any(use > bounds * (1 + 1e-9)):
            return False
        full = float(local.values @ offered)
        emitted = local.gains @ offered
        for slope, exits in zip(self._slopes, local.exits, strict=True):
            full += float(slope @ emitted[list(exits)])
        return best >= full * (1 - _WHOLE)


def _slopes(child: Rows) -> Vector:
    """What a child earns per tuple of each input while nothing is short: the steepest of its rows with one input."""
    inputs = child.rates.shape[1]
    found = np.zeros(inputs)
    for i in range(inputs):
        alone = (child.rates[:, i] > 0) & (np.delete(child.rates, i, axis=1) <= 0).all(axis=1)
        if alone.any():
            found[i] = (child.scores[alone] / child.rates[alone, i]).max()
    return found
