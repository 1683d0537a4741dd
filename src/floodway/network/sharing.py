"""What one tuple costs a node, and how a capacity is shared out: the two halves of the fair scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodway.network.flow import Keeps
from floodway.network.model import Arc, Network


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
