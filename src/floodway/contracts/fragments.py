"""Tasks that keep connected operators together: what one node runs, cut where the least data flows.

Moving one of two linked operators sends the stream between them over the link twice as far; so operators joined by
the heaviest streams become one task, as long as the task stays small enough to move (contracts paper, section 4.1,
names the need and leaves the algorithm open). Greedy: arcs in order of bytes per second, heaviest first, each merges
the two groups it joins unless the sum would exceed the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from floodway.contracts.errors import ContractError
from floodway.contracts.load import Load, Task
from floodway.network.flow import Rates, flows
from floodway.network.model import Arc, Network


def fragments(
    network: Network, node: str, rates: Rates, *, max_cpu: float, link_bytes: float = 1.0
) -> tuple[Task, ...]:
    """The operators of a node as tasks of at most `max_cpu` CPU-seconds/s each, unless one alone is heavier.

    A task's link load is the bytes/s it emits to other tasks, nodes and outputs, in units of `link_bytes`. Its name
    and kind list its operators in network order; its query is the connected part of the node it is from.
    """
    if node not in network.nodes:
        raise ContractError(f"there is no node {node!r}", hint=f"Nodes: {', '.join(network.nodes) or 'none'}")
    for name, value in (("max_cpu", max_cpu), ("link_bytes", link_bytes)):
        if not (isfinite(value) and value > 0):
            raise ContractError(f"{name} is {value}", hint="Give a finite number above 0")
    arc_rate = flows(network, rates).arc
    here = [name for name in network.order if network.operators[name].node == node]
    cpu = {
        name: sum(_cpu(network, arc, rate) for arc, rate in arc_rate.items() if arc.consumer == name) for name in here
    }
    weight = {
        arc: rate * network.tuple_bytes(arc.producer)
        for arc, rate in arc_rate.items()
        if arc.producer in cpu and arc.consumer in cpu
    }
    parts = _merge(here, weight, cpu, float("inf"))
    groups = _merge(here, weight, cpu, max_cpu)
    return tuple(
        _task(network, members, arc_rate, sum(cpu[name] for name in members), link_bytes, query=parts[members[0]][0])
        for members in dict.fromkeys(groups.values())
    )


def _cpu(network: Network, arc: Arc, rate: float) -> float:
    return (network.operators[arc.consumer].cost or 0.0) * rate


def _merge(
    here: list[str], weight: Mapping[Arc, float], cpu: Mapping[str, float], max_cpu: float
) -> dict[str, tuple[str, ...]]:
    """Each operator's group, members in network order."""
    group: dict[str, tuple[str, ...]] = {name: (name,) for name in here}
    for arc in sorted(weight, key=lambda arc: (-weight[arc], str(arc))):
        one, other = group[arc.producer], group[arc.consumer]
        joined = {*one, *other}
        if one == other or sum(cpu[name] for name in joined) > max_cpu:
            continue
        merged = tuple(name for name in here if name in joined)
        group |= dict.fromkeys(merged, merged)
    return group


def _task(
    network: Network,
    members: tuple[str, ...],
    arc_rate: Mapping[Arc, float],
    cpu: float,
    link_bytes: float,
    *,
    query: str,
) -> Task:
    crossing_out = [arc for arc in arc_rate if arc.producer in members and arc.consumer not in members]
    crossing_in = [arc for arc in arc_rate if arc.consumer in members and arc.producer not in members]
    sent = sum(arc_rate[arc] * network.tuple_bytes(arc.producer) for arc in crossing_out)
    name = "+".join(members)
    load = Load(cpu, sent / link_bytes, sum(arc_rate[arc] for arc in crossing_in))
    return Task(name, load, units=max(cpu, 1e-12), kind=name, query=query)
