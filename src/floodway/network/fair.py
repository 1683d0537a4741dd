"""The fair scheduler: what happens when nobody sheds and an overloaded node serves its inputs round-robin.

A node takes tuples from its inputs in turn, so the served rates are max-min fair in tuples/s: with arrival rates a_i
and per-tuple costs c_i on that node, input i is served at min(a_i, L), where the level L solves sum_i c_i * min(a_i,
L) = cpu (no level if everything fits). c_i counts all the work a tuple of that input causes on the node, through
selectivities, inner splits and drops. What is served flows on to the nodes downstream; a link with limited bandwidth
serves the producers that cross it in the same way, with bytes in place of CPU-seconds. Memory is not scheduled. This
gives Table 1 of the papers exactly (staying-fit, section 2).

>>> from floodway.network.model import Network, Node, Operator, Output, Stream
>>> network = Network("n", {"s": Stream("s"), "t": Stream("t")}, {"A": Node("A")},
...     {"a": Operator("a", "A", ("s",), cost=1.0), "b": Operator("b", "A", ("t",), cost=3.0)},
...     {"q": Output("q", "a"), "p": Output("p", "b")})
>>> result = fair(network, {"s": 1.0, "t": 1.0})
>>> result.load, result.throughput
({'A': 4.0}, {'q': 0.25, 'p': 0.25})

Where nodes feed each other, none can be served first (`settle`). Every node and every limited link has one unknown, its
level: the highest rate at which it serves any input. Given all levels, rates follow downstream, because operators have
no cycles; given the rates, water-filling asks for new levels. The answer is the fixed point of the two, found by steps
towards what is asked for. Each level has a step of its own, halved when the level overshoots (what a node serves may
come back as work that leaves it less to serve) and grown while it keeps its direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from floodway.network.flow import Keeps, Rates, link_of
from floodway.network.model import Arc, Network

Table = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class FairResult:
    """Rates in tuples/s, loads in CPU-seconds/s.

    `load` is what the arrivals ask of each node before it schedules, `arriving` and `served` are the rates by node
    and producer that enters it, `node_throughput` the rates of the operators whose results leave a node or reach an
    output, `link_load` the bytes/s offered to each limited link, `arc` the rate that reaches a consumer.
    """

    load: Mapping[str, float]
    arriving: Mapping[str, Mapping[str, float]]
    served: Mapping[str, Mapping[str, float]]
    node_throughput: Mapping[str, Mapping[str, float]]
    link_load: Mapping[tuple[str, str], float]
    arc: Mapping[Arc, float]
    throughput: Mapping[str, float]
    score: float


def fair(network: Network, rates: Rates, keeps: Keeps | None = None) -> FairResult:
    """Serve every node and link max-min fairly, node by node downstream, after the given drops."""
    keeps = keeps or {}
    inlets = inlets_of(network, keeps)
    streams = {name: rates.get(name, 0.0) * keeps.get(name, 1.0) for name in network.streams}
    try:
        emitted = _downstream(network, inlets, streams)
    except CycleError:
        emitted = settle(network, inlets, streams, keeps)
    return _result(network, inlets, emitted, keeps)


def _downstream(
    network: Network, inlets: Mapping[str, Mapping[str, Inlet]], streams: Mapping[str, float]
) -> dict[str, float]:
    """Serve each node after all that feed it; CycleError if nodes feed each other."""
    feeds: dict[str, set[str]] = {node: set() for node in network.nodes}
    for arc in network.arcs:
        link = link_of(network, arc)
        if link is not None:
            feeds[link[1]].add(link[0])
    emitted = dict.fromkeys(network.operators, 0.0) | dict(streams)
    for node in TopologicalSorter(feeds).static_order():
        _, served, _ = _serve(network, node, inlets[node], emitted)
        for producer, inlet in inlets[node].items():
            for name, factor in inlet.emits.items():
                emitted[name] += factor * served[producer]
    return emitted


def _serve(
    network: Network, node: str, inlets: Mapping[str, Inlet], emitted: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float], dict[tuple[str, str], float]]:
    """What arrives at a node after its links, what it serves, and what its links were offered."""
    arriving = {producer: emitted[producer] * inlet.share for producer, inlet in inlets.items()}
    offered: dict[tuple[str, str], float] = {}
    for link in network.links:
        if link.target == node:
            crossing = {name: rate for name, rate in arriving.items() if network.node_of(name) == link.source}
            sizes = {name: inlets[name].link_bytes for name in crossing}
            offered[link.source, node] = sum(crossing[name] * sizes[name] for name in crossing)
            arriving |= water_fill(crossing, sizes, link.bandwidth)
    costs = {producer: inlet.cost for producer, inlet in inlets.items()}
    return arriving, water_fill(arriving, costs, network.nodes[node].cpu), offered


def _result(
    network: Network,
    inlets: Mapping[str, Mapping[str, Inlet]],
    emitted: Mapping[str, float],
    keeps: Keeps,
) -> FairResult:
    arriving: Table = {}
    served: Table = {}
    link_load: dict[tuple[str, str], float] = {}
    arc_rate: dict[Arc, float] = {}
    for node in network.nodes:
        arriving[node], served[node], offered = _serve(network, node, inlets[node], emitted)
        link_load |= offered
    for arc in network.arcs:
        target = network.node_of(arc.consumer)
        inlet = inlets[target].get(arc.producer) if target else None
        rate = emitted[arc.producer]
        if target and inlet:
            rate = arriving[target][arc.producer] / inlet.share if inlet.share > 0 else 0.0
        arc_rate[arc] = rate * keeps.get(str(arc), 1.0)
    throughput = {name: arc_rate[Arc(output.source, name)] for name, output in network.outputs.items()}
    leaving: Table = {node: {} for node in network.nodes}
    for name, operator in network.operators.items():
        if any(network.node_of(consumer) != operator.node for consumer in network.consumers[name]):
            leaving[operator.node][name] = emitted[name]
    return FairResult(
        load={
            node: sum(rate * inlets[node][producer].cost for producer, rate in arriving[node].items())
            for node in network.nodes
        },
        arriving=arriving,
        served=served,
        node_throughput=leaving,
        link_load=link_load,
        arc=arc_rate,
        throughput=throughput,
        score=network.score(throughput),
    )


@dataclass(frozen=True, slots=True)
class Inlet:
    """A producer entering a node: the share of its tuples that enters, and what one of them causes there."""

    share: float
    cost: float
    link_bytes: float
    emits: Mapping[str, float]


def water_fill(arriving: Mapping[str, float], cost: Mapping[str, float], capacity: float) -> dict[str, float]:
    """Max-min fair rates within a capacity: everyone gets min(what arrives, one common level).

    >>> water_fill({"a": 1.0, "b": 0.1}, {"a": 1.0, "b": 2.0}, 0.5)
    {'a': 0.3, 'b': 0.1}
    """
    served = dict(arriving)
    room = capacity
    weight = sum(cost.values())
    if sum(arriving[name] * cost[name] for name in arriving) <= capacity * (1 + 1e-12):
        return served
    # From the smallest arrival up: who stays below the level takes all it has, the others share what is left.
    for name in sorted((name for name in arriving if cost[name] > 0), key=lambda name: arriving[name]):
        if arriving[name] * weight <= room:
            room -= cost[name] * arriving[name]
            weight -= cost[name]
        else:
            served[name] = min(arriving[name], max(room, 0.0) / weight)
    return served


def inlets_of(network: Network, keeps: Keeps) -> dict[str, dict[str, Inlet]]:
    """By node, every producer that enters it."""
    local: dict[str, list[str]] = {node: [] for node in network.nodes}
    for name in network.order:
        local[network.operators[name].node].append(name)
    return {node: _inlets(network, node, names, keeps) for node, names in local.items()}


def _inlets(network: Network, node: str, local: list[str], keeps: Keeps) -> dict[str, Inlet]:
    """Follow one tuple of each producer through the node, by linearity of rates and loads."""
    heads: dict[str, list[str]] = {}
    for name in local:
        for producer in network.operators[name].inputs:
            if network.node_of(producer) != node:
                heads.setdefault(producer, []).append(name)
    found = {}
    for producer, consumers in heads.items():
        kept = {consumer: keeps.get(str(Arc(producer, consumer)), 1.0) for consumer in consumers}
        # A tuple enters if any branch on this node wants it; the branches then thin it out further.
        share = max(kept.values())
        entering = {consumer: keep / share if share > 0 else 0.0 for consumer, keep in kept.items()}
        emits, cost = _cascade(network, local, producer, entering, keeps)
        link_bytes = network.tuple_bytes(producer) * sum(entering.values())
        found[producer] = Inlet(share, cost, link_bytes, emits)
    return found


def _cascade(
    network: Network, local: list[str], producer: str, entering: Mapping[str, float], keeps: Keeps
) -> tuple[dict[str, float], float]:
    emits: dict[str, float] = {}
    cost = 0.0
    for name in local:
        operator = network.operators[name]
        total = 0.0
        for source in operator.inputs:
            if source == producer:
                rate = entering.get(name, 0.0)
            else:
                rate = emits.get(source, 0.0) * keeps.get(str(Arc(source, name)), 1.0)
            cost += (operator.cost or 0.0) * rate
            total += network.contribution(operator, source) * rate
        if total > 0:
            emits[name] = total
    return emits, cost


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
