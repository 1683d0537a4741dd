"""Nodes grouped so that every group has one parent at most: a tree (forest) of clusters.

The papers' propagation needs server trees. Where two nodes feed a third, neither can decide alone, so they are
planned as one; a node fed both by another node and by a stream from outside joins the one above it. What remains is a
tree, and a tree of nodes stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodway.network.model import Network


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes planned as one. `inputs` are the streams or operators outside it that its operators read."""

    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    children: tuple[int, ...]


def cluster_forest(network: Network) -> tuple[Cluster, ...]:
    """All clusters, parents before children; `children` index into the result."""
    used = dict.fromkeys(op.node for op in network.operators.values())
    group = {node: node for node in used}
    while True:
        merge = _to_merge(_edges(network, group))
        if merge is None:
            break
        into = min(merge)
        group = {node: into if name in merge else name for node, name in group.items()}
    return _sorted(network, group)


def _edges(network: Network, group: Mapping[str, str]) -> dict[str, dict[str | None, None]]:
    """For every group the groups that feed it; None stands for streams from outside."""
    parents: dict[str, dict[str | None, None]] = {name: {} for name in dict.fromkeys(group.values())}
    for operator in network.operators.values():
        here = group[operator.node]
        for producer in operator.inputs:
            node = network.node_of(producer)
            above = None if node is None else group[node]
            if above != here:
                parents[here][above] = None
    return parents


def _to_merge(parents: Mapping[str, Mapping[str | None, None]]) -> set[str] | None:
    """A set of groups that must become one, or None if the groups form a forest."""
    for here, above in parents.items():
        feeding = {name for name in above if name is not None}
        if None in above and feeding:
            return {here, *feeding}
        if len(feeding) > 1:
            return feeding
    # Every group has one parent at most now, so a cycle is found by walking up; what was walked before has none.
    clear: set[str] = set()
    for here in parents:
        walked: dict[str, None] = {}
        step: str | None = here
        while step is not None and step not in clear:
            if step in walked:
                names = list(walked)
                return set(names[names.index(step) :])
            walked[step] = None
            step = next(iter(parents[step]), None)
        clear.update(walked)
    return None


def _sorted(network: Network, group: Mapping[str, str]) -> tuple[Cluster, ...]:
    parents = _edges(network, group)
    below: dict[str | None, list[str]] = {}
    for here, above in parents.items():
        below.setdefault(next(iter(above), None), []).append(here)
    order: list[str] = []
    waiting = list(below.get(None, []))
    while waiting:
        here = waiting.pop(0)
        order.append(here)
        waiting += below.get(here, [])
    place = {name: i for i, name in enumerate(order)}
    operators: dict[str, list[str]] = {name: [] for name in order}
    nodes: dict[str, list[str]] = {name: [] for name in order}
    for name in network.order:
        operators[group[network.operators[name].node]].append(name)
    for node, name in group.items():
        nodes[name].append(node)
    return tuple(
        Cluster(
            nodes=tuple(nodes[name]),
            operators=tuple(operators[name]),
            inputs=_inputs(network, operators[name]),
            children=tuple(place[child] for child in below.get(name, [])),
        )
        for name in order
    )


def _inputs(network: Network, operators: list[str]) -> tuple[str, ...]:
    own = set(operators)
    return tuple(dict.fromkeys(p for name in operators for p in network.operators[name].inputs if p not in own))
