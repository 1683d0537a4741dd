"""Error bounds of cells, from optima at their corners; `solver.py` states the two rules and proves them.

The rate space that a solver planner divides: how far each stream's rate matters, and which streams cost nothing.

**Useful rates.** A plan *without waste* lets into an operator no more than its consumers take; every plan has one of
the same score (lower what enters an operator until that holds, from the outputs upwards). In such a plan some path
from any arc on carries all that its arcs emit. So with use(p), for every resource, the least that a tuple of p uses
on any path below, the flow on an arc into operator o obeys

    flow <= min( capacity / (direct use + contribution·use(o)),  useful(o) / contribution )

over all resources, useful(p) being the largest such bound of p's arcs; an arc into an output uses nothing and has no
bound. A rate beyond useful(stream) never raises the optimum: clamping to it loses nothing. With a split it is more
than the plan-free limit: in the split example of PAPERS.md 1/3, not 1/8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from floodway.errors import PlanningError
from floodway.network.flow import link_of, memory_factor
from floodway.network.model import Arc
from floodway.planning.exact import ExactPlanner
from floodway.planning.lp import LinearProgram
from floodway.planning.program import Matrix, Program, Vector
from floodway.planning.quadtree import GRID, Coordinates, RegionQuadtree


@dataclass(frozen=True, slots=True)
class RateSpace:
    """The box that is divided.

    `dimensions` are the streams (by index) that use resources at all, `top` their bounds. Rates above `limit`
    (infinite where clamping loses nothing) are outside: no plan was prepared for them.
    """

    dimensions: NDArray[np.int64]
    top: Vector
    limit: Vector


def useful_rates(program: Program) -> Vector:
    """The largest rate of every stream that can still raise the optimum (infinite where it has no bound)."""
    network = program.network
    useful: dict[str, float] = {}
    use: dict[str, Vector] = {}
    for producer in (*reversed(network.order), *network.streams):
        bounds: list[float] = []
        uses: list[Vector] = []
        for consumer in network.consumers[producer]:
            arc = Arc(producer, consumer)
            operator = network.operators.get(consumer)
            if operator is None:
                bounds.append(inf)
                uses.append(np.zeros(len(program.resources)))
                continue
            contribution = network.contribution(operator, producer)
            uses.append(_direct_use(program, arc) + contribution * use[consumer])
            below = useful[consumer] / contribution if contribution > 0 else inf
            bounds.append(min(_most(program.capacity, uses[-1]), below))
        useful[producer] = max(bounds)
        use[producer] = np.min(uses, axis=0)
    return np.array([useful[name] for name in network.streams])


def rate_space(program: Program, *, clamp: bool = True) -> RateSpace:
    """The box up to every stream's maximum rate, clamped to what is useful unless `clamp` is off."""
    useful = useful_rates(program)
    given = np.array([inf if s.max_rate is None else s.max_rate for s in program.network.streams.values()])
    top = np.minimum(given, useful) if clamp else given
    costly: NDArray[np.bool_] = program.full_use.max(axis=0, initial=0.0) > 0
    unbounded = [name for name, c, t in zip(program.streams, costly, top, strict=True) if c and not np.isfinite(t)]
    if unbounded:
        raise PlanningError(
            f"stream {unbounded[0]!r} has no max_rate, so the rates to plan for in advance have no end",
            hint=f"Give streams.{unbounded[0]}.max_rate in the network file, or use the exact planner",
        )
    limit = np.where(~costly | (top >= useful), inf, top)
    # A stream that may bring nothing needs no dimension: above its limit of 0 the point is outside the box.
    dimensions = np.flatnonzero(costly & (top > 0))
    return RateSpace(dimensions, top[dimensions], limit)


def _direct_use(program: Program, arc: Arc) -> Vector:
    """What a tuple on an arc into an operator uses of every resource there, without anything further down."""
    network = program.network
    operator = network.operators[arc.consumer]
    link = link_of(network, arc)
    own = {
        ("cpu", operator.node): operator.cost or 0.0,
        ("memory", operator.node): memory_factor(network, arc),
        ("bandwidth", "->".join(link) if link else ""): network.tuple_bytes(arc.producer),
    }
    return np.array([own.get((resource.kind, resource.name), 0.0) for resource in program.resources])


def _most(capacity: Vector, use: Vector) -> float:
    used = use > 0
    return float((capacity[used] / use[used]).min(initial=inf))


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
