"""A leaf's table, with complementary local plans for its splits (short paper 3.2, long paper 6.2).

Drop locations are sorted greedily by quality lost per load saved; once a location is in the list, those above it save
and lose less. A row whose load exceeds the capacity drops along that list, and is kept if the excess is gone before
an input's turn comes: dropping at the input is the parent's business.

On one resource and a tree of splits this is a fractional knapsack with precedence, so the greedy order is optimal;
elsewhere (unions, joins, several resources) plans come from the linear program instead, see `fit_planner`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from floodway.errors import PlanningError
from floodway.planning.fit.lattice import feasible_codes, rates_of
from floodway.planning.fit.table import FitTable
from floodway.planning.program import FEASIBILITY_TOLERANCE, Matrix, Program, Vector

MOST_ROWS = 2_000_000


def leaf_table(program: Program, points: Sequence[Vector]) -> FitTable:
    """All feasible (also with a plan) combinations of the sample `points`, one array an input."""
    tree = _Tree(program)
    limits = tree.planned_load / program.capacity
    codes = feasible_codes(points, limits.reshape(1, -1), MOST_ROWS)
    if codes is None:
        raise PlanningError(
            f"more than {MOST_ROWS} rows for {len(points)} inputs",
            hint="Use a larger spread, or the exact planner, which needs no table",
        )
    rates = rates_of(points, codes)
    flows, feasible = tree.plan(rates)
    rates, flows = rates[feasible], flows[feasible]
    full = rates @ program.full_flow.T
    dropped = flows < full * (1 - 1e-12) - 1e-15
    plans = np.where(dropped, flows, np.inf)
    return FitTable(
        inputs=program.streams,
        rates=rates,
        scores=flows @ program.objective,
        loads=flows @ program.use[0],
        plans=plans if dropped.any() else None,
    )


def greedy_order(program: Program) -> tuple[str, ...]:
    """Drop locations in the order in which a local plan uses them, the inputs included.

    For the papers' split (shared cost 1, branches 2 and 5) this is the lower branch, then the input.
    """
    return tuple(name for name, _ in _Tree(program).order)


class _Tree:
    """One server's splits as a tree of arcs below each stream."""

    def __init__(self, program: Program) -> None:
        inner = np.flatnonzero(program.stream_of < 0)
        emit = np.zeros((program.size, program.size))
        emit[inner] = -program.nesting
        emit[inner, inner] += 1.0
        if len(program.use) != 1 or np.any((emit[inner] > 0).sum(axis=1) != 1):
            raise PlanningError(
                f"network {program.network.name!r} is not one server with splits only",
                hint="Use FitPlanner, which takes local plans from the linear program",
            )
        self.program = program
        self.emit: Matrix = emit
        self.order = self._sorted()
        self.planned_load = self._planned_load()

    def plan(self, rates: Matrix) -> tuple[Matrix, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
        """Flows on all arcs after the local plan, and which rows need no drop at an input."""
        program = self.program
        capacity = float(program.capacity[0])
        flows = rates @ program.full_flow.T
        excess = flows @ program.use[0] - capacity
        load, _ = self._factors(np.zeros(program.size, dtype=bool))
        gone = np.zeros(program.size, dtype=bool)
        barred = np.zeros(len(rates), dtype=bool)
        for name, arcs in self.order:
            if name in program.streams:
                # Once this input would have to shed, rows that need more belong to smaller rates of it.
                stream = program.streams.index(name)
                barred |= (excess > capacity * FEASIBILITY_TOLERANCE) & (rates[:, stream] > 0)
                gone[self._below(arcs)] = True
                load, _ = self._factors(gone)
                continue
            (arc,) = arcs
            cut = np.clip(excess / load[arc], 0.0, flows[:, arc]) if load[arc] > 0 else np.zeros(len(rates))
            keep = np.where(flows[:, arc] > 0, 1.0 - cut / np.where(flows[:, arc] > 0, flows[:, arc], 1.0), 1.0)
            flows[:, self._below([arc])] *= keep[:, None]
            excess = excess - cut * load[arc]
            gone[self._below([arc])] = True
            load, _ = self._factors(gone)
        return flows, ~barred & (excess <= capacity * FEASIBILITY_TOLERANCE)

    def _sorted(self) -> list[tuple[str, list[int]]]:
        program = self.program
        waiting: list[tuple[str, list[int]]] = [
            (name, np.flatnonzero(program.stream_of == s).tolist()) for s, name in enumerate(program.streams)
        ]
        lone = {arcs[0] for _, arcs in waiting if len(arcs) == 1}
        waiting += [(str(arc), [a]) for a, arc in enumerate(program.variables) if a not in lone]
        gone = np.zeros(program.size, dtype=bool)
        order: list[tuple[str, list[int]]] = []
        while waiting:
            load, quality = self._factors(gone)
            ratio = [_ratio(float(quality[arcs].sum()), float(load[arcs].sum())) for _, arcs in waiting]
            chosen = waiting.pop(int(np.argmin(ratio)))
            order.append(chosen)
            gone[self._below(chosen[1])] = True
            waiting = [(name, arcs) for name, arcs in waiting if not gone[arcs].all()]
        return order

    def _factors(self, gone: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> tuple[Vector, Vector]:
        """Load saved and quality lost per tuple/s dropped on each arc, with the arcs `gone` out of play."""
        load, quality = self.program.use[0].copy(), self.program.objective.copy()
        for a in range(self.program.size - 1, -1, -1):
            if gone[a]:
                load[a] = quality[a] = 0.0
            load += self.emit[a] * load[a]
            quality += self.emit[a] * quality[a]
        return load, quality

    def _below(self, arcs: Sequence[int]) -> list[int]:
        """These arcs and all that hang from them."""
        inside = np.zeros(self.program.size, dtype=bool)
        inside[list(arcs)] = True
        for a in range(self.program.size):
            inside[a] |= bool(np.any(self.emit[a][inside] > 0))
        return np.flatnonzero(inside).tolist()

    def _planned_load(self) -> Vector:
        """Load per tuple/s of each stream once all that precedes it in the order is dropped."""
        gone = np.zeros(self.program.size, dtype=bool)
        least = np.zeros(len(self.program.streams))
        for name, arcs in self.order:
            if name in self.program.streams:
                load, _ = self._factors(gone)
                least[self.program.streams.index(name)] = float(load[arcs].sum())
            gone[self._below(arcs)] = True
        return least


def _ratio(quality: float, load: float) -> float:
    if load > 0:
        return quality / load
    return float("inf")
