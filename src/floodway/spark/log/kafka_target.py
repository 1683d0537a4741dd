"""Feeding Kafka: tuples as JSON objects, one record each, every wait bounded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from floodway.errors import FloodwayError

_TIMEOUT = 15.0


class KafkaTargetError(FloodwayError):
    """A broker that cannot be reached or refuses records."""


class KafkaTarget:
    """Produces to a topic, which is created if it is not there."""

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        partitions: int,
        settings: Mapping[str, str] | None = None,
        topic_settings: Mapping[str, str] | None = None,
    ) -> None:
        self._servers, self._topic = servers, topic
        self._failed: str | None = None
        common: dict[str, str | int | float | bool] = {"bootstrap.servers": servers, "log_level": 2}
        common.update(settings or {})
        self.partitions = self._ensure_topic(AdminClient(common), partitions, dict(topic_settings or {}))
        # Every record once and in its order, also where a busy broker lets the client try again.
        idempotent = {"enable.idempotence": True, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000}
        self._producer = Producer({**idempotent, **common})

    def send(self, batch: pa.RecordBatch, partition: int) -> None:
        """Queue every tuple of the batch; earlier failures are raised here."""
        for row in json_rows(batch):
            self.put(row, partition)
        self._producer.poll(0)
        self._raise_failure()

    def put(
        self,
        value: bytes,
        partition: int,
        *,
        key: bytes | None = None,
        timestamp_ms: int = 0,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Queue one record; a timestamp of 0 is the time of sending."""
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=value,
                    key=key,
                    partition=partition,
                    timestamp=timestamp_ms,
                    headers=list(headers),
                    on_delivery=self._delivered,
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def close(self) -> None:
        """Wait, for a bounded time, until the broker has everything."""
        left = self._producer.flush(_TIMEOUT)
        self._raise_failure()
        if left:
            raise KafkaTargetError(
                f"Kafka at {self._servers} has not taken {left} record(s) within {_TIMEOUT:g} s",
                hint="Check that the broker is up",
            )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed = error.str()

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise KafkaTargetError(
                f"Kafka at {self._servers} refused a record: {self._failed}", hint="Check the broker"
            )

    def _ensure_topic(self, admin: AdminClient, partitions: int, settings: dict[str, str]) -> int:
        try:
            topics = admin.list_topics(timeout=_TIMEOUT).topics
            if self._topic in topics:
                return len(topics[self._topic].partitions)
            made = admin.create_topics([NewTopic(self._topic, partitions, 1, config=settings)])
            made[self._topic].result(_TIMEOUT)
            return partitions
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:  # made by another process meanwhile
                return partitions
            raise KafkaTargetError(
                f"Kafka at {self._servers} did not answer within {_TIMEOUT:g} s ({error.args[0].str()})",
                hint="Start the broker or check the address",
            ) from None


def json_rows(batch: pa.RecordBatch) -> list[bytes]:
    """Each tuple as a JSON object, timestamps as ISO text in UTC, numbers that JSON does not have as null.

    >>> json_rows(pa.record_batch({"id": [1], "at": pa.array([0], pa.timestamp("us", tz="UTC"))}))
    [b'{"id":1,"at":"1970-01-01T00:00:00.000000Z"}']
    >>> json_rows(pa.record_batch({"x": [0.5, float("nan"), None]}))
    [b'{"x":0.5}', b'{"x":null}', b'{"x":null}']
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            suffix = "Z" if column.type.tz else ""
            text = column.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
            values = ["null" if value is None else f'"{value.replace(" ", "T")}{suffix}"' for value in text]
        elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            values = ["null" if value is None else _number(value) for value in column.to_pylist()]
        else:
            values = [json.dumps(value, default=_text) for value in column.to_pylist()]
        columns.append((json.dumps(name), values))
    template = "{" + ",".join(name.replace("%", "%%") + ":%s" for name, _ in columns) + "}"
    return [(template % row).encode() for row in zip(*(values for _, values in columns), strict=True)]


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "null"


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
