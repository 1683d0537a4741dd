"""Cutting a node's part of the network into streaming queries ("fragments"). Pure: no Spark in here.

A micro-batch can be processed in two places. In the *streaming* part of a query Spark keeps state for us (windows,
joins), but a plan with several outputs would run once an output. In the *tail*, inside `foreachBatch`, the batch is
an ordinary DataFrame: splits are computed once and counted exactly, but there is no state. So:

- operators that need state, and those that feed only them, form streaming zones; everything else is tail;
- a join by count keeps its windows itself (`count_join.py`) and belongs to the tail;
- a zone is a tree that ends in one operator, whose tail follows in the same query;
- all tails that hang on no zone run together in one query a node;
- an aggregate above another ends its zone: each has its own watermark, and Spark allows one in a query;
- an arc from a split or a zone into another zone, or to another node, is cut: its tuples go through a log of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodway.network.model import Arc, Network, Operator, OperatorKind

_STATEFUL = frozenset({OperatorKind.AGGREGATE, OperatorKind.JOIN})


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One log a fragment reads. `name` is the stream, or the cut arc `producer->consumer`.

    `location` is where the source's own drops are accounted for: the stream, or the branch of a split stream when
    this fragment reads the stream for that branch alone (then the source applies both keeps at once). None for cut
    arcs: their drops were applied where they were written.
    """

    name: str
    producer: str
    location: str | None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Fragment:
    """One streaming query: what it reads, the operators in its streaming part and in its tail, and where it ends.

    One that moves between participants belongs to no node: its `node` is "".
    """

    name: str
    node: str
    sources: tuple[SourceSpec, ...]
    streaming: tuple[str, ...]
    tail: tuple[str, ...]
    outputs: tuple[str, ...]
    cut: tuple[Arc, ...]

    @property
    def query(self) -> str:
        """The query's name, wherever it runs: in Spark, in ledgers and in the tags of what it writes."""
        return f"{self.node}.{self.name}" if self.node else self.name

    @property
    def operators(self) -> tuple[str, ...]:
        """All operators of the fragment, upstream first."""
        return (*self.streaming, *self.tail)


def fragments(network: Network, node: str) -> tuple[Fragment, ...]:
    """The streaming queries of one node: one for each zone, and one for all that needs no state."""
    local = [name for name in network.order if network.operators[name].node == node]
    zone_of = _zones(network, local)
    home = dict(zone_of)
    for name in local:
        if name not in home:
            homes = {home[p] for p in network.operators[name].inputs if p in home and p in local}
            # A tail operator with one zone above it belongs to that zone's query; `_zones` leaves no other mixture.
            home[name] = next(iter(sorted(homes - {""})), "")
    names = sorted(set(home.values()))
    made = [_fragment(network, node, label, home, zone_of) for label in names]
    return tuple(fragment for fragment in made if fragment.operators)


def inner_arcs(network: Network, fragment: Fragment) -> list[Arc]:
    """Branches whose drops happen in a fragment's tail."""
    producers = [*(spec.name for spec in fragment.sources), *fragment.operators]
    readers = {*fragment.tail, *fragment.outputs, *(arc.consumer for arc in fragment.cut)}
    split = [p for p in producers if p in network.consumers and network.is_split(p)]
    return [Arc(p, c) for p in split for c in network.consumers[p] if c in readers]


def link_name(arc: Arc) -> str:
    """File-system name of the log that carries a cut arc."""
    return f"{arc.producer}--{arc.consumer}"


def is_link(spec: SourceSpec) -> bool:
    """Whether a source reads what another fragment or node wrote; in a node's own part a link is a stream `a->b`."""
    return spec.location is None or "->" in spec.producer


def _zones(network: Network, local: list[str]) -> dict[str, str]:
    """Zone operators, each with the zone's last operator as label."""
    needs_state = _needing_state(network, set(local))
    zone_of: dict[str, str] = {}
    for name in reversed(local):
        consumers = network.consumers[name]
        follower = zone_of.get(consumers[0]) if len(consumers) == 1 else None
        ends = _is_count_join(network.operators[name]) or _feeds_aggregate(network, zone_of, name)
        if follower is not None and not ends:
            zone_of[name] = follower
        elif name in needs_state:
            zone_of[name] = name
    return zone_of


def _feeds_aggregate(network: Network, zone_of: Mapping[str, str], name: str) -> bool:
    """Whether this is an aggregate and another one follows in the zone that it would belong to."""
    if network.operators[name].kind is not OperatorKind.AGGREGATE:
        return False
    while len(network.consumers[name]) == 1 and (name := network.consumers[name][0]) in zone_of:
        if network.operators[name].kind is OperatorKind.AGGREGATE:
            return True
    return False


def _is_count_join(operator: Operator) -> bool:
    """A join without a function of its own: it runs in the tail, with windows that the query keeps itself."""
    return operator.kind is OperatorKind.JOIN and operator.run is None


def _needing_state(network: Network, local: set[str]) -> set[str]:
    """Stateful operators, and merges of something that comes from one: `foreachBatch` sees one plan's output only."""
    after: set[str] = set()
    needing: set[str] = set()
    for name in network.order:
        if name not in local:
            continue
        operator = network.operators[name]
        from_state = any(p in after for p in operator.inputs)
        keeps_state = operator.kind in _STATEFUL and not _is_count_join(operator)
        if keeps_state or (len(operator.inputs) > 1 and from_state):
            needing.add(name)
        if name in needing or from_state:
            after.add(name)
    return needing


def _fragment(network: Network, node: str, label: str, home: Mapping[str, str], zone_of: Mapping[str, str]) -> Fragment:
    mine = [name for name in network.order if home.get(name) == label and name in home]
    sources: dict[str, SourceSpec] = {}
    cut: list[Arc] = []
    for name in mine:
        for producer in network.operators[name].inputs:
            spec = _source(network, home, zone_of, Arc(producer, name))
            if spec is not None:
                sources[spec.name] = spec
        for consumer in network.consumers[name]:
            arc = Arc(name, consumer)
            if consumer in network.operators and _is_cut(network, home, zone_of, arc):
                cut.append(arc)
    return Fragment(
        name=label or "main",
        node=node,
        sources=tuple(sources.values()),
        streaming=tuple(name for name in mine if zone_of.get(name) == label),
        tail=tuple(name for name in mine if name not in zone_of),
        outputs=tuple(out.name for out in network.outputs.values() if out.source in mine),
        cut=tuple(cut),
    )


def _is_cut(network: Network, home: Mapping[str, str], zone_of: Mapping[str, str], arc: Arc) -> bool:
    """Whether an arc between operators passes through a log: to another node, or from a split into a zone."""
    if arc.producer not in home or arc.consumer not in home:
        return True
    return arc.consumer in zone_of and zone_of.get(arc.producer) != zone_of[arc.consumer]


def _source(network: Network, home: Mapping[str, str], zone_of: Mapping[str, str], arc: Arc) -> SourceSpec | None:
    """How an operator's input comes into its fragment; None when it is produced inside."""
    if arc.producer in network.operators:
        if not _is_cut(network, home, zone_of, arc):
            return None
        return SourceSpec(str(arc), arc.producer, None)
    if arc.consumer in zone_of and network.is_split(arc.producer):
        return SourceSpec(str(arc), arc.producer, str(arc), branch=str(arc))
    return SourceSpec(arc.producer, arc.producer, arc.producer)
