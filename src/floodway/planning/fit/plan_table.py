"""The table of a block with splits, unions or joins: optimal local plans on a grid of offered rates.

A row is a grid point and the flows of an optimal plan there, found by the linear program (its region map answers in
microseconds). Between grid points plans are mixed: a convex combination of feasible (rate, plan) pairs is feasible,
because the set of all such pairs is convex. A cell has several triangulations; the one that earns most is taken.

Where nothing has to be dropped nothing is lost; elsewhere only cells that a bend of the optimum crosses lose
anything. The grid is made finer until probes against the optimum find at most half of ε (docs/decisions/0055).

Using what a row leaves over: raise flows towards what arrives, best score per scarcest resource first.

A row comes from a grid, so applying it leaves some room on every resource. The planner knows the constraints, and one
greedy pass makes the plan tight. On one resource and without splits this alone would be optimal.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy as np

from floodway.errors import PlanningError
from floodway.planning.fit.reduce import ProgramBlock
from floodway.planning.program import Matrix, Vector

MOST_ROWS = 20_000
MOST_INPUTS = 9
_FIRST_STEPS = 8
_MOST_STEPS = 256
_SAFE = 0.5
"""Part of ε that the probes may find before a finer grid is made: they do not see everything."""
_FILL_ARCS = 64
"""Above this many arcs the greedy fill costs more than it brings."""


class PlanTable:
    """Plans (rows × arcs) on the product of `axes`, one axis a stream, the last axis running fastest."""

    def __init__(self, axes: Sequence[Vector], plans: Matrix, value: Vector, filler: Filler | None = None) -> None:
        self.axes = tuple(axes)
        self.plans = plans
        self.scores: Vector = plans @ value
        self._points = [axis.tolist() for axis in axes]
        sizes = [len(axis) for axis in axes]
        self._strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        self._flips = list(itertools.product((False, True), repeat=len(sizes) - 1)) if len(sizes) <= 4 else []
        self._filler = filler

    @property
    def rows(self) -> int:
        """Grid points held."""
        return len(self.plans)

    def flows(self, rates: Vector) -> Vector:
        """Flows on the block's arcs at these rates."""
        rows, weights = self._mix(rates.tolist())
        flow = np.array(weights).dot(self.plans[rows])
        return flow if self._filler is None else self._filler.fill(flow, rates)

    def _mix(self, rates: list[float]) -> tuple[list[int], list[float]]:
        corner, parts = 0, []
        for points, stride, rate in zip(self._points, self._strides, rates, strict=True):
            at = min(bisect_right(points, rate) - 1, len(points) - 2)
            corner += at * stride
            parts.append(min((rate - points[at]) / (points[at + 1] - points[at]), 1.0))
        if not self._flips:
            return _simplex(corner, parts, self._strides)
        best, chosen = -1.0, ([corner], [1.0])
        for flips in self._flips:
            start, shares, strides = corner, [parts[0]], [self._strides[0]]
            for flip, part, stride in zip(flips, parts[1:], self._strides[1:], strict=True):
                start += stride if flip else 0
                shares.append(1.0 - part if flip else part)
                strides.append(-stride if flip else stride)
            rows, weights = _simplex(start, shares, strides)
            earned = sum(w * self.scores[row] for row, w in zip(rows, weights, strict=True))
            if earned > best:
                best, chosen = earned, (rows, weights)
        return chosen


def _simplex(corner: int, parts: Sequence[float], strides: Sequence[int]) -> tuple[list[int], list[float]]:
    """Kuhn's simplex of a cell: walk from the corner along the inputs, largest part first."""
    rows, weights, last = [corner], [], 1.0
    for i in sorted(range(len(parts)), key=lambda i: -parts[i]):
        rows.append(rows[-1] + strides[i])
        weights.append(last - parts[i])
        last = parts[i]
    return rows, [*weights, last]


