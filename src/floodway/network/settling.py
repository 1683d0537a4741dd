"""The fair scheduler where nodes feed each other, so that none can be served first.

Every node and every limited link has one unknown, its level: the highest rate at which it serves any input. Given all
levels, rates follow downstream, because operators have no cycles; given the rates, water-filling asks for new levels.
The answer is the fixed point of the two, found by steps towards what is asked for. Each level has a step of its own,
halved when the level overshoots (what a node serves may come back as work that leaves it less to serve) and grown
while it keeps its direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from floodway.network.flow import Keeps
from floodway.network.model import Arc, Network
from floodway.network.sharing import Inlet, water_fill

_MAX_PASSES = 2000
_SETTLED = 1e-14


@dataclass
class _Gate:
    """A node or link: what enters it last, and the level at which it serves that."""

    capacity: float
    level: float = float("inf")
    step: float = 1.0
    last: float = 0.0
    arriving: dict[str, float] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)

    def serve(self, producer: str, rate: float, cost: float) -> float:
        self.arriving[producer] = rate
        self.cost[producer] = cost
        return rate if cost == 0 else min(rate, self.level)

    def move(self, top: float) -> float:
        """Step towards the level that fits what has arrived; how far off it was comes back."""
        served = water_fill(self.arriving, self.cost, self.capacity)
        cut = [rate for name, rate in served.items() if rate < self.arriving[name]]
        wanted = min(max(cut, default=top), top)
        if self.level > top:
            self.level = wanted
            return top
        away = wanted - self.level
        if away * self.last < 0:
            self.step /= 2
        elif away * self.last > 0:
            self.step = min(1.0, self.step * 1.2)
        self.level += self.step * away
        self.last = away
        return abs(away)


def settle(
    network: Network,
    inlets: Mapping[str, Mapping[str, Inlet]],
    streams: Mapping[str, float],
    keeps: Keeps,
) -> dict[str, float]:
    """What every stream and operator emits once all levels agree with what arrives (tuples/s)."""
    gates: dict[str | tuple[str, str], _Gate] = {name: _Gate(node.cpu) for name, node in network.nodes.items()}
    gates |= {(link.source, link.target): _Gate(link.bandwidth) for link in network.links}
    emitted = _flow(network, inlets, streams, keeps, gates)
    # Without any limit nothing flows faster than this: the level of a gate that limits nothing.
    top = max(emitted.values(), default=0.0)
    for _ in range(_MAX_PASSES):
        moves = [gate.move(top) for gate in gates.values()]
        emitted = _flow(network, inlets, streams, keeps, gates)
        if max(moves, default=0.0) <= _SETTLED * top:
            break
    return emitted


def _flow(
    network: Network,
    inlets: Mapping[str, Mapping[str, Inlet]],
    streams: Mapping[str, float],
    keeps: Keeps,
    gates: Mapping[str | tuple[str, str], _Gate],
) -> dict[str, float]:
    """Follow the rates downstream with every gate at its level."""
    emitted = dict(streams)
    for name in network.order:
        operator = network.operators[name]
        emitted[name] = 0.0
        for producer in operator.inputs:
            keep = keeps.get(str(Arc(producer, name)), 1.0)
            rate = emitted[producer] * keep
            inlet = inlets[operator.node].get(producer)
            if inlet is not None:
                entering = emitted[producer] * inlet.share
                link = gates.get((network.node_of(producer) or "", operator.node))
                if link is not None:
                    entering = link.serve(producer, entering, inlet.link_bytes)
                served = gates[operator.node].serve(producer, entering, inlet.cost)
                rate = served * keep / inlet.share if inlet.share > 0 else 0.0
            emitted[name] += network.contribution(operator, producer) * rate
    return emitted
