"""FIT, centralised (C-FIT): tables of feasible rates built in advance, looked up when overload comes.

Each independent block of the network gets a table: rows applied as min(F, r) where there is nothing to split
(`fit_direct`), mixed plans on a grid otherwise (`fit_plans`), plans carried up node by node where the network is a
large tree (`fit_tree`). Every answer is compared with a dual bound on the optimum; one that cannot be shown to be
within ε is replaced by a solved one, so ε holds at any rates on any network, however coarse the table had to be.

Short paper, section 3; long paper, section 6.

Upper bounds on the optimum from dual solutions: how a table's answer is checked against ε without a solve.

Any y >= 0 bounds the optimum at *all* rates (weak duality), because rates stand only on the right-hand side:

    optimum(r) <= sum_k y_k + sum_a max(c_a − y·A_a, 0)·r_s(a)

The bound of an optimal basis is tight in its whole region, so a handful of them covers the rate space.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError, PlanningError
from floodway.planning import plan_file
from floodway.planning.fit import fit_arrays
from floodway.planning.fit.adapted import DRAWN, adapted_plans, adapted_rows
from floodway.planning.fit.dfit import DFitPlanner
from floodway.planning.fit.direct import DirectTable, SpreadRule, direct_table
from floodway.planning.fit.oracle import Oracle
from floodway.planning.fit.plan_table import PlanTable, plan_table
from floodway.planning.fit.reduce import ProgramBlock, Reduced
from floodway.planning.fit.tree import tree_table
from floodway.planning.lp import Basis, LinearProgram
from floodway.planning.plan import Planner
from floodway.planning.program import Matrix, Program, Vector
from floodway.planning.workload import Workload, check_streams

__all__ = ["DFitPlanner", "FitPlanner", "SpreadRule"]

_TREE_PROBES = 16
_DRAW_SEED = 20070924
"""Draws are part of a build, and a build has to repeat itself."""
_MOST_ARCS = 800
"""Above this a miss of the region map takes seconds, and a table hundreds of them."""
_LOOSE = 1e-7
"""A bound this much above the optimum, relatively, is worth a better one."""


@dataclass(frozen=True)
class _Part:
    block: ProgramBlock
    table: DirectTable | PlanTable
    bounds: DualBounds


class FitPlanner(Planner):
    """Plans within ε of the optimum from a table. `size` is the number of rows.

    `solved` counts look-ups whose table answer was not within ε and was replaced; `table_epsilon` is the largest
    error of the tables alone over probes (random rates, axes, corners, tiny rates). With a `workload` the tables are
    fine only where its rates go (`adapted.py`). On large trees answers are not checked one by one, and tables not
    adapted; `achieved_epsilon`, computed when asked for, says what the probes found.
    """

    name = "fit"

    def __init__(
        self,
        program: Program,
        epsilon: float = 0.05,
        *,
        spread: SpreadRule | str = SpreadRule.AUTO,
        most_rows: int | None = None,
        workload: Workload | None = None,
        saved: fit_arrays.SavedTables | None = None,
    ) -> None:
        super().__init__(program)
        if not (np.isfinite(epsilon) and 0 < epsilon < 1):
            raise InputError(f"epsilon {epsilon} is outside (0, 1)", hint="Use 0.05 for plans within five percent")
        started = time.perf_counter()
        self.epsilon = epsilon
        self.solved = 0
        self._oracle = Oracle(program)
        self._drawn = None if workload is None else self._draw(workload)
        self._parts: list[_Part] = []
        self._tree = tree_table(program) if saved is None else saved.tree
        if self._tree is None:
            self._refuse_if_large()
            blocks = self._oracle.reduced.blocks
            tables = (
                [self._table(block, SpreadRule(spread), most_rows) for block in blocks]
                if saved is None
                else saved.tables(blocks)
            )
            for block, table in zip(blocks, tables, strict=True):
                self._parts.append(_Part(block, table, self._bounds(block)))
        self.build_seconds = time.perf_counter() - started

    @property
    def size(self) -> int:
        """Rows of all tables."""
        return self._tree.rows if self._tree is not None else sum(part.table.rows for part in self._parts)

    def lookup(self, rates: Vector) -> Vector:
        """Keeps for overloaded rates."""
        return self.program.keeps(self.flows(rates), rates)

    def flows(self, rates: Vector) -> Vector:
        """Flows on all free arcs at these rates (tuples/s)."""
        if self._tree is not None:
            return self._tree.flows(rates)
        reduced = self._oracle.reduced
        flow = np.empty(len(reduced.costly))
        for part in self._parts:
            here = rates[part.block.streams]
            mine = part.table.flows(here)
            value = self._oracle.value(part.block, mine, here)
            if value < part.bounds.at(here) * (1.0 - self.epsilon):
                mine = self._solve(part, mine, value, here)
            flow[part.block.arcs] = mine
        return reduced.arcs(flow, rates)

    @cached_property
    def achieved_epsilon(self) -> float:
        """Largest relative error of this planner's answers over the probes, against the optimum."""
        if self._tree is not None:
            return self._tree_error(self._tree)
        return min(self.table_epsilon, self.epsilon)

    @cached_property
    def table_epsilon(self) -> float:
        """Largest relative error over the probes if no answer were ever solved: how good the tables are alone."""
        if self._tree is not None:
            return self.achieved_epsilon
        worst = 0.0
        for part in self._parts:
            probes = self._oracle.probes(part.block)
            best = self._oracle.optima(part.block, probes)
            worst = max(worst, self._oracle.worst(part.block, part.table, probes, best))
        return worst

    def to_arrays(self) -> tuple[plan_file.Meta, plan_file.Arrays]:
        """The tables, to be written to a plan file."""
        meta, arrays = fit_arrays.pack(self._tree, [part.table for part in self._parts])
        return {**meta, "epsilon": self.epsilon}, arrays

    @classmethod
    def from_arrays(cls, program: Program, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> FitPlanner:
        """The planner again with the tables as they were."""
        epsilon = meta.get("epsilon")
        plan_file.require(isinstance(epsilon, float) and 0 < epsilon < 1, "epsilon is missing")
        return cls(program, float(meta["epsilon"]), saved=fit_arrays.unpack(program, meta, arrays))

    def _table(self, block: ProgramBlock, spread: SpreadRule, most_rows: int | None) -> DirectTable | PlanTable:
        drawn = None if self._drawn is None else self._drawn[:, block.streams]
        if block.direct:
            table = direct_table(block, self.epsilon, spread, most_rows)
            return table if drawn is None else adapted_rows(table, block, drawn, self.epsilon)
        if drawn is not None:
            optima = np.array(self._oracle.optima(block, drawn))
            return adapted_plans(
                block,
                self.epsilon,
                drawn,
                lambda rates: self._oracle.optimal(block, rates),
                lambda table: self._oracle.errors(block, table, drawn, optima),
            )
        probes = self._oracle.probes(block)
        best = self._oracle.optima(block, probes)
        return plan_table(
            block,
            self.epsilon,
            lambda rates: self._oracle.optimal(block, rates),
            lambda table: self._oracle.worst(block, table, probes, best),
        )

    def _draw(self, workload: Workload) -> Matrix:
        """Rates of the workload at which something has to be dropped; if it has none, any."""
        check_streams(workload, self.program.streams)
        rates = workload.sample(DRAWN, np.random.default_rng(_DRAW_SEED))
        overloaded = np.array([self.program.overloaded(row) for row in rates])
        return rates[overloaded] if overloaded.any() else rates

    def _refuse_if_large(self) -> None:
        if self.program.size > _MOST_ARCS and self.program.size > len(self.program.streams):
            raise PlanningError(
                f"network {self.network.name!r} has splits and {self.program.size} arcs, too many for a table of plans",
                hint="Use the exact planner, which needs no table; trees of nodes with one or two inputs have no limit",
            )

    def _bounds(self, block: ProgramBlock) -> DualBounds:
        """Bounds that are tight at the probes; look-ups add others where these are loose."""
        bounds = DualBounds(self._oracle.reduced, block, self._oracle.lp)
        probes = self._oracle.probes(block)
        for here, top in zip(probes, self._oracle.optima(block, probes), strict=True):
            if bounds.at(here) > top * (1.0 + _LOOSE):
                bounds.add(self._oracle.basis(block, here))
        return bounds

    def _solve(self, part: _Part, flow: Vector, value: float, here: Vector) -> Vector:
        """The table's answer if it is within ε after all, the optimum if not; sharpens the bound on the way."""
        best: Vector = self._oracle.optimal(part.block, here[None])[0]
        top = self._oracle.value(part.block, best, here)
        if part.bounds.at(here) > top * (1.0 + _LOOSE):
            part.bounds.add(self._oracle.basis(part.block, here))
        if value >= top * (1.0 - self.epsilon):
            return flow
        self.solved += 1
        return best

    def _tree_error(self, table: PlanTable) -> float:
        rng = np.random.default_rng(20070923)
        top = np.array([axis[-1] for axis in table.axes])
        worst = 0.0
        for rates in rng.random((_TREE_PROBES, len(top))) * 1.5 * top:
            flows, _ = self._oracle.lp.solve(rates)
            best = self.program.score(flows)
            worst = max(worst, 1.0 - self.program.score(table.flows(rates)) / best if best > 0 else 0.0)
        return worst


MOST_BOUNDS = 512


class DualBounds:
    """Bounds for one block, over [rates of its streams, 1]."""

    def __init__(self, reduced: Reduced, block: ProgramBlock, lp: LinearProgram) -> None:
        program = reduced.program
        self._lp = lp
        self._streams = block.streams
        arcs = reduced.costly[block.arcs]
        resources = len(program.use)
        # Rows of other blocks carry no price here: the program is a sum over blocks.
        self._own_rows = np.zeros(len(lp.bound), dtype=bool)
        self._own_rows[:resources] = program.use[:, arcs].any(axis=1)
        self._objective = program.objective * lp.unit
        self.rows: Matrix = np.zeros((0, len(self._streams) + 1))
        self._augmented = np.ones(len(self._streams) + 1)

    def add(self, basis: Basis) -> None:
        """Remember the bound of an optimal basis."""
        row = self._row(basis)
        if row is None or len(self.rows) >= MOST_BOUNDS:
            return
        scale = np.abs(row).max() or 1.0
        if not len(self.rows) or np.abs(self.rows - row).max(axis=1).min() > 1e-12 * scale:
            self.rows = np.vstack([self.rows, row])

    def at(self, rates: Vector) -> float:
        """The least bound at the rates of the block's streams; infinite before the first."""
        if not len(self.rows):
            return float("inf")
        self._augmented[:-1] = rates
        return float(self.rows.dot(self._augmented).min())

    def _row(self, basis: Basis) -> Vector | None:
        program = self._lp.program
        tight, basic = np.flatnonzero(basis.tight), np.flatnonzero(basis.basic)
        try:
            price = np.linalg.solve(self._lp.matrix[np.ix_(tight, basic)].T, self._objective[basic])
        except np.linalg.LinAlgError:
            return None
        prices = np.zeros(len(self._lp.bound))
        prices[tight] = np.maximum(price, 0.0)
        gain = self._objective - prices @ self._lp.matrix
        if np.any(gain[program.stream_of < 0] > 1e-9 * np.abs(self._objective).max()):
            return None  # not dual feasible to working precision
        constant = float(prices[self._own_rows] @ self._lp.bound[self._own_rows])
        per_rate = np.zeros(len(program.streams))
        outer: NDArray[np.int64] = np.flatnonzero(program.stream_of >= 0)
        np.add.at(per_rate, program.stream_of[outer], np.maximum(gain[outer], 0.0) / self._lp.unit[outer])
        return np.append(per_rate[self._streams], constant)
