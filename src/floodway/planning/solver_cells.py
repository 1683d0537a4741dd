"""Error bounds of cells, from optima at their corners; `solver.py` states the two rules and proves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from floodway.planning.exact import ExactPlanner
from floodway.planning.lp import LinearProgram
from floodway.planning.program import Matrix, Program, Vector
from floodway.planning.quadtree import GRID, Coordinates, RegionQuadtree
from floodway.planning.solver_space import RateSpace

_PLAN_BYTES = 2**28
MOST_MIXED = 5
"""Dimensions up to which plans are mixed: a cell then names the plans of all its 2^m corners."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What preparing may cost. Corners shared by cells are solved once and count once."""

    lp_calls: int = 20_000
    seconds: float = 20.0
    cells: int = 400_000


class BudgetSpentError(Exception):
    """The budget ends here: the division stops with what it has; never leaves the planner."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell's points use: `scale` times the flows of `plan` (a row; -1: nothing to drop), with `whole`
    kept whole; or the `mix` of its corners' plans, in the order of the children of a split.

    `whole` are positions among the tree's dimensions, `error` the proven bound on the relative error.
    """

    error: float
    plan: int = -1
    scale: float = 1.0
    whole: tuple[int, ...] = ()
    mix: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Corner:
    """The optimum at a grid corner, the row of its flows, and its tangent over [rates, 1], if known."""

    score: float
    plan: int
    tangent: Vector | None


