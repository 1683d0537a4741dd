"""What the leader of a cluster has worked out: its table for the parent, its ranges, its program; and keeps from them.

Pure: made from the network as measured, the children's tables and the parent's reach, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import Field

from floodway.agent.planes.dfit.program import ThriftyProgram
from floodway.agent.planes.dfit.topology import Topology
from floodway.agent.wire.messages import Amount, Name
from floodway.network.model import Arc, Network, Operator
from floodway.network.part import node_part
from floodway.planning.fit.local import LocalProgram, arc_flows, local_program, useful_range
from floodway.planning.fit.node import NodeTable, build_table
from floodway.planning.fit.wire import encode_table
from floodway.planning.program import Program, Vector

Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a node has measured of itself: costs and selectivities of its operators, its capacity scale."""

    costs: Mapping[Name, Amount]
    selectivities: Mapping[Name, Amount]
    scale: Scale = 1.0


UNMEASURED = Measured({}, {})


@dataclass(frozen=True, eq=False)
class Own:
    """A cluster's table and what it was made from.

    `reach[c]` is the most of every input that can come to child c; `scales` are the capacity scales in the table.
    """

    topology: Topology
    cluster: int
    network: Network
    local: LocalProgram
    children: tuple[NodeTable, ...]
    useful: Vector
    reach: tuple[Vector, ...]
    table: NodeTable
    scales: Mapping[str, float]

    @cached_property
    def message(self) -> bytes:
        """The whole table as it travels."""
        return encode_table(self.table)

    @cached_property
    def program(self) -> ThriftyProgram:
        """The program that decides."""
        return ThriftyProgram(self.local, self.children)

    @cached_property
    def parts(self) -> dict[str, Program]:
        """The members' own parts of the network."""
        nodes = self.topology.clusters[self.cluster].nodes
        return {node: Program(node_part(self.network, node), self.topology.headroom) for node in nodes}

    def keeps(
        self, rates: Mapping[str, Mapping[str, float]], scales: Mapping[str, float]
    ) -> dict[str, dict[str, float]]:
        """Keeps of every member's drop locations, at `scales` times the nominal capacities.

        `rates` (tuples/s) are what each member sees at its streams and links.
        """
        relative = {node: scale / self.scales.get(node, 1.0) for node, scale in scales.items()}
        offered = np.array([self._offered(name, rates) for name in self.local.cluster.inputs])
        flows, whole = self.program.decide(offered, relative)
        carried = arc_flows(self.local, flows[None])
        return {node: self._part_keeps(node, rates.get(node, {}), carried, whole) for node in self.parts}

    def _offered(self, producer: str, rates: Mapping[str, Mapping[str, float]]) -> float:
        """What is offered of one input: the most that any member sees of it, on whichever arc."""
        seen = [0.0]
        for consumer in self.network.consumers[producer]:
            here = rates.get(self.network.node_of(consumer) or "", {})
            name = producer if producer in self.network.streams else str(Arc(producer, consumer))
            seen.append(here.get(name, 0.0))
        return max(seen)

    def _part_keeps(
        self, node: str, rates: Mapping[str, float], carried: Mapping[Arc, Vector], whole: bool
    ) -> dict[str, float]:
        part = self.parts[node]
        locations = part.network.drop_locations
        if whole:
            return dict.fromkeys(locations, 1.0)
        flow = np.array([float(carried[self._arc(part.network, arc)][0]) for arc in part.variables])
        seen = np.array([rates.get(name, 0.0) for name in part.streams])
        keeps = dict(zip(locations, part.keeps(flow, seen).tolist(), strict=True))
        # Between members nothing is dropped on arrival: it was where it was written.
        inner = [name for name in part.streams if self._is_inner(name)]
        return {at: 1.0 if at in inner or keep > 1 - 1e-6 else keep for at, keep in keeps.items()}

    def _arc(self, part: Network, arc: Arc) -> Arc:
        """The local program's name for an arc of a member's part."""
        if "->" in arc.producer:
            producer, _, consumer = arc.producer.partition("->")
        elif "->" in arc.consumer:
            producer, _, consumer = arc.consumer.partition("->")
        else:
            return arc
        return self.topology.local_arc(self.cluster, Arc(producer, consumer))

    def _is_inner(self, stream: str) -> bool:
        producer = stream.partition("->")[0]
        return producer in self.network.operators and producer in self.local.cluster.operators


def work_out(
    topology: Topology,
    cluster: int,
    measured: Mapping[str, Measured],
    tables: Sequence[NodeTable],
    useful_below: Sequence[Vector],
    reach: Vector | None,
) -> Own:
    """Build a cluster's table. `reach` is the most of every input that the parent can deliver; None if not told."""
    network = as_measured(topology.network, measured)
    clusters = topology.clusters
    local = local_program(network, clusters, cluster, topology.headroom)
    offered = np.array([topology.most.get(name, 0.0) for name in clusters[cluster].inputs])
    useful = useful_range(local, useful_below, offered)
    ranges = useful if reach is None else np.minimum(useful, reach)
    table = build_table(local, tables, ranges, topology.configured.steps)
    reaches = tuple(np.asarray(local.gains[list(exits)] @ ranges) for exits in local.exits)
    scales = {node: found.scale for node, found in measured.items()}
    return Own(topology, cluster, network, local, tuple(tables), useful, reaches, table, scales)


def as_measured(network: Network, measured: Mapping[str, Measured]) -> Network:
    """The network with what its nodes have measured in place of what the file says."""
    operators = dict(network.operators)
    nodes = dict(network.nodes)
    for node, found in measured.items():
        for name in found.costs.keys() | found.selectivities.keys():
            operator = operators.get(name)
            if operator is not None and operator.node == node:
                cost = found.costs.get(name, operator.cost)
                selectivity = found.selectivities.get(name, operator.selectivity)
                operators[name] = replace(operator, cost=cost, selectivity=selectivity)
        if found.scale != 1.0:
            nodes[node] = replace(nodes[node], cpu=nodes[node].cpu * found.scale)
    return replace(network, operators=operators, nodes=nodes)


def has_moved(operators: Iterable[Operator], before: Measured, after: Measured, tolerance: float) -> bool:
    """Whether a cost, selectivity or scale moved by more than this part of itself; unmeasured is as in the file."""
    pairs = [(before.scale, after.scale)]
    for operator in operators:
        name, cost, selectivity = operator.name, operator.cost or 0.0, operator.selectivity or 0.0
        pairs.append((before.costs.get(name, cost), after.costs.get(name, cost)))
        pairs.append((before.selectivities.get(name, selectivity), after.selectivities.get(name, selectivity)))
    return any(abs(new - old) > tolerance * abs(old) for old, new in pairs)
