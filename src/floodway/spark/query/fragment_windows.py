"""Window Drop in a fragment: which of its drops go by windows, and which windows may leave it. Pure: no Spark in here.

The drop before an aggregate passes tuples inside kept windows; the aggregate builds parts of the dropped windows too,
because windows overlap, and what leaves it is checked against the keeps of every drop above. A fragment knows the keeps
of its own drops from its journal. Those of other fragments above it lie in ROOT/windows/QUERY.json: a query writes them
there before it writes what it has let pass, so who reads the one finds the other.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from floodway.errors import InputError
from floodway.job.options.options import JobOptions
from floodway.job.store.store import make_folder, write_atomically
from floodway.json_text import load_json
from floodway.network.flow import link_of
from floodway.network.model import Arc, Network
from floodway.network.part import whole_location
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_keeps import WindowKeeps, from_numbers
from floodway.planning.windows.window_shapes import DropKind, aggregated, drop_kind, location_consumers
from floodway.spark.log.inputs import open_input
from floodway.spark.log.kafka_links import is_topic
from floodway.spark.log.meta import META
from floodway.spark.log.profiles import DEFAULT_SCHEMA
from floodway.spark.log.schema import EVENT_TIME, parse_schema
from floodway.spark.query.fragments import Fragment, fragments, inner_arcs
from floodway.spark.source.windows import has_event_time

PlacedKeeps = tuple[str, WindowKeeps]
"""A drop's place and its keeps."""


@dataclass(frozen=True, slots=True)
class FragmentWindows:
    """The Window Drops of one fragment.

    `drops` are new keeps by place: a source's location, or an arc inside; `names` are the names of these places in the
    whole network, `sources` the sources whose tuples come there. `checked` are the arcs from the streaming part's last
    operator on which windows leave; `above` are the queries before this one, `relevant` the places (by name) whose
    keeps decide whether those windows are whole.
    """

    folder: Path
    drops: Mapping[str, WindowKeeps] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, frozenset[str]] = field(default_factory=dict)
    checked: frozenset[Arc] = frozenset()
    above: tuple[str, ...] = ()
    relevant: frozenset[str] = frozenset()

    def of_source(self, source: str) -> dict[str, WindowKeeps]:
        """The places whose keeps a source journals."""
        return {at: keeps for at, keeps in self.drops.items() if source in self.sources[at]}

    def publish(self, query: str, keeps: Collection[PlacedKeeps]) -> None:
        """Let the queries below know the keeps that a batch has journaled, before it writes anything."""
        if not self.drops:
            return
        path = self._path(query)
        text = json.dumps(sorted([self.names.get(at, at), *found.numbers()] for at, found in set(keeps)))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            make_folder(path.parent)
            write_atomically(path, text)

    def deciding(self, own: Collection[PlacedKeeps]) -> list[WindowKeeps]:
        """The keeps that decide which windows may leave: of the journaled drops here and of those above."""
        found = {(self.names.get(at, at), keeps) for at, keeps in own}
        for query in self.above:
            found |= set(_read(self._path(query)))
        return sorted((keeps for at, keeps in found if at in self.relevant), key=WindowKeeps.numbers)

    def _path(self, query: str) -> Path:
        return self.folder / f"{query}.json"


def fragment_windows(
    whole: Network, part: Network, parts: Mapping[str, Fragment], folder: Path, timeless: Mapping[str, str]
) -> dict[str, FragmentWindows]:
    """The Window Drops of every fragment of `part`, a node's part of the whole network or all of it.

    `timeless` are streams of the whole network whose tuples cannot be told by event time, with the reason.
    """
    queries = {name: f for node in whole.nodes for f in fragments(whole, node) for name in f.operators}
    levels = _levels(whole)
    some = aggregated(whole)
    kinds = {at for at, kind in drop_kinds(whole, timeless).items() if kind.shape is not None}
    found = {}
    for query, fragment in parts.items():
        drops: dict[str, WindowKeeps] = {}
        names: dict[str, str] = {}
        sources: dict[str, frozenset[str]] = {}
        places = {spec.location for spec in fragment.sources}
        for at, name, kind in _kinds(whole, part, fragment, timeless):
            if kind.shape is not None:
                names[at] = name
                sources[at] = _feeding(part, fragment, at)
                drops[at] = WindowKeeps(kind.shape, _salt(levels, whole, name, at not in places))
        last = fragment.streaming[-1] if fragment.streaming else ""
        over = _ancestors(whole, last) if last else frozenset()
        relevant = over | {str(arc) for arc in whole.arcs if arc.consumer in over or arc.consumer == last}
        leaving = [Arc(last, c) for c in part.consumers.get(last, ()) if _whole_consumer(part, c) not in some]
        has_windows = any(whole.operators[name].window is not None for name in (*over, last) if name in whole.operators)
        is_shed = any(at in drops or at in kinds for at in relevant)
        found[query] = FragmentWindows(
            folder,
            drops,
            names,
            sources,
            frozenset(leaving if has_windows and is_shed else ()),
            tuple(sorted({queries[name].query for name in over if name in queries} - {query})),
            relevant,
        )
    return found


