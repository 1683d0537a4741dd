"""Hypothesis strategies for random valid networks, and rates and keeps that suit them.

Numbers are hundredths, so that a failing network shrinks to something a person can check by hand. Every
stream is read, every operator reaches an output, names follow their kind: streams `s1…`, operators `o1…`,
outputs `q1…`, nodes `N1…`. Nodes form an acyclic graph (an operator never sits on an earlier node than what
it reads) unless `node_cycles` is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from floodway.network.flow import fixed_memory
from floodway.network.model import Link, Network, Node, Operator, OperatorKind, Output, Stream

ONE_INPUT = (OperatorKind.MAP, OperatorKind.FILTER, OperatorKind.AGGREGATE, OperatorKind.DELAY)
TUPLE_BYTES = st.sampled_from((10.0, 100.0, 250.0))


@dataclass(frozen=True)
class Features:
    """Which parts of the file format a random network may use."""

    splits: bool = True
    unions: bool = True
    joins: bool = True
    links: bool = True
    memory: bool = True
    stream_outputs: bool = False
    node_cycles: bool = False


def hundredths(low: int, high: int) -> st.SearchStrategy[float]:
    """Numbers low/100 … high/100: exact to write down, easy to read."""
    return st.integers(low, high).map(lambda number: number / 100)


@st.composite
def networks(
    draw: st.DrawFn,
    max_streams: int = 3,
    max_operators: int = 6,
    max_nodes: int = 3,
    *,
    splits: bool = True,
    unions: bool = True,
    joins: bool = True,
    links: bool = True,
    memory: bool = True,
    stream_outputs: bool = False,
    node_cycles: bool = False,
) -> Network:
    """A valid network with all costs and selectivities known.

    Costs 0.05–3 CPU-seconds/tuple, capacities 0.5–4, maximum rates 0.1–5 tuples/s: the top corner is mostly
    overloaded.
    """
    features = Features(splits, unions, joins, links, memory, stream_outputs, node_cycles)
    streams = {
        name: Stream(name, max_rate=draw(hundredths(10, 500)), bytes=draw(TUPLE_BYTES))
        for name in _names("s", draw(st.integers(1, max_streams)))
    }
    node_names = _names("N", draw(st.integers(1, max_nodes)))
    nodes = {name: Node(name, cpu=draw(hundredths(50, 400))) for name in node_names}
    operators = _operators(draw, tuple(streams), tuple(nodes), max_operators, features)
    outputs = _outputs(draw, tuple(streams), operators, features)
    network = Network("random", streams, nodes, operators, outputs)
    if features.links:
        network = replace(network, links=_links(draw, network))
    if features.memory:
        network = replace(network, nodes={name: _with_memory(draw, network, name) for name in nodes})
    return network


def rates_for(network: Network, *, above_max: float = 1.0) -> st.SearchStrategy[Mapping[str, float]]:
    """A rate for every stream, from 0 to `above_max` times its maximum."""
    tops = {name: (stream.max_rate or 1.0) * above_max for name, stream in network.streams.items()}
    parts = st.fixed_dictionaries({name: st.integers(0, 100) for name in tops})
    return parts.map(lambda drawn: {name: tops[name] * part / 100 for name, part in drawn.items()})


def keeps_for(network: Network) -> st.SearchStrategy[Mapping[str, float]]:
    """Keeps at some of the network's drop locations."""
    return st.dictionaries(st.sampled_from(network.drop_locations), hundredths(0, 100))


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(1, count + 1)]


def _operators(
    draw: st.DrawFn, streams: tuple[str, ...], nodes: tuple[str, ...], most: int, features: Features
) -> dict[str, Operator]:
    unread = list(streams)
    read: set[str] = set()
    operators: dict[str, Operator] = {}
    # Enough operators to read every stream even when each has one input only.
    count = draw(st.integers(len(streams), max(most, len(streams))))
    for name in _names("o", count):
        kinds = list(ONE_INPUT)
        producers = [*streams, *operators]
        # Without splits only what nobody reads yet may be read.
        free = producers if features.splits else [producer for producer in producers if producer not in read]
        must_read_stream = len(unread) >= count - len(operators) and bool(unread)
        if not free:
            break
        if len(free) > 1:
            kinds += [OperatorKind.UNION] * features.unions + [OperatorKind.JOIN] * features.joins
        kind = draw(st.sampled_from(kinds))
        first = unread[0] if must_read_stream else draw(st.sampled_from(free))
        inputs = [first]
        if kind in (OperatorKind.UNION, OperatorKind.JOIN):
            most_inputs = 2 if kind is OperatorKind.JOIN else 3
            others = st.sampled_from([producer for producer in free if producer != first])
            inputs += draw(st.lists(others, min_size=1, max_size=most_inputs - 1, unique=True))
        read.update(inputs)
        unread = [stream for stream in unread if stream not in inputs]
        node = _node(draw, inputs, operators, nodes, features)
        operators[name] = _operator(draw, name, kind, tuple(inputs), node)
    return operators


def _node(
    draw: st.DrawFn,
    inputs: list[str],
    operators: Mapping[str, Operator],
    nodes: tuple[str, ...],
    features: Features,
) -> str:
    upstream = [nodes.index(operators[name].node) for name in inputs if name in operators]
    earliest = 0 if features.node_cycles else max(upstream, default=0)
    return draw(st.sampled_from(nodes[earliest:]))


def _operator(draw: st.DrawFn, name: str, kind: OperatorKind, inputs: tuple[str, ...], node: str) -> Operator:
    highest = {OperatorKind.FILTER: 100, OperatorKind.JOIN: 50}.get(kind, 200)
    operator = Operator(
        name,
        node,
        inputs,
        kind,
        cost=draw(hundredths(5, 300)),
        selectivity=draw(hundredths(10, highest)),
        bytes=draw(TUPLE_BYTES),
    )
    if kind is OperatorKind.JOIN:
        return replace(operator, windows=(float(draw(st.integers(1, 5))), float(draw(st.integers(1, 5)))))
    if kind is OperatorKind.AGGREGATE:
        window = draw(hundredths(100, 1000))
        return replace(operator, window=window, slide=window / draw(st.integers(1, 4)), group_by=("key",))
    return operator


def _outputs(
    draw: st.DrawFn, streams: tuple[str, ...], operators: Mapping[str, Operator], features: Features
) -> dict[str, Output]:
    read = {producer for operator in operators.values() for producer in operator.inputs}
    sources = [name for name in operators if name not in read]
    if features.splits:
        sources += [name for name in operators if name in read and draw(st.booleans())]
    # A stream left unread (only without splits, when free producers ran out) goes straight to an output.
    sources += [name for name in streams if name not in read or (features.stream_outputs and draw(st.booleans()))]
    return {
        name: Output(name, source, weight=draw(hundredths(25, 400)), tier=draw(st.integers(0, 2)))
        for name, source in zip(_names("q", len(sources)), sources, strict=True)
    }


def _links(draw: st.DrawFn, network: Network) -> tuple[Link, ...]:
    pairs = {
        (source, target): None
        for arc in network.arcs
        if (source := network.node_of(arc.producer)) and (target := network.node_of(arc.consumer)) and source != target
    }
    return tuple(Link(*pair, bandwidth=draw(hundredths(1000, 100000))) for pair in pairs if draw(st.booleans()))


def _with_memory(draw: st.DrawFn, network: Network, name: str) -> Node:
    node = network.nodes[name]
    if not draw(st.booleans()):
        return node
    return replace(node, memory=fixed_memory(network, name) + draw(hundredths(10000, 1000000)))
