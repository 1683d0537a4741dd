"""FIT, centralised (C-FIT): tables of feasible rates built in advance, looked up when overload comes.

Each independent fragment of the network gets a table: rows applied as min(F, r) where there is nothing to split
(`fit_direct`), mixed plans on a grid otherwise (`fit_plans`), plans carried up node by node where the network is a large
tree (`fit_tree`). Every answer is compared with a dual bound on the optimum; one that cannot be shown to be within ε is
replaced by a solved one, so ε holds at any rates on any network, however coarse the table had to be.

Short paper, section 3; long paper, section 6.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from floodway.errors import InputError, PlanningError
from floodway.planning.exact import ExactPlanner
from floodway.planning.fit_bounds import DualBounds
from floodway.planning.fit_direct import MOST_ROWS, DirectTable, Spread, direct_table
from floodway.planning.fit_plans import PlanTable, plan_table
from floodway.planning.fit_reduce import Fragment, Reduced, reduce_program
from floodway.planning.fit_tree import tree_table
from floodway.planning.lp import LinearProgram
from floodway.planning.plan import Planner
from floodway.planning.program import Matrix, Program, Vector

_PROBES = 48
_TREE_PROBES = 16
_MOST_ARCS = 800
"""Above this a miss of the region map takes seconds, and a table hundreds of them."""
_LOOSE = 1e-7
"""A bound this much above the optimum, relatively, is worth a better one."""


@dataclass(frozen=True)
class _Part:
    fragment: Fragment
    table: DirectTable | PlanTable
    bounds: DualBounds | None


class FitPlanner(Planner):
    """Plans within ε of the optimum from a table. `size` is the number of rows.

    `solved` counts look-ups whose table answer was not within ε and was replaced; `table_epsilon` is the largest error
    of the tables alone over probes (random rates, axes, corners, tiny rates). On large trees answers are not checked
    one by one; `achieved_epsilon`, computed when asked for, says what the probes found.
    """

    name = "fit"

    def __init__(
        self,
        program: Program,
        epsilon: float = 0.05,
        *,
        spread: Spread | str = Spread.AUTO,
        most_rows: int = MOST_ROWS,
        verify: bool = True,
    ) -> None:
        super().__init__(program)
        if not (np.isfinite(epsilon) and 0 < epsilon < 1):
            raise InputError(f"epsilon {epsilon} is outside (0, 1)", hint="Use 0.05 for plans within five percent")
        started = time.perf_counter()
        self.epsilon = epsilon
        self.verify = verify
        self.solved = 0
        self._parts: list[_Part] = []
        self._tree = tree_table(program)
        if self._tree is None:
            fragments = self._reduced.fragments
            self._parts = [self._part(fragment, Spread(spread), most_rows) for fragment in fragments]
            self._learn_bounds()
        self.build_seconds = time.perf_counter() - started

    @property
    def size(self) -> int:
        """Rows of all tables."""
        if self._tree is not None:
            return self._tree.rows
        return sum(part.table.rows for part in self._parts)

    def lookup(self, rates: Vector) -> Vector:
        """Keeps for overloaded rates."""
        return self.program.keeps(self.flows(rates), rates)

    def flows(self, rates: Vector) -> Vector:
        """Flows on all free arcs at these rates (tuples/s)."""
        if self._tree is not None:
            return self._tree.flows(rates)
        flow = np.empty(len(self._reduced.costly))
        for part in self._parts:
            own = part.fragment
            here = rates[own.streams]
            mine = part.table.flows(here)
            if part.bounds is not None and not self._shown(part, part.bounds, mine, here):
                mine = self._solve(part, part.bounds, mine, rates)
            flow[own.arcs] = mine
        return self._reduced.arcs(flow, rates)

    @cached_property
    def achieved_epsilon(self) -> float:
        """Largest relative error of this planner's answers over the probes, against the optimum."""
        if self._tree is not None:
            return self._tree_error(self._tree)
        return self.table_epsilon if not self.verify else min(self.table_epsilon, self.epsilon)

    @cached_property
    def table_epsilon(self) -> float:
        """Largest relative error over the probes if no answer were ever solved: how good the tables are alone."""
        worst = 0.0
        for part in self._parts:
            probes = [rates[part.fragment.streams] for rates in self._probes(part.fragment)]
            best = [self._optimum(part.fragment, here) for here in probes]
            worst = max(worst, self._worst(part.fragment, part.table, probes, best))
        return worst

    def _tree_error(self, table: PlanTable) -> float:
        rng = np.random.default_rng(20070923)
        top = np.array([axis[-1] for axis in table.axes])
        worst = 0.0
        for rates in rng.random((_TREE_PROBES, len(top))) * 1.5 * top:
            flows, _ = self._lp.solve(rates)
            best = self.program.score(flows)
            worst = max(worst, 1.0 - self.program.score(table.flows(rates)) / best if best > 0 else 0.0)
        return worst

    @cached_property
    def _reduced(self) -> Reduced:
        return reduce_program(self.program)

    @cached_property
    def _lp(self) -> LinearProgram:
        return LinearProgram(self.program)

    @cached_property
    def _exact(self) -> ExactPlanner:
        return ExactPlanner(self.program)

    def _part(self, fragment: Fragment, spread: Spread, most_rows: int) -> _Part:
        table: DirectTable | PlanTable
        if fragment.direct:
            table = direct_table(fragment, self.epsilon, spread, most_rows)
        else:
            self._refuse_if_large(fragment)
            probes = [rates[fragment.streams] for rates in self._probes(fragment)]
            best = [self._optimum(fragment, here) for here in probes]
            table = plan_table(
                fragment,
                self.epsilon,
                lambda rates: self._optimal(fragment, rates),
                lambda found: self._worst(fragment, found, probes, best),
            )
        bounds = DualBounds(self._reduced, fragment, self._lp) if self.verify else None
        return _Part(fragment, table, bounds)

    def _refuse_if_large(self, fragment: Fragment) -> None:
        if self.program.size > _MOST_ARCS:
            raise PlanningError(
                f"{len(fragment.arcs)} arcs with splits in network {self.network.name!r} are too many for a table of plans",
                hint="Use the exact planner, which needs no table; trees of nodes with one or two inputs have no limit",
            )

    def _optimal(self, fragment: Fragment, here: Matrix) -> Matrix:
        """Optimal flows on a fragment's arcs for rows of rates of its streams."""
        arcs = self._reduced.costly[fragment.arcs]
        rates = np.zeros(len(self.program.streams))
        flows = np.empty((len(here), len(arcs)))
        for row, point in enumerate(here):
            rates[fragment.streams] = point
            flows[row] = self._exact.flows(rates)[arcs]
        # The solver is right to 1e-9; clipping makes flows exactly what can arrive.
        return fragment.clip(np.maximum(flows, 0.0), here)

    def _optimum(self, fragment: Fragment, here: Vector) -> float:
        return self._value(fragment, self._optimal(fragment, here[None])[0], here)

    def _worst(
        self, fragment: Fragment, table: DirectTable | PlanTable, probes: list[Vector], best: list[float]
    ) -> float:
        """Largest relative error of a table over probes whose optima are known."""
        errors = [
            1.0 - self._value(fragment, table.flows(here), here) / top
            for here, top in zip(probes, best, strict=True)
            if top > 0
        ]
        return max(errors, default=0.0)

    def _value(self, fragment: Fragment, flow: Vector, here: Vector) -> float:
        return float(fragment.value.dot(flow) + self._reduced.rate_value[fragment.streams].dot(here))

    def _shown(self, part: _Part, bounds: DualBounds, flow: Vector, here: Vector) -> bool:
        """Whether these flows are within ε of a bound on the optimum."""
        return self._value(part.fragment, flow, here) >= bounds.at(here) * (1.0 - self.epsilon)

    def _solve(self, part: _Part, bounds: DualBounds, flow: Vector, rates: Vector) -> Vector:
        """Sharpen the bound with a solve; take the optimum if the table's answer was really worse than ε."""
        here = rates[part.fragment.streams]
        best = self._optimal(part.fragment, here[None])[0]
        value = self._value(part.fragment, best, here)
        if bounds.at(here) > value * (1.0 + _LOOSE):
            only = np.zeros(len(rates))
            only[part.fragment.streams] = here
            _, basis = self._lp.solve(only)
            bounds.add(basis)
        if self._value(part.fragment, flow, here) >= value * (1.0 - self.epsilon):
            return flow
        self.solved += 1
        return best

    def _learn_bounds(self) -> None:
        for part in self._parts:
            for rates in self._probes(part.fragment):
                if part.bounds is not None:
                    _, basis = self._lp.solve(rates)
                    part.bounds.add(basis)

    def _probes(self, fragment: Fragment) -> list[Vector]:
        """Rates that find errors: axes, corners, tiny parts, and a spread of random mixes."""
        rng = np.random.default_rng(20070923)
        inputs = len(fragment.streams)
        top = 2.0 * np.where(np.isfinite(self._tops), self._tops, 1.0)[fragment.streams]
        random = rng.random((_PROBES, inputs)) ** rng.choice([0.5, 1.0, 3.0], size=(_PROBES, 1))
        mixed = random * rng.choice([1.0, 1e-3], size=random.shape, p=[0.85, 0.15])
        here = np.vstack([np.eye(inputs), np.ones((1, inputs)), 1.0 - np.eye(inputs), mixed]) * top
        probes = np.zeros((len(here), len(self.program.streams)))
        probes[:, fragment.streams] = here
        return list(probes)

    @cached_property
    def _tops(self) -> Vector:
        return self.program.max_feasible_rates
