"""The logs of a run: how much has arrived on each stream, and output logs created with the right columns in advance."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from floodway.errors import FloodwayError, InputError
from floodway.job.clocks import PROCESS_CLOCK, SteadyClock
from floodway.network.model import Arc, Network
from floodway.spark.log import create_log
from floodway.spark.log.inputs import Arrivals, open_input
from floodway.spark.log.kafka_links import is_kafka_link, is_topic, prepare_link
from floodway.spark.log.meta import META
from floodway.spark.log.schema import ARRIVAL, parse_schema, schema_text
from floodway.spark.query.fragment_query import FragmentQuery
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.sinks import is_files, is_log, public_columns, refuse_unnamed_batches
from floodway.spark.source.backend import Backend
from floodway.spark.source.kafka import KafkaBackend


def stream_arrivals(network: Network, layout: RunLayout) -> Arrivals:
    """How much has arrived on each stream."""
    return Arrivals({name: layout.stream(network, name) for name in network.streams})


def check_streams(network: Network, layout: RunLayout) -> None:
    """Refuse a stream whose log or topic is not there, before anything slow starts; those that name none are fed."""
    for name, stream in network.streams.items():
        if stream.log is None:
            continue
        address = layout.stream(network, name)
        if is_topic(address):
            open_input(address, patient=True).latest()
        elif not (Path(address) / META).exists():
            raise InputError(
                f"streams.{name}: there is no log at {address}",
                hint=f"Make it with `floodway feed {address}`, or leave `log` out of the file to have the stream fed",
            )


def create_sink_logs(queries: Sequence[FragmentQuery], network: Network, layout: RunLayout) -> None:
    """Create the logs of cut arcs and outputs, upstream first: a query's columns follow from those it reads."""
    waiting = list(queries)
    while waiting:
        ready = [query for query in waiting if not query.missing_sources()]
        if not ready:
            missing = ", ".join(sorted({spec.name for query in waiting for spec in query.fragment.sources}))
            raise InputError(
                f"no log to read for {missing}",
                hint="Start the nodes that feed it, or `floodway feed` the stream",
            )
        for query in ready:
            for sink, frame in query.sink_frames().items():
                path = sink_log(network, layout, sink)
                columns = public_columns(frame).drop("_arrival").schema
                ddl = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in columns)
                if path is not None:
                    create_log(path, parse_schema(ddl), partitions=query.tasks, stream=sink)
                elif is_kafka_link(sink, address := layout.output(network, sink)):
                    prepare_link(address, schema_text(parse_schema(ddl)), query.tasks)
                elif is_files(address):
                    refuse_unnamed_batches(address, sink)
            query.create_dead_letter_logs()
        waiting = [query for query in waiting if query not in ready]


def sink_log(network: Network, layout: RunLayout, sink: str) -> Path | None:
    """The log that an output or a cut arc is written to; None for a sink that is no log."""
    if sink in network.outputs:
        address = layout.output(network, sink)
        return Path(address) if is_log(address) else None
    producer, _, consumer = sink.partition("->")
    return layout.link(Arc(producer, consumer))


class QueueLog:
    """The log of one stream, opened once. A broker that does not answer leaves the last ends known."""

    def __init__(self, backend: Backend, clock: SteadyClock = PROCESS_CLOCK) -> None:
        self._backend = backend
        self._clock = clock
        self._ends = backend.latest()
        # A topic's records are read by the thousand: single ones are looked up beside that.
        self._times = backend.record_times() if isinstance(backend, KafkaBackend) else None

    @classmethod
    def of(cls, network: Network, layout: RunLayout, stream: str, clock: SteadyClock = PROCESS_CLOCK) -> QueueLog:
        """The log that a stream of the network is read from."""
        return cls(open_input(layout.stream(network, stream)), clock)

    def first(self) -> dict[int, int]:
        """The oldest position of each partition: where a query without a checkpoint starts."""
        return self._backend.earliest()

    def ends(self) -> dict[int, int]:
        """The position after the newest tuple of each partition."""
        with suppress(FloodwayError):
            self._ends = self._backend.latest()
        return dict(self._ends)

    def arrival_seconds(self, partition: int, position: int) -> float | None:
        """When the tuple at `position` came, as its `_arrival` says, by the clock; None if that cannot be told.

        In a topic that is the time of creation or of append, as the topic is set.
        """
        arrived = self._arrived(partition, position)
        return None if arrived is None else self._clock.steady(arrived)

    def _arrived(self, partition: int, position: int) -> float | None:
        if self._times is not None:
            return self._times.at(partition, position)
        try:
            for _, batch in self._backend.read(partition, [(position, position + 1)]):
                arrived: datetime = batch.column(ARRIVAL)[0].as_py()
                return arrived.timestamp()
        except FloodwayError:  # retired meanwhile: the source will tell
            return None
        return None
