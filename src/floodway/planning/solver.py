"""Solver: plans for all rates in advance, within a given error, by dividing the rate space.

Long paper, section 5.1.

With z(r) the optimum at rates r, a cell with lower corner a and upper corner b uses one plan for all its points: the
optimal flows at a, to which a point s of the cell is scaled down. The cell whose error bound is worst is split first,
until the worst is ε:

    *corner rule*   error <= 1 − z(a)/z(b)                  since z(a) <= z(s) <= z(b)

At the axes that alone never ends: where a = 0 the bound is 100% at any depth. So a cell may also keep a set Z of
*small* streams whole and scale the others' plan down to make room. Flows of different streams add up, in every
constraint and in the score; with v_Z·s_Z the score of all of Z, σ the largest share of a resource that b_Z uses, and
0 in place of Z:

    plan            x(s) = all of s_Z + (1 − σ)·x(0, a)     feasible: uses at most σ + (1 − σ)
    score           >= v_Z·s_Z + (1 − σ)·z(0, a)
    optimum z(s)    <= v_Z·s_Z + z(0, b)                    all of Z, and the rest as if Z were not there
    *axis rule*     error <= 1 − (v_Z·a_Z + (1 − σ)·z(0, a)) / (v_Z·a_Z + z(0, b))      worst at s_Z = a_Z

Both rules end on every network: z is concave with z(0) = 0, so z(a) >= min(a_i/b_i)·z(b); in small cells round a
point p, σ -> 0 for the streams with p_i = 0 and a_i/b_i -> 1 for the rest, and the axis rule goes to 0.

Where the optimum is linear both still need many cells, so a cell may also mix the plans of all its corners c_j with
the multilinear weights λ_j(s), for which s = Σ λ_j·c_j. Feasible sets are convex, so this is feasible:

    plan            x(s) = Σ λ_j(s)·x(c_j)                  score Σ λ_j(s)·z(c_j)
    optimum z(s)    <= t·[s, 1]                             t the tangent (dual solution) at any corner
    *mixing rule*   error <= max over the corners of 1 − z(c_j)/(t·[c_j, 1]), for the best t

since score − (1 − ε)·t·[s, 1] is linear in each coordinate, and so is least at a corner. A cell within one piece of
the optimum is exact. This rule is not the paper's; `mix=False` leaves it out. The best rule counts.

Rates beyond the useful ones are clamped (`solver_space`), and rates above a `max_rate` that is smaller are solved
when they are seen, so the bound holds at any rates whatever. See docs/decisions/0050-solver-error-bound.md.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from floodway.errors import PlanningError
from floodway.planning import plan_file
from floodway.planning.exact import ExactPlanner
from floodway.planning.plan import Planner
from floodway.planning.program import Matrix, Program, Vector
from floodway.planning.quadtree import RegionQuadtree
from floodway.planning.solver_arrays import cells_from_arrays, cells_to_arrays
from floodway.planning.solver_cells import Bounds, Budget, BudgetSpentError, Cell, compact, rate_space
from floodway.planning.workload import Workload

Clock = Callable[[], float]
_FREE_RATE = 1e12
"""Stands for the rate of a stream that costs nothing and has no bound."""


@dataclass(frozen=True, slots=True)
class Step:
    """How far the division was after some solver calls; the error is the maximum or the expected one."""

    lp_calls: int
    seconds: float
    error: float


@dataclass(frozen=True, slots=True)
class CornerPlan:
    """The plan of one cell: its flows at `rates`, the lower corner (the upper one for streams that are kept whole)."""

    number: int
    rates: Vector
    flows: Vector
    error: float


class SolverPlanner(Planner):
    """Plans within `epsilon` of the optimum everywhere.

    `clamp=False` divides the space up to every max_rate even where rates are of no use any more. Where the `budget`
    ends first, `achieved_epsilon` says how far it got: refused unless `adaptive`. `use_map=False` calls HiGHS for
    every corner, as the paper does, instead of asking the exact planner's region map.
    """

    name = "solver"

    def __init__(
        self,
        program: Program,
        epsilon: float = 0.05,
        *,
        clamp: bool = True,
        adaptive: bool = False,
        budget: Budget | None = None,
        use_map: bool = True,
        mix: bool = True,
        clock: Clock = time.perf_counter,
    ) -> None:
        super().__init__(program)
        self.epsilon = epsilon
        self._prepare(clamp)
        bounds = Bounds(program, self.space, epsilon, budget or Budget(), use_map=use_map, mix=mix, clock=clock)
        cells, plans = compact(self._divide(bounds), self.tree, bounds.plans())
        self.lp_calls = bounds.lp_calls
        self.build_seconds = bounds.seconds
        self._hold(cells, plans, self._achieved(cells))
        if self.achieved_epsilon > epsilon * (1 + 1e-9) and not adaptive:
            raise PlanningError(
                f"the {self.name!r} planner got to an error of {self.achieved_epsilon:.3g} instead of "
                f"{epsilon:g} with {bounds.lp_calls} solver calls in {bounds.seconds:.1f} s: with "
                f"{self.tree.dimensions} streams every split makes {self.tree.children_per_split} cells",
                hint="Use the exact planner, a larger epsilon, or adaptive=True for what the budget gives",
            )

    def _prepare(self, clamp: bool) -> None:
        self._clamp = clamp
        self.space = space = rate_space(self.program, clamp=clamp)
        self.tree = RegionQuadtree(space.top.tolist())
        self.history: list[Step] = []
        self._exact = ExactPlanner(self.program)
        # Streams that cost nothing have no dimension and are always kept whole.
        self._free = np.ones(len(self.program.streams), dtype=bool)
        self._free[space.dimensions] = False
        self._any_free = bool(self._free.any())
        self._top = space.limit.copy()
        self._top[space.dimensions] = space.top

    def _hold(self, cells: list[Cell], plans: Matrix, achieved_epsilon: float) -> None:
        self._plans = plans
        self._cells = cells
        leaves = [cell for number, cell in enumerate(cells) if self.tree.is_leaf(number)]
        self._leaves = sum(cell.plan >= 0 or bool(cell.mix) for cell in leaves)
        self.achieved_epsilon = achieved_epsilon

    @property
    def size(self) -> int:
        """Cells with a plan."""
        return self._leaves

    def lookup(self, rates: Vector) -> Vector:
        """Keeps that scale the point down to its cell's corner and apply the plan of that corner."""
        return self.program.keeps(self.flows(rates), rates)

    def flows(self, rates: Vector) -> Vector:
        """Flows x (tuples/s) on the free arcs."""
        if (rates > self.space.limit).any():
            return self._exact.flows(rates)
        number = self.tree.find(rates[self.space.dimensions].tolist())
        cell = self._cells[number]
        if cell.mix:
            return self._mixed(number, cell, rates)
        if cell.plan < 0:
            # The point may lie above its cell, clamped onto the top of the box.
            return np.asarray(self.program.full_flow @ np.minimum(rates, self._top))
        if not cell.whole and not self._any_free:
            return np.asarray(self._plans[cell.plan])
        whole = self._free.copy()
        whole[self.space.dimensions[list(cell.whole)]] = True
        kept = np.where(whole, np.minimum(rates, self._top), 0.0)
        return np.asarray(self._plans[cell.plan] * cell.scale + self.program.full_flow @ kept)

    def cell_at(self, rates: Vector) -> int | None:
        """The number of the cell that rates lie in; None outside of what was prepared."""
        if (rates > self.space.limit).any():
            return None
        return self.tree.find(rates[self.space.dimensions].tolist())

    def corner_plans(self) -> Iterator[CornerPlan]:
        """The plans of all cells; of a planner that mixes none, so that each is one plan."""
        for number, cell in enumerate(self._cells):
            if not self.tree.is_leaf(number):
                continue
            lower, upper = self.tree.corners(number)
            if cell.plan < 0 and not (upper >= self.space.top).any():
                continue  # nothing is overloaded there; above the top face of the box it may be
            whole = self._free.copy()
            whole[self.space.dimensions[list(cell.whole)]] = True
            if cell.plan < 0:
                whole[:] = True
            low, high = np.zeros(len(whole)), np.minimum(self._top, _FREE_RATE)
            low[self.space.dimensions], high[self.space.dimensions] = lower, upper
            kept = np.where(whole, high, 0.0)
            planned = 0.0 if cell.plan < 0 else self._plans[cell.plan] * cell.scale
            rates = np.where(whole, high, low)
            yield CornerPlan(number, rates, np.asarray(planned + self.program.full_flow @ kept), cell.error)

    def _mixed(self, number: int, cell: Cell, rates: Vector) -> Vector:
        lower, upper = self.tree.corners(number)
        part = np.clip((rates[self.space.dimensions] - lower) / (upper - lower), 0.0, 1.0)
        weights = np.ones(1)
        for upper_part in part.tolist():
            weights = np.concatenate([weights * (1.0 - upper_part), weights * upper_part])
        flows: Vector = weights @ self._plans[list(cell.mix)]
        if self._any_free:
            flows = flows + self.program.full_flow @ np.where(self._free, rates, 0.0)
        return flows

    def expected_error(self, workload: Workload) -> float:
        """Σ p·ε over the cells, p being the probability of a cell under the workload (section 5.2)."""
        return self._expected(self._cells, workload)

    def _expected(self, cells: list[Cell], workload: Workload) -> float:
        return sum(
            cell.error * self._probability(number, workload)
            for number, cell in enumerate(cells)
            if self.tree.is_leaf(number) and cell.error > 0
        )

    def _divide(self, bounds: Bounds) -> list[Cell]:
        """Split the cell of the highest priority until the error is met or the budget spent."""
        root = bounds.cell(*self.tree.grid_corners(0))
        cells = [root]
        waiting = [(-self._priority(0, root), 0)]
        error = self._priority(0, root)
        while waiting and error > self.epsilon:
            self.history.append(Step(bounds.lp_calls, bounds.seconds, error))
            priority, number = heapq.heappop(waiting)
            if not self.tree.splittable(number):
                continue
            try:
                bounds.check_room(len(self.tree), self.tree.children_per_split)
                # All children first: a split that the budget cuts short leaves its cell as it was.
                children = [bounds.cell(lower, upper) for lower, upper in self.tree.children(number)]
            except BudgetSpentError:
                break
            cells.extend(children)
            added = []
            for child in self.tree.split(number):
                added.append(self._priority(child, cells[child]))
                if added[-1] > 0:
                    heapq.heappush(waiting, (-added[-1], child))
            error = self._remaining(error, -priority, added, waiting)
        self.history.append(Step(bounds.lp_calls, bounds.seconds, error))
        return cells

    def _priority(self, number: int, cell: Cell) -> float:
        return cell.error

    def _remaining(self, error: float, removed: float, added: list[float], waiting: list[tuple[float, int]]) -> float:
        """The error after a split: the largest that waits."""
        return -waiting[0][0] if waiting else 0.0

    def _achieved(self, cells: list[Cell]) -> float:
        return max(cell.error for number, cell in enumerate(cells) if self.tree.is_leaf(number))

    def _probability(self, number: int, workload: Workload) -> float:
        lower = np.zeros(len(self.program.streams))
        upper = self.space.limit.copy()
        low, high = self.tree.corners(number)
        dimensions = self.space.dimensions
        lower[dimensions] = low
        # Rates above the top face are clamped onto it, if that loses nothing: the outermost cells reach as
        # far as the limit.
        upper[dimensions] = np.where(high >= self.space.top, self.space.limit[dimensions], high)
        return workload.probability(lower, upper)

    def to_arrays(self) -> tuple[plan_file.Meta, plan_file.Arrays]:
        """The tree, and per cell its error, plan, scale and streams kept whole."""
        meta: plan_file.Meta = {
            "epsilon": self.epsilon,
            "achieved_epsilon": self.achieved_epsilon,
            "clamp": self._clamp,
            "lp_calls": self.lp_calls,
        }
        return meta, {
            "first_child": self.tree.to_array(),
            "plans": self._plans,
            **cells_to_arrays(self._cells, self.tree),
        }

    @classmethod
    def from_arrays(cls, program: Program, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The planner again; no solver is called."""
        kinds = {"epsilon": float, "achieved_epsilon": float, "clamp": bool, "lp_calls": int}
        plan_file.require(all(isinstance(meta.get(key), kind) for key, kind in kinds.items()), "its header lacks keys")
        planner = cls.__new__(cls)
        Planner.__init__(planner, program)
        planner.epsilon, planner.lp_calls, planner.build_seconds = meta["epsilon"], meta["lp_calls"], 0.0
        planner._prepare(meta["clamp"])
        first_child = plan_file.array(arrays, "first_child", (None,)).astype(np.int64)
        try:
            planner.tree = RegionQuadtree.from_array(planner.space.top.tolist(), first_child)
        except ValueError as error:
            raise plan_file.PlanFileError(str(error), hint="Make the file again with --save") from error
        plans = plan_file.array(arrays, "plans", (None, program.size)).astype(np.float64)
        cells = cells_from_arrays(program, planner.space, planner.tree, plans, arrays)
        planner._hold(cells, plans, meta["achieved_epsilon"])
        return planner
