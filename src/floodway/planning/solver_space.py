"""The rate space that a solver planner divides: how far each stream's rate matters, and which streams cost nothing.

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

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from floodway.errors import PlanningError
from floodway.network.flow import link_of, memory_factor
from floodway.network.model import Arc
from floodway.planning.program import Program, Vector


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
