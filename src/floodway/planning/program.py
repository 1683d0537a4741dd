"""The linear program of the long paper (1)-(11), written so that rates stand only on the right-hand side.

One variable x_a (tuples/s) for each *free* arc: an arc out of a stream, or a branch of a split. These are the paper's
prefix variables times the rate; on every other arc all that the producer emits flows on, since a drop there is never
better than one further up. Rates on all arcs are linear in x, so with emit(p) what operator p emits:

    maximise    sum_q w_q · throughput_q(x)
    subject to  x_a <= r_s            for arcs out of stream s (bounds)
                x_a <= emit_p(x)      for branches of a split at operator p
                load_n(x) <= ζ_n      CPU of every node; likewise bandwidth of links and memory of nodes
                x >= 0

Keeps are ratios of neighbouring flows, 0/0 guarded (long paper, section 3.2; its second "x5" is x6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.network.file_checks import require_costs
from floodway.network.flow import fixed_memory, link_of, memory_factor
from floodway.network.model import Arc, Network

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

FEASIBILITY_TOLERANCE = 1e-9
"""Relative to a resource's capacity: below this, a load counts as within it."""
_TINY = 1e-290


@dataclass(frozen=True, slots=True)
class Resource:
    """One row `use · x <= capacity`: CPU of a node, bandwidth of a link or memory of a node."""

    kind: str
    name: str
    capacity: float


class Program:
    """Matrices of the program for one network; rates come with each solve.

    `headroom` is the share of every resource that may be planned for (the original prototype: 0.95).
    """

    def __init__(self, network: Network, headroom: float = 1.0) -> None:
        if not 0 < headroom <= 1:
            raise InputError(f"headroom {headroom} is outside (0, 1]", hint="Use 1 to plan for the whole capacity")
        require_costs(network)
        self.network = network
        self.headroom = headroom
        self.streams = tuple(network.streams)
        self.variables: tuple[Arc, ...] = tuple(
            Arc(producer, consumer)
            for producer in (*network.streams, *network.order)
            for consumer in network.consumers[producer]
            if producer in network.streams or network.is_split(producer)
        )
        self._index = {arc: i for i, arc in enumerate(self.variables)}
        self._emit, self._arc = self._propagate()
        self.resources, self.use = self._resource_rows()
        self.capacity: Vector = np.array([resource.capacity for resource in self.resources])

    @property
    def size(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @cached_property
    def has_fixed_resources(self) -> bool:
        """Whether something other than CPU limits the flows: links, memory."""
        return any(resource.kind != "cpu" for resource in self.resources)

    def scaled(self, *, fixed: float, cpu: float = 1.0) -> Program:
        """The program with `cpu` times the CPU of every node, and `fixed` times every bandwidth and room in memory."""
        network = self.network
        nodes = {}
        for name, node in network.nodes.items():
            held = fixed_memory(network, name)
            memory = None if node.memory is None else held + fixed * (node.memory - held)
            nodes[name] = replace(node, cpu=cpu * node.cpu, memory=memory)
        links = tuple(replace(link, bandwidth=fixed * link.bandwidth) for link in network.links)
        return Program(replace(network, nodes=nodes, links=links), self.headroom)

    @cached_property
    def throughput(self) -> Matrix:
        """One row an output: its throughput as a linear function of x."""
        return np.array([self._arc[Arc(out.source, out.name)] for out in self.network.outputs.values()])

    @cached_property
    def weights(self) -> Vector:
        """Weight of every output."""
        return np.array([out.weight for out in self.network.outputs.values()])

    @cached_property
    def objective(self) -> Vector:
        """Weighted throughput per unit of every variable."""
        return np.asarray(self.weights @ self.throughput)

    @cached_property
    def stream_of(self) -> NDArray[np.int64]:
        """For every variable the index of the stream that bounds it, or -1 for a branch below an operator."""
        position = {name: i for i, name in enumerate(self.streams)}
        return np.array([position.get(arc.producer, -1) for arc in self.variables], dtype=np.int64)

    @cached_property
    def nesting(self) -> Matrix:
        """One row a branch below an operator: x_a - emit_p(x) <= 0."""
        rows = [
            _unit(self.size, i) - self._emit[arc.producer]
            for i, arc in enumerate(self.variables)
            if arc.producer not in self.network.streams
        ]
        return np.array(rows).reshape(len(rows), self.size)

    @cached_property
    def full_flow(self) -> Matrix:
        """x as a linear function of the rates when nothing is dropped (variables × streams)."""
        full = np.zeros((self.size, len(self.streams)))
        for i, arc in enumerate(self.variables):
            stream = self.stream_of[i]
            # Variables are in topological order, so what the producer emits is known when its branch comes up.
            full[i] = _unit(len(self.streams), int(stream)) if stream >= 0 else self._emit[arc.producer] @ full
        return full

    @cached_property
    def full_use(self) -> Matrix:
        """Use of every resource per unit of every rate when nothing is dropped."""
        return self.use @ self.full_flow

    def overloaded(self, rates: Vector) -> bool:
        """Whether some resource is asked for more than its capacity if nothing is dropped."""
        # Asked before every look-up: on arrays this short, dot and argmin take a fifth of `@` and any().
        room: Vector = self._most_use - self.full_use.dot(rates)
        return bool(len(room) and room[room.argmin()] < 0)

    @cached_property
    def _most_use(self) -> Vector:
        return self.capacity * (1 + FEASIBILITY_TOLERANCE)

    @cached_property
    def max_feasible_rates(self) -> Vector:
        """The most each stream alone can bring with no drop at all (infinite where it costs nothing)."""
        with np.errstate(divide="ignore"):
            limits = self.capacity[:, None] / self.full_use
        limits = np.where(self.full_use > 0, limits, np.inf)
        return np.asarray(limits.min(axis=0)) if len(limits) else np.full(len(self.streams), np.inf)

    def capacity_asked(self, arcs: Mapping[Arc, float]) -> tuple[float, float]:
        """The least multiples of all CPU, and of all links and memory, by which these rates on arcs can be."""
        asked = self.use @ np.array([arcs[arc] for arc in self.variables]) / self.capacity
        cpu = np.array([resource.kind == "cpu" for resource in self.resources], dtype=bool)
        return float(asked[cpu].max(initial=0.0)), float(asked[~cpu].max(initial=0.0))

    def score(self, x: Vector) -> float:
        """Weighted throughput of the flows x."""
        return float(self.objective @ x)

    def keeps(self, x: Vector, rates: Vector) -> Vector:
        """Keeps at `network.drop_locations` that let exactly x flow, dropping as far upstream as possible."""
        if not self._inner_splits and len(self.variables) == len(self.streams):
            # The tiny number makes 0/0 a keep of 1 and changes nothing else; where() and clip() are slow.
            return np.minimum((np.maximum(x, 0.0) + _TINY) / (rates + _TINY), 1.0)
        return self._keeps_with_splits(np.clip(x, 0.0, None), rates)

    @cached_property
    def _inner_splits(self) -> tuple[str, ...]:
        return tuple(p for p in self.network.order if self.network.is_split(p))

    def _keeps_with_splits(self, x: Vector, rates: Vector) -> Vector:
        flow = self._without_waste({arc: float(x @ row) for arc, row in self._arc.items()})
        keep: dict[str, float] = {}
        emitted = dict(zip(self.streams, rates.tolist(), strict=True))
        for producer in (*self.streams, *self.network.order):
            if producer not in self.network.streams:
                operator = self.network.operators[producer]
                emitted[producer] = sum(
                    self.network.contribution(operator, p) * flow[Arc(p, producer)] for p in operator.inputs
                )
            branches = [Arc(producer, consumer) for consumer in self.network.consumers[producer]]
            available = emitted[producer]
            if producer in self.network.streams:
                top = max(flow[arc] for arc in branches)
                keep[producer] = _ratio(top, available)
                available = top
            if len(branches) > 1:
                keep.update({str(arc): _ratio(flow[arc], available) for arc in branches})
        return np.array([keep[at] for at in self.network.drop_locations])

    def _without_waste(self, flow: dict[Arc, float]) -> dict[Arc, float]:
        """Lower what enters an operator to what its consumers take: the same outputs for less load."""
        for producer in reversed(self.network.order):
            operator = self.network.operators[producer]
            inputs = [Arc(p, producer) for p in operator.inputs]
            emitted = sum(self.network.contribution(operator, arc.producer) * flow[arc] for arc in inputs)
            taken = max(flow[Arc(producer, consumer)] for consumer in self.network.consumers[producer])
            if taken < emitted:
                for arc in inputs:
                    flow[arc] *= taken / emitted
        return flow

    def _propagate(self) -> tuple[dict[str, Vector], dict[Arc, Vector]]:
        """What every operator emits and what every arc carries, as rows over the variables."""
        emit: dict[str, Vector] = {}
        arc_row: dict[Arc, Vector] = {}

        def carried(arc: Arc) -> Vector:
            index = self._index.get(arc)
            return emit[arc.producer] if index is None else _unit(self.size, index)

        for name in self.network.order:
            operator = self.network.operators[name]
            total = np.zeros(self.size)
            for producer in operator.inputs:
                arc = Arc(producer, name)
                arc_row[arc] = carried(arc)
                total = total + self.network.contribution(operator, producer) * arc_row[arc]
            emit[name] = total
        for output in self.network.outputs.values():
            arc = Arc(output.source, output.name)
            arc_row[arc] = carried(arc)
        return emit, arc_row

    def _resource_rows(self) -> tuple[tuple[Resource, ...], Matrix]:
        cpu = {name: np.zeros(self.size) for name in self.network.nodes}
        memory = {name: np.zeros(self.size) for name in self.network.nodes}
        links = {(link.source, link.target): np.zeros(self.size) for link in self.network.links}
        for arc, row in self._arc.items():
            operator = self.network.operators.get(arc.consumer)
            if operator is None:
                continue
            cpu[operator.node] += (operator.cost or 0.0) * row
            memory[operator.node] += memory_factor(self.network, arc) * row
            link = link_of(self.network, arc)
            if link in links:
                links[link] += self.network.tuple_bytes(arc.producer) * row
        rows: list[tuple[Resource, Vector]] = [
            (Resource("cpu", name, node.cpu * self.headroom), cpu[name]) for name, node in self.network.nodes.items()
        ]
        for link_ in self.network.links:
            capacity = link_.bandwidth * self.headroom
            name = f"{link_.source}->{link_.target}"
            rows.append((Resource("bandwidth", name, capacity), links[(link_.source, link_.target)]))
        for name, node in self.network.nodes.items():
            if node.memory is not None:
                room = (node.memory - fixed_memory(self.network, name)) * self.headroom
                rows.append((Resource("memory", name, room), memory[name]))
        used = [(resource, row) for resource, row in rows if row.any()]
        matrix = np.array([row for _, row in used]).reshape(len(used), self.size)
        return tuple(resource for resource, _ in used), matrix


def _unit(size: int, index: int) -> Vector:
    row = np.zeros(size)
    row[index] = 1.0
    return row


def _ratio(part: float, whole: float) -> float:
    """part/whole as a keep; nothing to keep counts as kept, so that a dry arc shows no drop."""
    if whole <= 0.0:
        return 1.0
    keep = part / whole
    return 1.0 if keep > 1.0 - 1e-15 else max(keep, 0.0)
