"""D-FIT: every node plans for itself and all below it from the tables its children sent.

This computes, in one process, what the nodes compute each on its own: ranges go up, tables follow from the leaves to
the roots through the wire format, and at run time each node decides on what is offered to it, parents first. A change
of a cost or selectivity is met by rebuilding the tables of that node and of those above it only (`updated`).

Long paper, section 6.3 and 8.2.5; short paper, section 3.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.network.model import Arc, Network
from floodway.planning import plan_file
from floodway.planning.exact import ExactPlanner
from floodway.planning.fit.cluster import Cluster, cluster_forest
from floodway.planning.fit.hull import HullProgram
from floodway.planning.fit.local import LocalProgram, arc_flows, local_programs, offered_most, useful_ranges
from floodway.planning.fit.node import NodeTable, build_table
from floodway.planning.fit.wire import decode_table, encode_table
from floodway.planning.plan import Planner
from floodway.planning.program import Program, Vector

_MOST_STEPS = 48
_PROBES = 24


class DFitPlanner(Planner):
    """Plans by node tables. `size` is the number of rows of all tables, `wire_bytes` what travelled.

    `achieved_epsilon` is the largest error over probe rates against the optimum; a node knows the children's tables
    only, so unlike `FitPlanner` it cannot check single answers. ε sets how fine the tables are: 0.8/ε steps an input.
    """

    name = "dfit"

    def __init__(
        self,
        program: Program,
        epsilon: float = 0.05,
        *,
        steps: int | None = None,
        sent: Sequence[bytes] | None = None,
    ) -> None:
        super().__init__(program)
        if not (np.isfinite(epsilon) and 0 < epsilon < 1):
            raise InputError(f"epsilon {epsilon} is outside (0, 1)", hint="Use 0.05 for plans within five percent")
        started = time.perf_counter()
        self.epsilon = epsilon
        self.clusters: tuple[Cluster, ...] = cluster_forest(program.network)
        self.locals = local_programs(program.network, self.clusters, program.headroom)
        self.steps = steps if steps is not None else min(max(8, round(0.8 / epsilon)), _MOST_STEPS)
        self.ranges = self._ranges()
        self.tables: list[NodeTable] = []
        self.sent: list[bytes] = []
        if sent is not None:
            self.sent = list(sent)
            self.tables = [decode_table(message) for message in self.sent]
        else:
            self._build(range(len(self.clusters)), None)
        self.build_seconds = time.perf_counter() - started

    @property
    def size(self) -> int:
        """Rows of all tables."""
        return sum(len(table) for table in self.tables)

    @property
    def wire_bytes(self) -> int:
        """Bytes that children sent to their parents."""
        return sum(len(message) for message in self.sent)

    def lookup(self, rates: Vector) -> Vector:
        """Keeps for overloaded rates: each node's decision, parents first."""
        return self.program.keeps(self.flows(rates), rates)

    def flows(self, rates: Vector) -> Vector:
        """Flows on all free arcs after every node decided on what it is offered."""
        offered = dict(zip(self.program.streams, rates.tolist(), strict=True))
        caps: dict[Arc, float] = {}
        for index, cluster in enumerate(self.clusters):
            local = self.locals[index]
            here = np.array([offered[name] for name in cluster.inputs])
            flows, _ = self._programs[index].solve(here)
            for arc, flow in arc_flows(local, flows[None]).items():
                caps[arc] = float(flow[0])
            offered.update(_emitted(local, caps))
        return needed_flows(self.program, rates, caps)

    def updated(self, network: Network) -> DFitPlanner:
        """The planner for a network of the same shape with other numbers: touched nodes and those above rebuild."""
        program = Program(network, self.program.headroom)
        fresh = object.__new__(DFitPlanner)
        Planner.__init__(fresh, program)
        started = time.perf_counter()
        fresh.epsilon, fresh.steps = self.epsilon, self.steps
        fresh.clusters = cluster_forest(network)
        if fresh.clusters != self.clusters:
            return DFitPlanner(program, self.epsilon, steps=self.steps)
        fresh.locals = list(self.locals)
        touched = [i for i, cluster in enumerate(self.clusters) if _changed(self.network, network, cluster)]
        rebuilt = local_programs(network, self.clusters, program.headroom)
        for i in touched:
            fresh.locals[i] = rebuilt[i]
        fresh.ranges = fresh._ranges()
        moved = [
            i
            for i, (old, new) in enumerate(zip(self.ranges, fresh.ranges, strict=True))
            if not np.array_equal(old, new)
        ]
        fresh.tables, fresh.sent = list(self.tables), list(self.sent)
        fresh.rebuilt = fresh._build(sorted({*touched, *moved}), self.tables)
        fresh.build_seconds = time.perf_counter() - started
        return fresh

    rebuilt: tuple[int, ...] = ()
    """Clusters whose table was built anew by the last `updated`."""

    @cached_property
    def achieved_epsilon(self) -> float:
        """Largest relative error over probe rates, against the optimum."""
        exact = ExactPlanner(self.program)
        rng = np.random.default_rng(20070923)
        tops = np.where(np.isfinite(self.program.max_feasible_rates), self.program.max_feasible_rates, 1.0)
        worst = 0.0
        for part in rng.random((_PROBES, len(tops))) * rng.choice([1.0, 4.0], size=(_PROBES, 1)):
            rates = part * tops
            best = exact.optimum(rates)
            if best > 0 and self.program.overloaded(rates):
                worst = max(worst, 1.0 - self.program.score(self.flows(rates)) / best)
        return worst

    def to_arrays(self) -> tuple[plan_file.Meta, plan_file.Arrays]:
        """The tables as they travelled, one message after the other."""
        return {"epsilon": self.epsilon, "steps": self.steps}, {
            "messages": np.frombuffer(b"".join(self.sent), dtype=np.uint8),
            "lengths": np.array([len(message) for message in self.sent], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, program: Program, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> DFitPlanner:
        """The planner again; tables come from the messages and are not built anew."""
        epsilon, steps = meta.get("epsilon"), meta.get("steps")
        plan_file.require(isinstance(epsilon, float) and 0 < epsilon < 1, "epsilon is missing")
        plan_file.require(isinstance(steps, int) and 0 < steps <= 1024, "steps are missing")
        clusters = cluster_forest(program.network)
        lengths = plan_file.array(arrays, "lengths", (len(clusters),)).astype(np.int64)
        plan_file.require(bool((lengths >= 0).all()), "a table has no length")
        data = plan_file.array(arrays, "messages", (int(lengths.sum()),)).astype(np.uint8).tobytes()
        ends = np.cumsum(lengths).tolist()
        sent = [data[end - size : end] for end, size in zip(ends, lengths.tolist(), strict=True)]
        tables = [decode_table(message) for message in sent]
        fits = all(t.inputs == c.inputs for t, c in zip(tables, clusters, strict=True))
        plan_file.require(fits, "the tables belong to other nodes")
        return cls(program, float(meta["epsilon"]), steps=int(meta["steps"]), sent=sent)

    @cached_property
    def _programs(self) -> list[HullProgram]:
        return [HullProgram(local, self._received(i)) for i, local in enumerate(self.locals)]

    def _received(self, index: int) -> list[NodeTable]:
        """What this cluster knows of its children: the tables as they came over the wire."""
        return [decode_table(self.sent[child]) for child in self.clusters[index].children]

    def _ranges(self) -> list[Vector]:
        """First pass: ranges up from the leaves and down again."""
        return useful_ranges(self.locals, offered_most(self.program))

    def _build(self, touched: Sequence[int] | range, old: list[NodeTable] | None) -> tuple[int, ...]:
        """Second pass: tables from the leaves up. A parent is rebuilt only if what it receives has changed."""
        stale = set(touched)
        rebuilt: list[int] = []
        if old is None:
            self.tables = [NodeTable((), np.zeros((0, 0)), np.zeros(0))] * len(self.clusters)
            self.sent = [b""] * len(self.clusters)
        for index in range(len(self.clusters) - 1, -1, -1):
            children = self.clusters[index].children
            if old is not None and index not in stale and not any(child in stale for child in children):
                continue
            table = build_table(self.locals[index], self._received(index), self.ranges[index], self.steps)
            message = encode_table(table)
            rebuilt.append(index)
            if old is not None and message == self.sent[index]:
                stale.discard(index)
            else:
                stale.add(index)
            self.tables[index], self.sent[index] = table, message
        return tuple(rebuilt)


def needed_flows(program: Program, rates: Vector, caps: dict[Arc, float]) -> Vector:
    """Flows on the free arcs that deliver what every node takes, and nothing that would be thrown away below."""
    network = program.network
    flow = dict(caps)
    arriving = dict(zip(program.streams, rates.tolist(), strict=True))
    for output in network.outputs.values():
        arc = Arc(output.source, output.name)
        if arc not in flow:
            flow[arc] = arriving[output.source]
    for name in reversed(network.order):
        operator = network.operators[name]
        taken = max(flow[Arc(name, consumer)] for consumer in network.consumers[name])
        emitted = sum(network.contribution(operator, p) * flow[Arc(p, name)] for p in operator.inputs)
        if emitted > taken:
            for p in operator.inputs:
                flow[Arc(p, name)] *= taken / emitted
    return np.array([flow[arc] for arc in program.variables])


def _emitted(local: LocalProgram, caps: dict[Arc, float]) -> dict[str, float]:
    network = local.program.network
    return {
        name: sum(network.contribution(operator, p) * caps[Arc(p, name)] for p in operator.inputs)
        for name, operator in network.operators.items()
    }


def _changed(old: Network, new: Network, cluster: Cluster) -> bool:
    """Whether anything the cluster's local program is made of has changed."""
    operators = any(old.operators[name] != new.operators[name] for name in cluster.operators)
    nodes = any(old.nodes[name] != new.nodes[name] for name in cluster.nodes)
    outputs = [out for out in old.outputs.values() if out.source in cluster.operators]
    own = any(new.outputs.get(out.name) != out for out in outputs)
    links = {link for link in (*old.links, *new.links) if link.target in cluster.nodes}
    linked = any((link in old.links) != (link in new.links) for link in links)
    sizes = any(old.tuple_bytes(name) != new.tuple_bytes(name) for name in cluster.inputs)
    return operators or nodes or own or linked or sizes
