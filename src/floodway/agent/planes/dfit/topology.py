"""Who plans for whom: the network's tree of clusters, as every agent works it out from the same file.

A cluster of one node is planned by that node. A cluster of several (nodes that feed a common child, a stream that
enters halfway) is planned by its *leader*, the first of its nodes in the order of the file's operators: a rule that
needs no election and gives every agent the same answer. Tables go from leader to leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from floodway.errors import InputError, suggestion
from floodway.network.flow import flows
from floodway.network.model import Arc, Network, Operator
from floodway.planning.fit.cluster import Cluster, cluster_forest
from floodway.planning.fit.dfit import DFitPlanner
from floodway.planning.fit.local import offered_most
from floodway.planning.program import Program, Vector


@dataclass(frozen=True)
class ClusterTopology:
    """The clusters of a network and how they hang together; one object serves all agents of a process."""

    network: Network
    epsilon: float = 0.05
    headroom: float = 1.0

    @cached_property
    def clusters(self) -> tuple[Cluster, ...]:
        """All clusters, parents before children."""
        return cluster_forest(self.network)

    @cached_property
    def index(self) -> dict[str, int]:
        """The cluster of every node that runs something."""
        return {node: i for i, cluster in enumerate(self.clusters) for node in cluster.nodes}

    @cached_property
    def operators(self) -> dict[str, tuple[Operator, ...]]:
        """The operators of every node."""
        found: dict[str, list[Operator]] = {}
        for operator in self.network.operators.values():
            found.setdefault(operator.node, []).append(operator)
        return {node: tuple(own) for node, own in found.items()}

    @cached_property
    def parents(self) -> dict[int, int]:
        """The parent of every cluster that has one."""
        return {child: i for i, cluster in enumerate(self.clusters) for child in cluster.children}

    @cached_property
    def most(self) -> dict[str, float]:
        """Rates of all producers to prepare for where nothing limits them."""
        offered = offered_most(self._program)
        arriving = flows(self.network, offered).arc
        return {**{arc.producer: rate for arc, rate in arriving.items()}, **offered}

    @cached_property
    def configured(self) -> DFitPlanner:
        """All tables as the file's costs make them: what is planned with before anything was heard."""
        return DFitPlanner(self._program, self.epsilon)

    @cached_property
    def _program(self) -> Program:
        return Program(self.network, self.headroom)

    def cluster_of(self, node: str) -> int:
        """The cluster that a node belongs to."""
        if node not in self.index:
            message = f"no operator runs on node {node!r} of network {self.network.name!r}"
            raise InputError(message, hint=suggestion(node, self.index))
        return self.index[node]

    def leader(self, cluster: int) -> str:
        """The node that plans for a cluster."""
        return self.clusters[cluster].nodes[0]

    def parent_of(self, cluster: int) -> str | None:
        """The leader of the cluster above; None for a root."""
        above = self.parents.get(cluster)
        return None if above is None else self.leader(above)

    def useful(self, cluster: int) -> Vector:
        """A cluster's range as the file's costs make it."""
        return self.configured.ranges[cluster]

    def local_arc(self, cluster: int, arc: Arc) -> Arc:
        """An arc of the whole network by its name in a cluster's local program.

        Arcs that leave the cluster all become its exit to that child.
        """
        node = self.network.node_of(arc.consumer)
        below = cluster if node is None else self.index[node]
        if below == cluster or self.network.node_of(arc.producer) is None:
            return arc
        if self.index[self.network.node_of(arc.producer) or ""] != cluster:
            return arc
        return Arc(arc.producer, f"exit {below} {arc.producer}")
