"""Kafka as a backend: positions are Kafka offsets, records are read by assignment, every wait is bounded.

No consumer group is joined and nothing is committed to the broker: Spark's checkpoint holds the positions. `_arrival`
is the record's timestamp (of creation or of append, as the topic is set). Offsets that hold no record (transaction
markers, compacted records) count as offered and yield nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as KafkaCode

from floodway.errors import FloodwayError
from floodway.spark.log import PositionError, Span
from floodway.spark.log.schema import ARRIVAL, TIMESTAMP, parse_schema
from floodway.spark.source.backend import Piece
from floodway.spark.source.decode import decode_json, decode_rows, json_schema, raw_schema
from floodway.spark.source.options import SourceOptions
from floodway.spark.source.record_times import RecordTimes

_POLL_MESSAGES = 10_000
_POLL_SECONDS = 0.2
_NEAR = 20_000
"""Records between two runs that are rather read than sought past; some megabytes at most are fetched ahead anyway."""


class KafkaSourceError(FloodwayError):
    """A broker that cannot be reached, a topic that is not there, a read that got no answer."""

    exit_code = 2


class KafkaBackend:
    """One topic."""

    def __init__(self, options: SourceOptions) -> None:
        self._topic = options.topic or ""
        self._settings = dict(options.kafka)
        self._timeout = options.timeout_seconds
        self._format = options.value_format
        self._payload = _payload(options)
        self._open: Consumer | None = None

    @property
    def stream(self) -> str:
        """The topic's name."""
        return self._topic

    @property
    def payload(self) -> pa.Schema:
        """The columns of the option `schema`, for JSON with `_error` and `_raw`; or key and value."""
        return self._payload

    def earliest(self) -> dict[int, int]:
        """The oldest offset that the broker still has."""
        return {partition: low for partition, (low, _) in self._watermarks().items()}

    def latest(self) -> dict[int, int]:
        """The offset that the next record will get."""
        return {partition: high for partition, (_, high) in self._watermarks().items()}

    def spans(self, starts: Mapping[int, int]) -> dict[int, Span]:
        """Between the watermarks; partitions added to the topic start at their beginning."""
        spans = {}
        for partition, (low, high) in self._watermarks().items():
            start = starts.get(partition, low)
            if start > high:
                raise PositionError(
                    f"topic {self._topic} partition {partition} ends at {high}, before position {start}",
                    hint="The topic was recreated: start the query with a new checkpoint",
                    first=high,
                    lost=0,
                )
            spans[partition] = Span(max(start, low), high)
        return spans

    def read(self, partition: int, runs: Sequence[tuple[int, int]]) -> Iterator[Piece]:
        """The records of the runs. Near ones are read in one go, and what lies between them is thrown away undecoded:

        a seek throws away all that was fetched ahead, and that is many times a small gap.
        """
        for near in grouped(runs):
            starts, ends = np.array(near).T
            for messages in self.messages(partition, near[0][0], near[-1][1]):
                offsets = np.array([_offset(message) for message in messages])
                inside = offsets < ends[np.searchsorted(starts, offsets, side="right") - 1]
                if inside.any():
                    yield self._piece([messages[at] for at in np.flatnonzero(inside)])

    def messages(self, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """The records of one range as Kafka has them, with their keys and headers."""
        consumer = self._consumer()
        consumer.assign([TopicPartition(self._topic, partition, start)])
        try:
            yield from self._until(consumer, partition, start, end)
        finally:
            consumer.unassign()  # or it would go on fetching

    def _until(self, consumer: Consumer, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        at, deadline = start, time.monotonic() + self._timeout
        while at < end:
            polled = consumer.consume(min(_POLL_MESSAGES, end - at), _POLL_SECONDS)
            messages = [m for m in polled if self._is_record(m)]
            wanted = [m for m in messages if at <= _offset(m) < end]
            if wanted:
                yield wanted
                at = _offset(wanted[-1]) + 1
            if any(_is_out_of_range(m) for m in polled):
                raise self._deleted(partition, at)
            # Past offsets that hold no record only the consumer's position moves on.
            position = consumer.position([TopicPartition(self._topic, partition)])[0].offset
            if position >= end or any(_offset(m) >= end for m in messages[-1:]):
                break
            if wanted:
                deadline = time.monotonic() + self._timeout
            elif time.monotonic() > deadline:
                raise KafkaSourceError(
                    f"topic {self._topic} partition {partition}: no record at offset {at} within {self._timeout:g} s",
                    hint="Check that the broker is up; the query continues from its checkpoint",
                )

    def record_times(self) -> RecordTimes:
        """To look up when single records came, with a consumer of its own."""
        return RecordTimes(self._settings, self._topic)

    def _piece(self, messages: list[Message]) -> Piece:
        values = [message.value() for message in messages]
        if self._format == "json":
            batch = decode_json(values, self._payload)
        elif self._format == "arrow":
            batch = decode_rows(values, self._payload, where=f"topic {self._topic}")
        else:
            keys = pa.array([message.key() for message in messages], pa.binary())
            batch = pa.RecordBatch.from_arrays([keys, pa.array(values, pa.binary())], schema=self._payload)
        millis = np.array([message.timestamp()[1] for message in messages], dtype=np.int64)
        batch = batch.append_column(ARRIVAL, pa.array(millis * 1000).cast(TIMESTAMP))
        return np.array([_offset(message) for message in messages], dtype=np.int64), batch

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaCode._PARTITION_EOF or error.retriable() or not error.fatal():
            return False
        raise KafkaSourceError(f"topic {self._topic}: {error.str()}", hint="Check the broker")

    def _deleted(self, partition: int, at: int) -> PositionError:
        first = max(self._watermarks()[partition][0], at)
        return PositionError(
            f"topic {self._topic} partition {partition}: {first - at} record(s) from offset {at} on were deleted "
            "before they were read",
            hint="Keep records longer, or accept the loss: `floodway run --on-loss skip` (onLoss=skip)",
            first=first,
            lost=first - at,
        )

    def _watermarks(self) -> dict[int, tuple[int, int]]:
        consumer = self._consumer()
        try:
            metadata = consumer.list_topics(self._topic, timeout=self._timeout).topics[self._topic]
            if metadata.error is not None or not metadata.partitions:
                raise KafkaSourceError(
                    f"topic {self._topic} is not there", hint="Create it, or check the option 'topic'"
                )
            return {
                partition: consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=self._timeout)
                for partition in sorted(metadata.partitions)
            }
        except KafkaException as error:
            raise KafkaSourceError(
                f"Kafka at {self._settings['bootstrap.servers']} did not answer within {self._timeout:g} s "
                f"({error.args[0].str()})",
                hint="Start the broker or check the address; the query continues from its checkpoint",
            ) from None

    def _consumer(self) -> Consumer:
        if self._open is None:
            defaults = {
                "group.id": "floodway-source",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 10,  # a request under way, at the end of a topic, holds up the next batch's
                "log_level": 2,
            }
            self._open = Consumer({**defaults, **self._settings})
        return self._open


def grouped(runs: Sequence[tuple[int, int]], near: int = _NEAR) -> list[list[tuple[int, int]]]:
    """Runs in order, those together that lie less than `near` records apart.

    >>> grouped([(0, 5), (8, 9), (100, 200)], near=50)
    [[(0, 5), (8, 9)], [(100, 200)]]
    """
    groups: list[list[tuple[int, int]]] = []
    for run in runs:
        if groups and run[0] - groups[-1][-1][1] < near:
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups


def _payload(options: SourceOptions) -> pa.Schema:
    if options.value_format == "raw":
        return raw_schema()
    return json_schema(options.schema or "") if options.value_format == "json" else parse_schema(options.schema or "")


def _is_out_of_range(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() in (KafkaCode.OFFSET_OUT_OF_RANGE, KafkaCode._AUTO_OFFSET_RESET)


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset
