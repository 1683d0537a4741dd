"""The query network as frozen dataclasses: building one runs nothing.

Names are unique over streams, operators and outputs, because arcs and drop locations refer to them by name. Units:
rates in tuples/s, costs in CPU-seconds per input tuple, bandwidth in bytes/s, memory in bytes, times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

DEFAULT_TUPLE_BYTES = 100.0


class OperatorKind(StrEnum):
    """What an operator does to rates; `delay` is a map that busy-waits its cost (the papers' benchmark)."""

    MAP = "map"
    FILTER = "filter"
    AGGREGATE = "aggregate"
    UNION = "union"
    JOIN = "join"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Stream:
    """An input. `max_rate` bounds the rate space that planners prepare in advance."""

    name: str
    max_rate: float | None = None
    log: str | None = None
    schema: str | None = None
    bytes: float = DEFAULT_TUPLE_BYTES
    deadline: float | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A machine or Spark application with `cpu` CPU-seconds per second."""

    name: str
    cpu: float = 1.0
    memory: float | None = None
    url: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operator:
    """A box. `cost` and `selectivity` are None until measured; `windows` are a join's count windows.

    `window` and `slide` (seconds) belong to aggregates; `bytes` is the size of one output tuple, `state_bytes` what a
    tuple takes that it holds (None: the size of the tuple).
    """

    name: str
    node: str
    inputs: tuple[str, ...]
    kind: OperatorKind = OperatorKind.MAP
    cost: float | None = None
    selectivity: float | None = 1.0
    windows: tuple[float, float] | None = None
    window: float | None = None
    slide: float | None = None
    group_by: tuple[str, ...] = ()
    run: str | None = None
    bytes: float = DEFAULT_TUPLE_BYTES
    state_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A query's end point. `tier` 0 is served first by the tiers objective.

    `latency` is a target (s), of the mean or of a `quantile`.
    """

    name: str
    source: str
    weight: float = 1.0
    latency: float | None = None
    tier: int = 0
    sink: str | None = None
    quantile: float | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """What may travel from one node to another, in bytes/s."""

    source: str
    target: str
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Arc:
    """One arrow: tuples from a producer (stream or operator) to a consumer (operator or output)."""

    producer: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.producer}->{self.consumer}"


@dataclass(frozen=True)
class Network:
    """Streams, nodes, operators, outputs and links; derived views are computed once and cached.

    >>> net = Network("n", {"s": Stream("s", 2.0)}, {"A": Node("A")},
    ...               {"a": Operator("a", "A", ("s",), cost=1.0)}, {"q": Output("q", "a")})
    >>> [str(arc) for arc in net.arcs], net.drop_locations
    (['s->a', 'a->q'], ('s',))
    """

    name: str
    streams: Mapping[str, Stream]
    nodes: Mapping[str, Node]
    operators: Mapping[str, Operator]
    outputs: Mapping[str, Output]
    links: tuple[Link, ...] = ()

    @property
    def has_fixed_limits(self) -> bool:
        """Whether bandwidth of links or memory of nodes is limited, beside CPU."""
        return bool(self.links) or any(node.memory is not None for node in self.nodes.values())

    @cached_property
    def arcs(self) -> tuple[Arc, ...]:
        """All arcs, consumers in file order: operators' inputs first, then outputs."""
        inside = [Arc(p, op.name) for op in self.operators.values() for p in op.inputs]
        return (*inside, *(Arc(out.source, out.name) for out in self.outputs.values()))

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """Who reads each stream or operator, in file order."""
        found: dict[str, list[str]] = {name: [] for name in (*self.streams, *self.operators)}
        for arc in self.arcs:
            found[arc.producer].append(arc.consumer)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Operators in topological order, level by level, in file order within a level; no cycles allowed."""
        position = {name: index for index, name in enumerate(self.operators)}
        waiting = {name: sum(p in position for p in op.inputs) for name, op in self.operators.items()}
        level = [name for name, count in waiting.items() if count == 0]
        placed: list[str] = []
        while level:
            placed += level
            ready: list[str] = []
            for consumer in (consumer for name in level for consumer in self.consumers[name]):
                if consumer in waiting:
                    waiting[consumer] -= 1
                    if waiting[consumer] == 0:
                        ready.append(consumer)
            level = sorted(ready, key=position.__getitem__)
        if len(placed) < len(self.operators):
            left = sorted(set(self.operators) - set(placed), key=position.__getitem__)
            raise ValueError(f"cycle among operators {left}")
        return tuple(placed)

    @cached_property
    def drop_locations(self) -> tuple[str, ...]:
        """Where a plan may drop: every stream by name, and every branch of a split as `producer->consumer`.

        On an arc without fan-out a drop is never better than the same drop further up, so none is placed there.
        """
        branches = [
            str(Arc(producer, consumer))
            for producer in (*self.streams, *self.order)
            for consumer in self.consumers[producer]
            if self.is_split(producer)
        ]
        return (*self.streams, *branches)

    def is_split(self, producer: str) -> bool:
        """Whether several consumers read this stream or operator."""
        return len(self.consumers[producer]) > 1

    def node_of(self, name: str) -> str | None:
        """The node on which a stream's or operator's tuples are produced; None for streams."""
        op = self.operators.get(name)
        return op.node if op else None

    def tuple_bytes(self, producer: str) -> float:
        """Size in bytes of one tuple that a stream or operator emits."""
        stream = self.streams.get(producer)
        return stream.bytes if stream else self.operators[producer].bytes

    def score(self, throughput: Mapping[str, float]) -> float:
        """Weighted throughput: what these tuples/s by output are worth."""
        return sum(self.outputs[name].weight * rate for name, rate in throughput.items())

    def held_bytes(self, operator: Operator, producer: str) -> float:
        """Size in bytes of one tuple of an input in an operator's state."""
        return self.tuple_bytes(producer) if operator.state_bytes is None else operator.state_bytes

    def contribution(self, operator: Operator, producer: str) -> float:
        """Output tuples per input tuple from `producer`.

        Map, filter, aggregate, union: the selectivity. Join with count windows (w1, w2): s*w2 for a tuple of the
        first input, s*w1 for one of the second (long paper, section 3.3).
        """
        selectivity = 1.0 if operator.selectivity is None else operator.selectivity
        if operator.kind is not OperatorKind.JOIN or operator.windows is None:
            return selectivity
        first, second = operator.windows
        return selectivity * (second if producer == operator.inputs[0] else first)
