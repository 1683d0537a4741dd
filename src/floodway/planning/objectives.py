"""Two other objectives on the same program: max-min fair outputs, and strict tiers. Both by successive LPs on HiGHS.

**fair**: raise t, the least throughput/weight of all outputs, as far as it goes; outputs whose row has a nonzero dual
cannot rise any further in any optimum, so they are fixed at t; go on with the rest until all are fixed. The result is
the lexicographic max-min optimum. Outputs of weight 0 are left out.

**tiers**: the weighted throughput of tier 0 as high as possible, then that of tier 1 with tier 0's kept, and so on.

Constraints and variables are those of `program.py`, so a scaled capacity is still a look-up at scaled rates.

>>> from floodway.network.model import Network, Node, Operator, Output, Stream
>>> net = Network("n", {"s": Stream("s"), "t": Stream("t")}, {"A": Node("A")},
...               {"a": Operator("a", "A", ("s",), cost=1.0), "b": Operator("b", "A", ("t",), cost=3.0)},
...               {"q": Output("q", "a"), "p": Output("p", "b")})
>>> plan = ObjectivePlanner(Program(net), Objective.FAIR).plan({"s": 1.0, "t": 1.0})
>>> {name: round(rate, 6) for name, rate in plan.throughput.items()}
{'q': 0.25, 'p': 0.25}
"""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

from floodway.errors import PlanningError
from floodway.planning.lp import NONZERO_DUAL, LinearProgram, new_model, solve
from floodway.planning.plan import Objective, Planner
from floodway.planning.program import Matrix, Program, Vector

_KEPT = 1.0 - 1e-9
"""Share of an earlier round's result that later rounds must keep: room for the solver's tolerance."""


class ObjectivePlanner(Planner):
    """Optimal plans for `fair` and `tiers`; every look-up is a few warm solves, nothing is prepared in advance."""

    name = "exact"

    def __init__(self, program: Program, objective: Objective) -> None:
        super().__init__(program)
        if objective is Objective.THROUGHPUT:
            raise PlanningError(
                "this planner is for the objectives fair and tiers", hint="Use ExactPlanner for throughput"
            )
        self.objective = objective
        self._rounds = _Rounds(program, _goals(program, objective))
        self.solves = 0

    @property
    def size(self) -> int:
        """Nothing is held in advance."""
        return 0

    def lookup(self, rates: Vector) -> Vector:
        """Keeps of an optimal plan."""
        return self.program.keeps(self.flows(rates), rates)

    def of_program(self, program: Program) -> ObjectivePlanner:
        """The same objective for another program."""
        return ObjectivePlanner(program, self.objective)

    def flows(self, rates: Vector) -> Vector:
        """Optimal flows x (tuples/s) on the free arcs."""
        before = self._rounds.solves
        flows = self._rounds.fair(rates) if self.objective is Objective.FAIR else self._rounds.in_order(rates)
        self.solves += self._rounds.solves - before
        return flows


def _goals(program: Program, objective: Objective) -> Matrix:
    """What is raised, one row a goal over the variables: throughput/weight of outputs, or the tiers' scores."""
    outputs = list(program.network.outputs.values())
    if objective is Objective.FAIR:
        rows = [program.throughput[i] / out.weight for i, out in enumerate(outputs) if out.weight > 0]
    else:
        rows = []
        for tier in sorted({out.tier for out in outputs if out.weight > 0}):
            members = [i for i, out in enumerate(outputs) if out.tier == tier]
            rows.append(program.weights[members] @ program.throughput[members])
    return np.array(rows).reshape(len(rows), program.size)


class _Rounds:
    """The program with one more column, t, and one more row a goal: goal(x) − on·t >= floor."""

    def __init__(self, program: Program, goals: Matrix) -> None:
        self._lp = LinearProgram(program)
        self._program = program
        scaled = goals * self._lp.unit
        # One common size, so that goals stay comparable and t is of the order of 1.
        self._size = float(scaled.max(initial=0.0)) or 1.0
        self._goals = scaled / self._size
        self._stream_columns = np.flatnonzero(program.stream_of >= 0).astype(np.int32)
        self._t = program.size
        self._first_goal = len(self._lp.bound)
        self._highs = self._model()
        self.solves = 0

    def fair(self, rates: Vector) -> Vector:
        """Raise the least goal, fix what cannot rise further, and so on."""
        self._reset(rates, cost_of_t=1.0)
        active = list(range(len(self._goals)))
        for goal in active:
            self._highs.changeCoeff(self._first_goal + goal, self._t, -1.0)
            self._highs.changeRowBounds(self._first_goal + goal, 0.0, highspy.kHighsInf)
        flows = np.zeros(self._program.size)
        while active:
            flows = self._solve()
            solution = self._highs.getSolution()
            duals = np.abs(np.array(solution.row_dual)[self._first_goal :])
            stuck = [goal for goal in active if duals[goal] > NONZERO_DUAL]
            # The duals of the active rows add up to 1: if all are tiny something is out of scale; take the largest.
            for goal in stuck or [max(active, key=lambda goal: float(duals[goal]))]:
                active.remove(goal)
                self._fix(goal, solution.col_value[self._t])
        return flows

    def in_order(self, rates: Vector) -> Vector:
        """Raise the first goal as far as possible, then the second, …"""
        self._reset(rates, cost_of_t=0.0)
        flows = np.zeros(self._program.size)
        columns = np.arange(self._program.size, dtype=np.int32)
        for goal, row in enumerate(self._goals):
            self._highs.changeColsCost(len(columns), columns, row)
            flows = self._solve()
            self._fix(goal, float(row @ (flows / self._lp.unit)))
        return flows

    def _fix(self, goal: int, value: float) -> None:
        self._highs.changeCoeff(self._first_goal + goal, self._t, 0.0)
        self._highs.changeRowBounds(self._first_goal + goal, max(value, 0.0) * _KEPT, highspy.kHighsInf)

    def _reset(self, rates: Vector, cost_of_t: float) -> None:
        size = self._program.size
        columns = np.arange(size + 1, dtype=np.int32)
        cost = np.zeros(size + 1)
        cost[self._t] = cost_of_t
        self._highs.changeColsCost(len(columns), columns, cost)
        bounded = self._stream_columns
        upper = rates[self._program.stream_of[bounded]] / self._lp.unit[bounded]
        self._highs.changeColsBounds(len(bounded), bounded, np.zeros(len(bounded)), upper)
        for goal in range(len(self._goals)):
            self._highs.changeCoeff(self._first_goal + goal, self._t, 0.0)
            self._highs.changeRowBounds(self._first_goal + goal, -highspy.kHighsInf, highspy.kHighsInf)

    def _solve(self) -> Vector:
        self.solves += 1
        solve(self._highs, self._program.network.name)
        values: NDArray[np.float64] = np.array(self._highs.getSolution().col_value[: self._t])
        return np.clip(values, 0.0, None) * self._lp.unit

    def _model(self) -> highspy.Highs:
        rows = np.vstack([self._lp.matrix, self._goals])
        upper = np.append(self._lp.bound, np.full(len(self._goals), np.inf))
        return new_model(np.column_stack([rows, np.zeros(len(rows))]), np.zeros(self._program.size + 1), upper=upper)
