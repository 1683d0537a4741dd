"""Kafka as a backend: positions are Kafka offsets, records are read by assignment, every wait is bounded.

No consumer group is joined and nothing is committed to the broker: Spark's checkpoint holds the positions. `_arrival`
is the record's timestamp (of creation or of append, as the topic is set). Offsets that hold no record (transaction
markers, compacted records) count as offered and yield nothing.

When a single record came is found by one small read (`RecordTimes`): the time that the source gives it as `_arrival`,
so that a deadline means one thing at the head of a queue and at the sink.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as KafkaCode

from floodway.errors import FloodwayError
from floodway.spark.log import PositionError, Span
from floodway.spark.log.schema import ARRIVAL, TIMESTAMP, parse_schema
from floodway.spark.source.backend import Piece
from floodway.spark.source.decode import decode_json, decode_rows, json_schema, raw_schema
from floodway.spark.source.options import SourceOptions

Answer = TypeVar("Answer")
_PASSING = frozenset({KafkaCode.LEADER_NOT_AVAILABLE, KafkaCode.NOT_LEADER_FOR_PARTITION})
_AGAIN_SECONDS = 0.1
_POLL_MESSAGES = 10_000
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 0.5
_FEW_BYTES = "16384"
_SPARSE_BYTES = 512 << 10
"""What one request asks for where much is left out: half of it, on the mean, is for nothing when a run ends."""
_SEEK_BYTES = _SPARSE_BYTES
"""What lies between two runs and is rather read than sought past."""
_SAMPLED = 16
"""Records of a poll that tell how large records are; before the first poll they are taken to have _GUESSED_BYTES."""
_GUESSED_BYTES = 256
_OVERHEAD_BYTES = 20
"""Of a record, beside key and value."""


_DEFAULTS = {
    "group.id": "floodway-source",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 10,  # a request under way, at the end of a topic, holds up the next batch's
    "log_level": 2,
}
_SPARSE = {
    "fetch.message.max.bytes": _SPARSE_BYTES,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 1,  # a queue that is full after one request is no reason to pause for a second
}


class KafkaSourceError(FloodwayError):
    """A broker that cannot be reached, a topic that is not there, a read that got no answer."""

    exit_code = 2


class KafkaBackend:
    """One topic. `extra` are settings of its consumers that no option can hold, such as a function for statistics."""

    def __init__(self, options: SourceOptions, extra: Mapping[str, Any] | None = None) -> None:
        self._topic = options.topic or ""
        self._settings: dict[str, Any] = {**options.kafka, **(extra or {})}
        self._timeout = options.timeout_seconds
        self._format = options.value_format
        self._payload = _payload(options)
        self._open: Consumer | None = None
        self._open_sparse: Consumer | None = None
        self._record_bytes: float = _GUESSED_BYTES

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

    def first_since(self, partition: int, span: Span, time_us: int) -> int:
        """As the broker's index of times has it."""
        asked = TopicPartition(self._topic, partition, -(-time_us // 1000))

        def offset() -> int:
            (found,) = self._consumer().offsets_for_times([asked], timeout=self._timeout)
            if found.error is not None:
                raise KafkaException(found.error)
            return found.offset

        try:
            at = asked_again(offset, self._timeout)
        except KafkaException as error:
            raise KafkaSourceError(
                f"topic {self._topic} partition {partition} does not say what is how old: {error}",
                hint="Is the broker there, and do its records have timestamps?",
            ) from error
        return span.end if at < 0 else min(max(at, span.first), span.end)

    def read(self, partition: int, runs: Sequence[tuple[int, int]]) -> Iterator[Piece]:
        """The records of the runs. Near ones are read in one go, and what lies between them is thrown away undecoded.

        What lies between others is not fetched: a consumer that asks for little at a time seeks past it.
        """
        left = list(runs)
        while left:
            near = first_group(left, max(1, round(_SEEK_BYTES / self._record_bytes)))
            consumer = self._consumer() if len(near) == len(runs) else self._sparse()
            del left[: len(near)]
            starts, ends = np.array(near).T
            for messages in self._range(consumer, partition, near[0][0], near[-1][1]):
                offsets = np.array([_offset(message) for message in messages])
                inside = offsets < ends[np.searchsorted(starts, offsets, side="right") - 1]
                if left:
                    self._record_bytes = sum(map(_bytes, messages[:_SAMPLED])) / len(messages[:_SAMPLED])
                if inside.any():
                    yield self._piece([messages[at] for at in np.flatnonzero(inside)])

    def messages(self, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """The records of one range as Kafka has them, with their keys and headers."""
        return self._range(self._consumer(), partition, start, end)

    def _range(self, consumer: Consumer, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        consumer.assign([TopicPartition(self._topic, partition, start)])
        try:
            yield from self._until(consumer, partition, start, end)
        finally:
            consumer.unassign()  # or it would go on fetching

    def _until(self, consumer: Consumer, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        at, waited = start, 0.0
        while at < end:
            began = time.monotonic()
            polled = consumer.consume(min(_POLL_MESSAGES, end - at), _POLL_SECONDS)
            # At most what was asked for: a process that was held up itself has not waited for the broker.
            waited += min(time.monotonic() - began, _POLL_SECONDS)
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
                waited = 0.0
            elif waited > self._timeout:
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
        try:
            return asked_again(self._ends, self._timeout)
        except KafkaException as error:
            raise KafkaSourceError(
                f"Kafka at {self._settings['bootstrap.servers']} did not answer within {self._timeout:g} s "
                f"({error.args[0].str()})",
                hint="Start the broker or check the address; the query continues from its checkpoint",
            ) from None

    def _ends(self) -> dict[int, tuple[int, int]]:
        consumer = self._consumer()
        metadata = consumer.list_topics(self._topic, timeout=self._timeout).topics[self._topic]
        if metadata.error is not None and metadata.error.code() in _PASSING:
            raise KafkaException(metadata.error)
        if metadata.error is not None or not metadata.partitions:
            raise KafkaSourceError(f"topic {self._topic} is not there", hint="Create it, or check the option 'topic'")
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=self._timeout)
            for partition in sorted(metadata.partitions)
        }

    def _consumer(self) -> Consumer:
        if self._open is None:
            self._open = Consumer({**_DEFAULTS, **self._settings})
        return self._open

    def _sparse(self) -> Consumer:
        """A consumer that fetches nothing ahead of what it is asked for but one request."""
        if self._open_sparse is None:
            self._open_sparse = Consumer({**_DEFAULTS, **_SPARSE, **self._settings})
        return self._open_sparse


def asked_again(
    ask: Callable[[], Answer],
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Answer:
    """What a broker answers; while a partition changes its leader it is asked again, for so many seconds."""
    end = clock() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or clock() >= end:
                raise
            sleep(_AGAIN_SECONDS)


def first_group(runs: Sequence[tuple[int, int]], near: int) -> list[tuple[int, int]]:
    """The first of these runs, and those behind it with less than `near` records between one and the next.

    >>> first_group([(0, 5), (8, 9), (100, 200)], near=50)
    [(0, 5), (8, 9)]
    """
    gaps = (at for at, (one, other) in enumerate(pairwise(runs), start=1) if other[0] - one[1] >= near)
    return list(runs[: next(gaps, len(runs))])


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


def _bytes(message: Message) -> int:
    return len(message.value() or b"") + len(message.key() or b"") + _OVERHEAD_BYTES


class RecordTimes:
    """Looks up times in one topic. Its consumer asks for little: a look-up wants one record, and no read-ahead."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        self._topic = topic
        self._settings: dict[str, str | int | bool] = {
            "group.id": "floodway-times",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "queued.min.messages": 1,
            "fetch.message.max.bytes": _FEW_BYTES,
            # A request under way holds up the next look-up: it waits for new records no longer than this,
            "fetch.wait.max.ms": 10,
            # and a queue that is full after one record is no reason to pause for a second.
            "fetch.queue.backoff.ms": 5,
            "log_level": 2,
            **settings,
        }
        self._open: Consumer | None = None

    def at(self, partition: int, position: int) -> float | None:
        """Seconds since 1970 of the first record at or after `position`; None if none answers within half a second.

        Also None at the end of a partition, for a deleted position, and where records carry no time.
        """
        try:
            consumer = self._consumer()
            consumer.assign([TopicPartition(self._topic, partition, position)])
            deadline = time.monotonic() + _LOOK_SECONDS
            while (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(left)
                if message is None:
                    continue
                found = message.offset()
                if message.error() is not None:  # the end, or a position that is gone
                    return None
                if message.partition() == partition and found is not None and found >= position:
                    kind, millis = message.timestamp()
                    return None if kind == TIMESTAMP_NOT_AVAILABLE else millis / 1e3
        except KafkaException:  # a broker that is away: whoever reads the topic will tell
            return None
        return None

    def _consumer(self) -> Consumer:
        if self._open is None:
            self._open = Consumer(self._settings)
        return self._open
