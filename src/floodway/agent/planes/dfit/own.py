"""What the leader of a cluster has worked out: its table for the parent, its ranges, its program; and keeps from them.

Pure: made from the network as measured, the children's tables and the parent's reach, nothing else.

A node's decision from its own table alone: the best score, and of all ways to it the one that admits least.

The program of `planning/fit/hull` says what a cluster can earn with the tables of its children. Among its optima some
would take in tuples that are thrown away further down; so a second solve, with the score held, minimises what flows:
an overload three nodes below is shed at the source.

    1. best = max score(x)        2. min Σ x  subject to  score(x) >= best

A capacity scale g of a node, which its controller sets, is the bound of its CPU row; children's tables stay as they
are, for they know their own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

import highspy
import numpy as np
from pydantic import Field

from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.wire.messages import Amount, Name
from floodway.network.model import Arc, Network, Operator
from floodway.network.part import node_part
from floodway.planning.fit.hull import HullProgram, Rows
from floodway.planning.fit.local import LocalProgram, arc_flows, local_program, useful_range
from floodway.planning.fit.node import NodeTable, build_table
from floodway.planning.fit.wire import encode_table
from floodway.planning.program import Program, Vector

Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class NodeMeasures:
    """What a node has measured of itself: costs and selectivities of its operators, its capacity scale.

    `tuple_bytes` are of what it reads and writes, by producer, `state_bytes` of what its operators hold.
    """

    costs: Mapping[Name, Amount]
    selectivities: Mapping[Name, Amount]
    scale: Scale = 1.0
    tuple_bytes: Mapping[Name, Amount] = field(default_factory=dict)
    state_bytes: Mapping[Name, Amount] = field(default_factory=dict)


UNMEASURED = NodeMeasures({}, {})


@dataclass(frozen=True, eq=False)
class ClusterTable:
    """A cluster's table and what it was made from.

    `reach[c]` is the most of every input that can come to child c; `scales` are the capacity scales in the table.
    """

    topology: ClusterTopology
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
        flow = np.array([float(carried[self._arc(arc)][0]) for arc in part.variables])
        seen = np.array([rates.get(name, 0.0) for name in part.streams])
        keeps = dict(zip(locations, part.keeps(flow, seen).tolist(), strict=True))
        # Between members nothing is dropped on arrival: it was where it was written.
        inner = [name for name in part.streams if self._is_inner(name)]
        return {at: 1.0 if at in inner or keep > 1 - 1e-6 else keep for at, keep in keeps.items()}

    def _arc(self, arc: Arc) -> Arc:
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
    topology: ClusterTopology,
    cluster: int,
    measured: Mapping[str, NodeMeasures],
    tables: Sequence[NodeTable],
    useful_below: Sequence[Vector],
    reach: Vector | None,
) -> ClusterTable:
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
    return ClusterTable(topology, cluster, network, local, tuple(tables), useful, reaches, table, scales)


def as_measured(network: Network, measured: Mapping[str, NodeMeasures]) -> Network:
    """The network with what its nodes have measured in place of what the file says."""
    operators = dict(network.operators)
    nodes = dict(network.nodes)
    for node, found in measured.items():
        for name in found.costs.keys() | found.selectivities.keys() | found.state_bytes.keys():
            operator = operators.get(name)
            if operator is not None and operator.node == node:
                operators[name] = replace(
                    operator,
                    cost=found.costs.get(name, operator.cost),
                    selectivity=found.selectivities.get(name, operator.selectivity),
                    state_bytes=found.state_bytes.get(name, operator.state_bytes),
                )
        for name in found.tuple_bytes.keys() & operators.keys():
            operators[name] = replace(operators[name], bytes=found.tuple_bytes[name])
        if found.scale != 1.0:
            nodes[node] = replace(nodes[node], cpu=nodes[node].cpu * found.scale)
    return replace(network, operators=operators, nodes=nodes)


def has_moved(operators: Iterable[Operator], before: NodeMeasures, after: NodeMeasures, tolerance: float) -> bool:
    """Whether a measure moved by more than this part of itself; unmeasured is as in the file, or nothing."""
    pairs = [(before.scale, after.scale)]
    for operator in operators:
        name, cost, selectivity = operator.name, operator.cost or 0.0, operator.selectivity or 0.0
        pairs.append((before.costs.get(name, cost), after.costs.get(name, cost)))
        pairs.append((before.selectivities.get(name, selectivity), after.selectivities.get(name, selectivity)))
    for old_sizes, new_sizes in ((before.tuple_bytes, after.tuple_bytes), (before.state_bytes, after.state_bytes)):
        pairs += [(old_sizes.get(name, 0.0), size) for name, size in new_sizes.items()]
    return any(abs(new - old) > tolerance * abs(old) for old, new in pairs)


_AS_GOOD = 1e-9
_WHOLE = 1e-5
"""A score within this of what everything would earn means that nothing has to be dropped: above the wire's rounding."""