def plan_table(
    block: ProgramBlock,
    epsilon: float,
    optimal: Callable[[Matrix], Matrix],
    error: Callable[[PlanTable], float],
    most_rows: int = MOST_ROWS,
) -> PlanTable:
    """Build the table: a coarse grid first, a finer one while `error(table)` is near ε and rows are left.

    `optimal(rates)` gives flows of optimal plans on the block's arcs, one row for each row of rates.
    """
    inputs = len(block.streams)
    if inputs > MOST_INPUTS:
        raise PlanningError(
            f"{inputs} streams that share splits, unions or joins are too many for a table of plans",
            hint="Use the exact planner, which needs no table",
        )
    most = max(math.floor(most_rows ** (1 / inputs) + 1e-9) - 1, 1)
    most = min(most, _MOST_STEPS)
    count = min(_FIRST_STEPS, most)
    while True:
        axes = _axes(block, count)
        points = np.array(list(itertools.product(*(axis.tolist() for axis in axes))))
        table = PlanTable(axes, optimal(points), block.value, block_filler(block))
        if count >= most or error(table) <= _SAFE * epsilon:
            return table
        count = min(2 * count, most)


def block_filler(block: ProgramBlock) -> Filler | None:
    """The greedy fill, where it is worth its time."""
    return Filler(block) if len(block.arcs) <= _FILL_ARCS else None


def _axes(block: ProgramBlock, count: int) -> list[Vector]:
    """Even steps up to R_i, what a stream can bring with no drop; above it wider ones, to where more is no use."""
    use = block.share @ full_flow(block)
    axes = []
    for i, most in enumerate(useful_rates(block)):
        below = 1.0 / float(use[:, i].max())
        if most <= below * (1 + 1e-9):
            axes.append(np.linspace(0.0, below, count + 1))
            continue
        above = max(count // 2, 1)
        tail = below * (most / below) ** (np.arange(1, above + 1) / above)
        axes.append(np.concatenate([np.linspace(0.0, below, max(count - above, 1) + 1), tail]))
    return axes


def useful_rates(block: ProgramBlock) -> list[float]:
    """What each stream can bring before no path below it can carry more, however much is dropped elsewhere."""
    full = full_flow(block)
    limit = 1.0 / block.share.max(axis=0)
    reached = full > 0
    return [float((limit[reached[:, i]] / full[reached[:, i], i]).max()) for i in range(len(block.streams))]


def full_flow(block: ProgramBlock) -> Matrix:
    """Flows per unit of every rate when nothing is dropped (arcs × streams)."""
    full = np.zeros((len(block.arcs), len(block.streams)))
    for a, stream in enumerate(block.stream_of):
        if stream >= 0:
            full[a, stream] = 1.0
        else:
            full[a] = block.emit_flow[a] @ full + block.emit_rate[a]
    return full


class Filler:
    """Plain lists on purpose: at these sizes Python floats are quicker than arrays."""

    def __init__(self, block: ProgramBlock) -> None:
        self._share = block.share
        scarcest = block.share.max(axis=0)
        density = block.value / np.where(scarcest > 0, scarcest, 1.0)
        self._order = [int(a) for a in np.argsort(-density, kind="stable") if density[a] > 0]
        self._needs = [[(int(k), float(column[k])) for k in np.flatnonzero(column)] for column in block.share.T]
        self._stream_of = block.stream_of.tolist()
        self._from_flow = [[(int(b), float(row[b])) for b in np.flatnonzero(row)] for row in block.emit_flow]
        self._from_rate = [[(int(s), float(row[s])) for s in np.flatnonzero(row)] for row in block.emit_rate]

    def fill(self, flow: Vector, rates: Vector) -> Vector:
        """Flows at least as large, still feasible; `rates` are the block's streams'."""
        room = (1.0 - self._share.dot(flow)).tolist()
        flows, arriving = flow.tolist(), rates.tolist()
        for a in self._order:
            stream = self._stream_of[a]
            if stream >= 0:
                gap = arriving[stream] - flows[a]
            else:
                gap = -flows[a]
                for b, factor in self._from_flow[a]:
                    gap += factor * flows[b]
                for s, factor in self._from_rate[a]:
                    gap += factor * arriving[s]
            if gap <= 0.0:
                continue
            needs = self._needs[a]
            for k, use in needs:
                most = room[k] / use
                if most < gap:
                    gap = most
            if gap > 0.0:
                flows[a] += gap
                for k, use in needs:
                    room[k] -= gap * use
        return np.array(flows)