def drop_kinds(whole: Network, timeless: Mapping[str, str]) -> dict[str, DropKind]:
    """How every drop location above an aggregate drops."""
    found = {}
    for at in whole.drop_locations:
        kind = _timed(whole, at.partition("->")[0], drop_kind(whole, location_consumers(whole, at)), timeless)
        if kind != DropKind():
            found[at] = kind
    return found


def drop_shapes(windows: Mapping[str, FragmentWindows]) -> dict[str, WindowShape]:
    """The windows of all places that drop by windows, inside fragments or before them."""
    return {at: keeps.shape for found in windows.values() for at, keeps in found.drops.items()}


def _kinds(
    whole: Network, part: Network, fragment: Fragment, timeless: Mapping[str, str]
) -> Iterator[tuple[str, str, DropKind]]:
    """(place, its name in the whole network, how it drops) of the sources and of the branches inside."""
    for spec in fragment.sources:
        if spec.location is not None:
            readers = [c for c in part.consumers[spec.producer] if c in fragment.operators]
            if spec.branch is not None:
                readers = [spec.branch.removeprefix(f"{spec.producer}->")]
            yield spec.location, spec.location, _timed(whole, spec.producer, drop_kind(whole, readers), timeless)
    for arc in inner_arcs(part, fragment):
        kind = drop_kind(whole, [_whole_consumer(part, arc.consumer)])
        yield str(arc), whole_location(part, str(arc)), _timed(whole, arc.producer, kind, timeless)


def _feeding(part: Network, fragment: Fragment, at: str) -> frozenset[str]:
    """The sources of a fragment whose tuples come to a place."""
    own = frozenset(spec.name for spec in fragment.sources if spec.location == at)
    producer = at.partition("->")[0]
    over = _ancestors(part, producer) | {producer}
    return own or frozenset(spec.name for spec in fragment.sources if spec.producer in over)


def _timed(whole: Network, producer: str, kind: DropKind, timeless: Mapping[str, str]) -> DropKind:
    """Random where a stream above has no event time; a link is named as the arc that it carries."""
    name = producer if producer in whole.consumers else producer.partition("->")[0]
    reasons = [timeless[stream] for stream in sorted(_ancestors(whole, name) | {name}) if stream in timeless]
    return DropKind(reason=reasons[0]) if kind.shape is not None and reasons else kind


def _whole_consumer(part: Network, consumer: str) -> str:
    """The consumer in the whole network: an output of a part may be a link to an operator."""
    return consumer.partition("->")[2] if consumer in part.outputs and "->" in consumer else consumer


def _ancestors(network: Network, name: str) -> frozenset[str]:
    """All streams and operators above an operator."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        operator = network.operators.get(waiting.pop())
        fresh = [] if operator is None else [p for p in operator.inputs if p not in found]
        found.update(fresh)
        waiting += fresh
    return frozenset(found)


def _levels(network: Network) -> dict[str, int]:
    """Operators on the longest path from a stream to each producer."""
    levels = dict.fromkeys(network.streams, 0)
    for name in network.order:
        levels[name] = 1 + max(levels[p] for p in network.operators[name].inputs)
    return levels


def _salt(levels: Mapping[str, int], whole: Network, at: str, inside: bool) -> int:
    """One salt for drops side by side, others for those further down; a link has two, where it is written and read."""
    producer = at.partition("->")[0]
    if inside:
        return 2 * levels[producer] + 1
    return 0 if producer in whole.streams else 2 * levels[producer] + 2


def _read(path: Path) -> list[PlacedKeeps]:
    try:
        body = load_json(path.read_text(encoding="utf-8"))
        return [(str(at), from_numbers(numbers)) for at, *numbers in body]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} does not hold the keeps of windows: {error}", hint="Restore it") from None


def timeless_streams(network: Network, job: JobOptions, *, over_kafka: bool = False) -> dict[str, str]:
    """Streams whose tuples must be dropped one by one, with the reason.

    A log that is not there yet is taken to have an event time; its source refuses it if it has none. Nodes whose links
    go `over_kafka` may share no folder, and nobody could tell which windows the nodes before have dropped.
    """
    if job.buffering is not None:
        return dict.fromkeys(network.streams, "the buffer drops single tuples")
    if job.on_loss == "skip":
        return dict.fromkeys(network.streams, "with --on-loss skip nobody can tell which windows have lost tuples")
    found = {}
    for name in network.streams:
        columns = stream_columns(network, name)
        if columns is not None and not has_event_time(columns):
            found[name] = f"streams.{name} has no column {EVENT_TIME!r} of type timestamp"
    if over_kafka:
        some = aggregated(network)
        crossed = [arc for arc in network.arcs if arc.consumer in some and link_of(network, arc) is not None]
        above = {name for arc in crossed for name in _ancestors(network, arc.consumer) if name in network.streams}
        found |= dict.fromkeys(above, "links over Kafka do not carry the keeps of windows")
    return found


def stream_columns(network: Network, name: str) -> pa.Schema | None:
    """The columns of a stream as far as they are known before it is read; None: not at all."""
    stream = network.streams[name]
    if stream.log is None:
        return parse_schema(stream.schema or DEFAULT_SCHEMA)
    if is_topic(stream.log):
        return parse_schema(stream.schema) if stream.schema else pa.schema([])
    return open_input(stream.log).payload if (Path(stream.log) / META).exists() else None
