"""Ties between optimal plans: which choices are arbitrary, and the most even of all optimal plans.

Where two streams cost and earn the same, the linear program does not care which is dropped, and a corner of it drops
one of them whole. So among the optimal plans the one with the most even shares is taken, where the share of a free
arc a is its flow over what it would carry with no drop at all, x_a / f_a(r):

    raise the least share as far as it goes; fix those that cannot rise any further; go on with the rest

This is the lexicographic max-min optimum over the optimal face. A basis knows its face: non-basic variables (and
slacks) whose reduced cost is 0 may enter it, and with each the basic variables that move then.

>>> import numpy as np
>>> from floodway.network.model import Network, Node, Operator, Output, Stream
>>> from floodway.planning.exact import ExactPlanner
>>> from floodway.planning.program import Program
>>> net = Network("n", {"s": Stream("s"), "t": Stream("t")}, {"A": Node("A")},
...               {"a": Operator("a", "A", ("s",), cost=1.0), "b": Operator("b", "A", ("t",), cost=1.0)},
...               {"q": Output("q", "a"), "p": Output("p", "b")})
>>> plan = ExactPlanner(Program(net)).plan({"s": 1.0, "t": 3.0})
>>> {at: round(keep, 9) for at, keep in plan.keeps.items()}, plan.ties
({'s': 0.25, 't': 0.25}, (('s', 't'),))
"""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

from floodway.errors import PlanningError
from floodway.planning.lp import NONZERO_DUAL, OBJECTIVE_SIZE, Basis, LinearProgram, new_model, solve
from floodway.planning.program import Matrix, Program, Vector

TIE = 1e-9
"""A reduced cost below this part of the largest objective coefficient is 0."""
"""The best score as a row: with the solver's tolerance of 1e-9, no plan loses more than 1e-12 of it."""


def tie_groups(lp: LinearProgram, basis: Basis) -> NDArray[np.int64]:
    """For every variable the number of the tie that it is part of, -1 for none.

    Variables of one group can be traded against each other without a loss; a group of one is worth nothing.
    """
    objective = lp.program.objective * lp.unit
    size = float(objective.max(initial=0.0)) or 1.0
    basic, tight = np.flatnonzero(basis.basic), np.flatnonzero(basis.tight)
    other = np.flatnonzero(~basis.basic)
    groups = np.full(lp.program.size, -1, dtype=np.int64)
    matrix = lp.matrix[np.ix_(tight, basic)]
    try:
        prices = np.linalg.solve(matrix.T, objective[basic])
        entering = other[np.abs(objective[other] - prices @ lp.matrix[np.ix_(tight, other)]) <= TIE * size]
        slack = np.flatnonzero(np.abs(prices) <= TIE * size)
        columns = np.hstack([lp.matrix[np.ix_(tight, entering)], np.eye(len(tight))[:, slack]])
        moved = np.abs(np.linalg.solve(matrix, columns)) > TIE
    except np.linalg.LinAlgError:
        return groups
    for place in range(columns.shape[1]):
        members = list(basic[moved[:, place]])
        members += [entering[place]] if place < len(entering) else []
        joined = {int(groups[member]) for member in members} - {-1}
        number = int(groups.max(initial=-1)) + 1
        groups[np.isin(groups, list(joined))] = number
        groups[members] = number
    return groups


def even_flows(lp: LinearProgram, rates: Vector, flows: Vector, movable: NDArray[np.bool_]) -> Vector:
    """Of all optimal flows that differ from these in the movable variables only, the most even ones.

    The variables of this program are the shares, not the flows: a stream of a tuple an hour counts like any other.
    """
    program = lp.program
    full = program.full_flow @ rates
    free = np.flatnonzero(movable & (full > 0))
    if not len(free):
        return flows
    x, size = flows / lp.unit, full[free] / lp.unit[free]
    rows = lp.matrix[:, free] * size
    used = rows.any(axis=1)
    rows, room = rows[used], lp.bound[used] - lp.matrix[used] @ np.where(movable, 0.0, x)
    worth = program.objective[free] * full[free]
    worth = worth / (float(worth.max()) or 1.0) * OBJECTIVE_SIZE
    upper = np.where(program.stream_of[free] >= 0, 1.0, highspy.kHighsInf)
    # What the solver's tolerance leaves over a row or a bound is not asked back: the plan at hand must be feasible.
    now = np.clip(x[free] / size, 0.0, upper)
    room = np.maximum(room, rows @ now)
    try:
        shares = _max_min(rows, room, worth, float(worth @ now), upper, program.network.name)
    except PlanningError:
        return flows  # optimal too; rounding leaves no room to choose
    found = flows.copy()
    found[free] = shares * full[free]
    return found


def _max_min(rows: Matrix, room: Vector, worth: Vector, score: float, upper: Vector, network: str) -> Vector:
    """The lexicographic max-min k with rows·k <= room, worth·k >= score, 0 <= k <= upper."""
    count = len(worth)
    highs = _model(rows, room, worth, score, upper)
    first = len(rows) + 1
    active = list(range(count))
    shares = np.zeros(count)
    while active:
        solve(highs, network)
        solution = highs.getSolution()
        shares = np.array(solution.col_value[:count])
        least = max(0.0, float(solution.col_value[count]))
        duals = np.abs(np.array(solution.row_dual)[first:])
        stuck = [place for place in active if duals[place] > NONZERO_DUAL]
        # The duals of the active rows add up to 1, or t is at its own bound of 1 and all shares are there.
        for place in stuck or (list(active) if least >= 1.0 else [max(active, key=lambda one: float(duals[one]))]):
            active.remove(place)
            highs.changeCoeff(first + place, count, 0.0)
            highs.changeRowBounds(first + place, least, highspy.kHighsInf)
    return np.clip(shares, 0.0, upper)


def _model(rows: Matrix, room: Vector, worth: Vector, score: float, upper: Vector) -> highspy.Highs:
    """Columns k and t; rows as they are, then the score, then k - t >= 0 one by one; t as large as possible."""
    count = len(worth)
    own = np.vstack([rows, worth, np.eye(count)])
    least = np.concatenate([np.full(len(rows), -np.inf), [score], np.zeros(count)])
    most = np.append(room, np.full(1 + count, np.inf))
    column = np.append(np.zeros(len(rows) + 1), np.full(count, -1.0))
    objective = np.append(np.zeros(count), 1.0)
    return new_model(np.column_stack([own, column]), objective, lower=least, upper=most, most=np.append(upper, 1.0))


def tied_locations(program: Program, groups: Matrix | NDArray[np.int64]) -> tuple[tuple[str, ...], ...]:
    """The ties by the names of their drop locations."""
    known = set(program.network.drop_locations)
    found = []
    for number in sorted({int(group) for group in groups} - {-1}):
        arcs = [program.variables[place] for place in np.flatnonzero(groups == number)]
        found.append(tuple(str(arc) if str(arc) in known else arc.producer for arc in arcs))
    return tuple(found)