class ThriftyProgram(HullProgram):
    """The program kept in HiGHS; safe to call from several threads."""

    def __init__(self, local: LocalProgram, children: Sequence[Rows]) -> None:
        super().__init__(local, children)
        top = float(np.abs(self._objective).max(initial=0.0)) or 1.0
        self._columns_all = np.arange(len(self._objective), dtype=np.int32)
        self._best_cost = self._objective * (1e3 / top)
        self._least_cost = np.zeros(len(self._objective))
        self._least_cost[: local.program.size] = -1.0
        self._goal = self._objective / top
        self._goal_row = self._highs.getNumRow()
        self._highs.addRow(-math.inf, math.inf, len(self._goal), self._columns_all, self._goal)
        self._slopes = [_slopes(child) for child in children]
        self._lock = threading.Lock()

    def decide(self, offered: Vector, scales: Mapping[str, float]) -> tuple[Vector, bool]:
        """Flows on the cluster's free arcs at these offers, and whether they are all that is offered."""
        with self._lock:
            bounds = self._bounds(scales)
            best = self._best(offered, bounds)
            if self._nothing_to_drop(offered, bounds, best[1]):
                return np.asarray(self.local.program.full_flow @ offered), True
            return self._least(best), False

    def _best(self, offered: Vector, bounds: Vector) -> tuple[Vector, float]:
        for row, bound in enumerate(bounds.tolist()):
            self._highs.changeRowBounds(row, -math.inf, bound)
        self._highs.changeRowBounds(self._goal_row, -math.inf, math.inf)
        self._highs.changeColsCost(len(self._columns_all), self._columns_all, self._best_cost)
        return self.solve(offered)

    def _least(self, best: tuple[Vector, float]) -> Vector:
        flows, _ = best
        goal = float(self._goal @ np.maximum(np.array(self._highs.getSolution().col_value), 0.0))
        self._highs.changeRowBounds(self._goal_row, goal * (1.0 - _AS_GOOD), math.inf)
        self._highs.changeColsCost(len(self._columns_all), self._columns_all, self._least_cost)
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return flows  # as good, only less thrifty
        values = np.maximum(np.array(self._highs.getSolution().col_value), 0.0)
        return np.asarray(values[: self.local.program.size] * self._unit)

    def _bounds(self, scales: Mapping[str, float]) -> Vector:
        bounds = np.ones(len(self.local.share))
        for row, resource in enumerate(self.local.program.resources):
            if resource.kind == "cpu":
                bounds[row] = scales.get(resource.name, 1.0)
        return bounds

    def _nothing_to_drop(self, offered: Vector, bounds: Vector, best: float) -> bool:
        """Whether own resources suffice for all, and the score is what everything would earn, below too."""
        local = self.local
        use = local.share @ (local.program.full_flow @ offered)
        if np.any(use > bounds * (1 + 1e-9)):
            return False
        full = float(local.values @ offered)
        emitted = local.gains @ offered
        for slope, exits in zip(self._slopes, local.exits, strict=True):
            full += float(slope @ emitted[list(exits)])
        return best >= full * (1 - _WHOLE)


def _slopes(child: Rows) -> Vector:
    """What a child earns per tuple of each input while nothing is short: the steepest of its rows with one input."""
    inputs = child.rates.shape[1]
    found = np.zeros(inputs)
    for i in range(inputs):
        alone = (child.rates[:, i] > 0) & (np.delete(child.rates, i, axis=1) <= 0).all(axis=1)
        if alone.any():
            found[i] = (child.scores[alone] / child.rates[alone, i]).max()
    return found
