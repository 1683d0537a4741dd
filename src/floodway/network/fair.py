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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from floodway.network.flow import Keeps, Rates, link_of
from floodway.network.model import Arc, Network
from floodway.network.settling import settle
from floodway.network.sharing import Inlet, inlets_of, water_fill

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
        score=sum(network.outputs[name].weight * rate for name, rate in throughput.items()),
    )
