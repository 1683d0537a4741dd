"""Rates, loads and throughput on a network for given input rates and keeps: no scheduler, no LP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from floodway.network.model import Arc, Network, OperatorKind

Rates = Mapping[str, float]
Keeps = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Flows:
    """What flows where: `arc` is tuples/s after the drops on it, `load` CPU-seconds/s asked of each node."""

    arc: Mapping[Arc, float]
    load: Mapping[str, float]
    bandwidth: Mapping[tuple[str, str], float]
    memory: Mapping[str, float]
    throughput: Mapping[str, float]
    score: float


def flows(network: Network, rates: Rates, keeps: Keeps | None = None) -> Flows:
    """Propagate rates from streams to outputs, with the keep at every drop location, 1 if absent."""
    keeps = keeps or {}
    emitted = {name: rates.get(name, 0.0) * keeps.get(name, 1.0) for name in network.streams}
    arc_rate: dict[Arc, float] = {}
    for name in network.order:
        operator = network.operators[name]
        for producer in operator.inputs:
            arc = Arc(producer, name)
            arc_rate[arc] = emitted[producer] * keeps.get(str(arc), 1.0)
        emitted[name] = sum(
            network.contribution(operator, producer) * arc_rate[Arc(producer, name)] for producer in operator.inputs
        )
    throughput: dict[str, float] = {}
    for output in network.outputs.values():
        arc = Arc(output.source, output.name)
        arc_rate[arc] = throughput[output.name] = emitted[output.source] * keeps.get(str(arc), 1.0)
    return Flows(
        arc=arc_rate,
        load=_load(network, arc_rate),
        bandwidth=_bandwidth(network, arc_rate),
        memory=_memory(network, arc_rate),
        throughput=throughput,
        score=network.score(throughput),
    )


def surplus(network: Network, expected: Flows, delivered: Rates) -> float:
    """Weighted tuples/s that came out beyond what these flows give: of tuples kept earlier, or of operators that pass
    on more than the file says. Any plan would have had them.
    """
    return network.score({name: max(0.0, delivered[name] - rate) for name, rate in expected.throughput.items()})


def memory_factor(network: Network, arc: Arc) -> float:
    """Bytes held per tuple/s on an arc: an aggregate keeps its input for the length of its window."""
    operator = network.operators.get(arc.consumer)
    if operator is None or operator.kind is not OperatorKind.AGGREGATE or operator.window is None:
        return 0.0
    return operator.window * network.held_bytes(operator, arc.producer)


def fixed_memory(network: Network, node: str) -> float:
    """Bytes a node holds whatever the rates: the count windows of its joins."""
    return sum(
        window * network.held_bytes(operator, producer)
        for operator in network.operators.values()
        if operator.node == node and operator.windows is not None
        for producer, window in zip(operator.inputs, operator.windows, strict=True)
    )


def _load(network: Network, arc_rate: Mapping[Arc, float]) -> dict[str, float]:
    load = dict.fromkeys(network.nodes, 0.0)
    for arc, rate in arc_rate.items():
        operator = network.operators.get(arc.consumer)
        if operator is not None:
            load[operator.node] += (operator.cost or 0.0) * rate
    return load


def _bandwidth(network: Network, arc_rate: Mapping[Arc, float]) -> dict[tuple[str, str], float]:
    used = {(link.source, link.target): 0.0 for link in network.links}
    for arc, rate in arc_rate.items():
        link = link_of(network, arc)
        if link in used:
            used[link] += rate * network.tuple_bytes(arc.producer)
    return used


def link_of(network: Network, arc: Arc) -> tuple[str, str] | None:
    """The pair of nodes an arc crosses, or None if it stays on one node, enters from outside or leaves."""
    source = network.node_of(arc.producer)
    target = network.node_of(arc.consumer)
    return (source, target) if source and target and source != target else None


def _memory(network: Network, arc_rate: Mapping[Arc, float]) -> dict[str, float]:
    held = {name: fixed_memory(network, name) for name in network.nodes}
    for arc, rate in arc_rate.items():
        operator = network.operators.get(arc.consumer)
        if operator is not None:
            held[operator.node] += memory_factor(network, arc) * rate
    return held


def max_feasible_rates(network: Network) -> dict[str, float]:
    """The highest rate (tuples/s) of each stream, alone and unshed, that nodes, links and memory still bear.

    Infinite where nothing limits it. No plan can use more of a stream on paths without splits.
    """
    return {name: _feasible_alone(network, name) for name in network.streams}


def _feasible_alone(network: Network, stream: str) -> float:
    unit = flows(network, {stream: 1.0})
    room = [(node.cpu, unit.load[name]) for name, node in network.nodes.items()]
    room += [(link.bandwidth, unit.bandwidth[link.source, link.target]) for link in network.links]
    for name, node in network.nodes.items():
        if node.memory is not None:
            fixed = fixed_memory(network, name)
            room.append((node.memory - fixed, unit.memory[name] - fixed))
    return min((limit / asked for limit, asked in room if asked > 0), default=inf)