class Bounds:
    """Optima at corners, each asked for once, and the cells' bounds made of them."""

    def __init__(
        self,
        program: Program,
        space: RateSpace,
        epsilon: float,
        budget: Budget,
        *,
        use_map: bool,
        mix: bool,
        clock: Callable[[], float],
    ) -> None:
        self._program, self._space, self._epsilon, self._budget = program, space, epsilon, budget
        self._clock, self._start = clock, clock()
        self._solve = _with_map(program) if use_map else _without_map(program)
        self._corners: dict[Coordinates, Corner] = {}
        self._flows: list[Vector] = []
        # Flows of every corner are kept until the end, so their number is bounded by memory as well.
        self._most_calls = min(budget.lp_calls, _PLAN_BYTES // (8 * max(program.size, 1)))
        dimensions = space.dimensions
        self._top = space.top
        self._share = (program.full_use / program.capacity[:, None])[:, dimensions]
        self._value: Vector = (program.objective @ program.full_flow)[dimensions]
        self._mixes = mix and use_map and len(dimensions) <= MOST_MIXED
        # Which corner of a cell is upper in which dimension, one row a corner.
        numbers = np.arange(1 << len(dimensions)) if self._mixes else np.zeros(0, dtype=np.int64)
        self._upper = (numbers[:, None] >> np.arange(len(dimensions)) & 1).astype(np.bool_)
        # A stream is small where, with all others as small as it is, they take less than half the allowed
        # error together.
        threshold = epsilon / 2 / max(len(dimensions), 1)
        with np.errstate(divide="ignore"):
            small = threshold / self._share.max(axis=0, initial=0.0) / space.top
        self._small = np.minimum(small * GRID, GRID).tolist()
        self.lp_calls = 0

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._start

    def check_room(self, cells: int, more: int) -> None:
        """Raise BudgetSpentError unless `more` cells can be added to so many."""
        full = cells + more > self._budget.cells or self.lp_calls + more > self._most_calls
        if full or self.seconds > self._budget.seconds:
            raise BudgetSpentError

    def cell(self, lower: Coordinates, upper: Coordinates) -> Cell:
        """The best of the rules for the cell between two grid corners."""
        if not self._overloaded(upper):
            return Cell(0.0)
        bottom = self._corner(lower)
        error = _relative_gap(bottom.score, self._corner(upper).score)
        if error <= self._epsilon:
            return Cell(error, bottom.plan)
        found = self._axis_rule(lower, upper, Cell(error, bottom.plan))
        return self._mix_rule(lower, upper, found) if self._mixes and found.error > self._epsilon else found

    def plans(self) -> Matrix:
        """Flows by row, as the cells name them."""
        return np.array(self._flows).reshape(len(self._flows), self._program.size)

    def _axis_rule(self, lower: Coordinates, upper: Coordinates, other: Cell) -> Cell:
        """The axis rule's cell if it is better than `other`."""
        whole = tuple(
            i for i, (low, high) in enumerate(zip(lower, upper, strict=True)) if low == 0 or high <= self._small[i]
        )
        if not whole:
            return other
        part = list(whole)
        high = self._rates(upper)[part]
        share = float((self._share[:, part] @ high).max(initial=0.0))
        if share >= 1.0:
            return other
        kept = float(self._value[part] @ self._rates(lower)[part])
        bottom = self._corner(_without(lower, whole))
        top = self._corner(_without(upper, whole))
        error = _relative_gap(kept + (1.0 - share) * bottom.score, kept + top.score)
        return Cell(error, bottom.plan, 1.0 - share, whole) if error < other.error else other

    def _mix_rule(self, lower: Coordinates, upper: Coordinates, other: Cell) -> Cell:
        """The mixing rule's cell if it is better than `other`."""
        places = np.where(self._upper, upper, lower)
        corners = [self._corner(tuple(place)) for place in places.tolist()]
        scores = np.array([corner.score for corner in corners])
        tangents = np.array([corner.tangent for corner in corners if corner.tangent is not None])
        if not len(tangents):
            return other
        rates = self._top * (places / GRID)
        bounds = tangents[:, :-1] @ rates.T + tangents[:, -1:]
        # A tangent below an optimum it should bound is the solver's rounding; such a one proves nothing.
        sound = (bounds >= scores * (1 - 1e-7)).all(axis=1)
        if not sound.any():
            return other
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = np.where(bounds > 0.0, 1.0 - scores / bounds, 0.0)
        error = max(float(gaps[sound].max(axis=1).min()), 0.0)
        return Cell(error, mix=tuple(corner.plan for corner in corners)) if error < other.error else other

    def _corner(self, at: Coordinates) -> Corner:
        known = self._corners.get(at)
        if known is not None:
            return known
        rates = np.zeros(len(self._program.streams))
        rates[self._space.dimensions] = self._rates(at)
        if self._overloaded(at):
            if self.lp_calls >= self._most_calls or self.seconds > self._budget.seconds:
                raise BudgetSpentError
            self.lp_calls += 1
            flows, tangent = self._solve(rates)
            if tangent is not None:
                tangent = np.append(tangent[self._space.dimensions], tangent[-1])
        else:
            # Keeping all is the optimum here, and no plan anywhere gets more than all.
            flows, tangent = self._program.full_flow @ rates, np.append(self._value, 0.0)
        self._flows.append(np.maximum(flows, 0.0))
        corner = self._corners[at] = Corner(self._program.score(flows), len(self._flows) - 1, tangent)
        return corner

    def _rates(self, at: Coordinates) -> Vector:
        return self._top * (np.array(at, dtype=np.float64) / GRID)

    def _overloaded(self, at: Coordinates) -> bool:
        rates = np.zeros(len(self._program.streams))
        rates[self._space.dimensions] = self._rates(at)
        return self._program.overloaded(rates)


def compact(cells: list[Cell], tree: RegionQuadtree, plans: Matrix) -> tuple[list[Cell], Matrix]:
    """The same leaves with only the plans that they use; cells that were split forget theirs."""
    row_of: dict[int, int] = {}

    def renumbered(row: int) -> int:
        return row if row < 0 else row_of.setdefault(row, len(row_of))

    kept = [
        replace(cell, plan=renumbered(cell.plan), mix=tuple(renumbered(row) for row in cell.mix))
        if tree.is_leaf(number)
        else Cell(cell.error)
        for number, cell in enumerate(cells)
    ]
    return kept, plans[list(row_of)]


def _relative_gap(lower: float, upper: float) -> float:
    """How far `lower` is below `upper`; nothing to gain is no error."""
    return max(0.0, 1.0 - lower / upper) if upper > 0.0 else 0.0


def _without(corner: Coordinates, whole: tuple[int, ...]) -> Coordinates:
    return tuple(0 if i in whole else at for i, at in enumerate(corner))


Solve = Callable[[Vector], tuple[Vector, Vector | None]]


def _with_map(program: Program) -> Solve:
    exact = ExactPlanner(program)
    return exact.tangent


def _without_map(program: Program) -> Solve:
    lp = LinearProgram(program)
    return lambda rates: (lp.solve(rates)[0], None)
