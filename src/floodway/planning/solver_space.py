"""The rate space that a solver planner divides: how far each stream's rate matters, and which streams cost
nothing.

**Useful rates.** A plan *without waste* lets into an operator no more than its consumers take; every plan
has one of the same score (lower what enters an operator until that holds, from the outputs upwards). In
such a plan the flow on an arc into operator o obeys

    flow <= min( capacity / use,  useful(o) / contribution ),     useful(p) = max over the arcs out of p,

where capacity / use is the least over all resources that a tuple on this arc uses down to the next split,
and an arc into an output is bounded by nothing. So a rate beyond useful(stream) never raises the optimum:
clamping to it loses nothing. With a split this is more than the plan-free limit: in the split example of
PAPERS.md it is 1/3, not 1/8.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from floodway.errors import PlanningError
from floodway.network.model import Arc
from floodway.planning.program import Program, Vector


@dataclass(frozen=True, slots=True)
class RateSpace:
    """The box that is divided.

    `dimensions` are the streams (by index) that use resources at all, `top` their bounds. Rates above
    `limit` (infinite where clamping loses nothing) are outside: no plan was prepared for them.
    """

    dimensions: NDArray[np.int64]
    top: Vector
    limit: Vector


def useful_rates(program: Program) -> Vector:
    """The largest rate of every stream that can still raise the optimum (infinite where nothing bounds
    it)."""
    network = program.network
    with np.errstate(divide="ignore"):
        limits = np.where(program.use > 0, program.capacity[:, None] / program.use, inf)
    columns = dict(zip(program.variables, limits.min(axis=0, initial=inf).tolist(), strict=True))
    useful: dict[str, float] = {}
    for producer in (*reversed(network.order), *network.streams):
        arcs = [Arc(producer, consumer) for consumer in network.consumers[producer]]
        useful[producer] = max(_useful_flow(program, arc, columns.get(arc, inf), useful) for arc in arcs)
    return np.array([useful[name] for name in network.streams])


def rate_space(program: Program, *, clamp: bool = True) -> RateSpace:
    """The box up to every stream's maximum rate, clamped to what is useful unless `clamp` is off."""
    useful = useful_rates(program)
    given = np.array([inf if s.max_rate is None else s.max_rate for s in program.network.streams.values()])
    top = np.minimum(given, useful) if clamp else given
    costly: NDArray[np.bool_] = program.full_use.max(axis=0, initial=0.0) > 0
    unbounded = [
        name for name, c, t in zip(program.streams, costly, top, strict=True) if c and not np.isfinite(t)
    ]
    if unbounded:
        raise PlanningError(
            f"stream {unbounded[0]!r} has no max_rate, so the rates to plan for in advance have no end",
            hint=f"Give streams.{unbounded[0]}.max_rate in the network file, or use the exact planner",
        )
    limit = np.where(~costly | (top >= useful), inf, top)
    # A stream that may bring nothing needs no dimension: above its limit of 0 the point is outside the box.
    dimensions = np.flatnonzero(costly & (top > 0))
    return RateSpace(dimensions, top[dimensions], limit)


def _useful_flow(program: Program, arc: Arc, column: float, useful: dict[str, float]) -> float:
    operator = program.network.operators.get(arc.consumer)
    if operator is None:
        return column
    contribution = program.network.contribution(operator, arc.producer)
    return min(column, useful[arc.consumer] / contribution) if contribution > 0 else column
