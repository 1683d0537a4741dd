"""Load on a Kafka topic from a process of its own, at a rate that can be changed while it runs.

Records are JSON of about 200 bytes: a user, a page and four items. They are made once and sent again and again, so that
sending costs little of the machine that is measured. The record's time is that of sending.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from multiprocessing.sharedctypes import Synchronized
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from floodway.experiments.bench.spark_common import SEED, BenchError

if TYPE_CHECKING:
    from confluent_kafka import Producer

SCHEMA = "user string, page string, items array<struct<sku: string, price: double, n: int>>"
PARTITIONS = 2
RECORDS = 5000
PAGES = 100
TICK_SECONDS = 0.01
_PATIENCE_SECONDS = 30.0
_TOPIC = {"retention.ms": "60000", "retention.bytes": str(256 << 20), "segment.bytes": str(64 << 20)}


def records(count: int = RECORDS) -> list[bytes]:
    """Values as JSON, the same in every run."""
    rng = np.random.default_rng(SEED)
    found = []
    for number in range(count):
        items = [{"sku": f"s{rng.integers(1000):03d}", "price": int(rng.integers(400)) / 4, "n": 1} for _ in range(4)]
        page = f"/shop/{rng.integers(PAGES):02d}"
        found.append(json.dumps({"user": f"u{number % 997:03d}", "page": page, "items": items}).encode())
    return found


def create_topic(servers: str, topic: str) -> None:
    """A topic whose records the broker may delete after a minute."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=_TOPIC)]).values():
        future.result(timeout=_PATIENCE_SECONDS)


def fill(servers: str, topic: str, count: int) -> None:
    """That many records, at once."""
    from confluent_kafka import Producer

    producer, values = Producer(_settings(servers)), records()
    for number in range(count):
        _put(producer, topic, values[number % RECORDS], number % PARTITIONS)
    if producer.flush(_PATIENCE_SECONDS):
        raise BenchError(f"Kafka at {servers} did not take the records", hint="Is the broker up?")


class Sender:
    """The sending process; `rate` is in records per second, `sent` counts them."""

    def __init__(self, servers: str, topic: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._rate: Synchronized[float] = context.Value("d", 0.0)
        self._sent: Synchronized[int] = context.Value("q", 0)
        self._process = context.Process(
            target=_send, args=(servers, topic, self._rate, self._sent), name="floodway-bench-load", daemon=True
        )

    @property
    def rate(self) -> float:
        """What is asked for."""
        return self._rate.value

    @rate.setter
    def rate(self, value: float) -> None:
        """Send so many from now on."""
        self._rate.value = value

    @property
    def sent(self) -> int:
        """Records handed to the client library so far."""
        return self._sent.value

    def check(self) -> None:
        """Raise if the process has ended."""
        if not self._process.is_alive():
            raise BenchError("the process that sends records has ended", hint="Is the broker up? See the log above")

    def __enter__(self) -> Sender:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join(_PATIENCE_SECONDS)


def _send(servers: str, topic: str, rate: Synchronized[float], sent: Synchronized[int]) -> None:
    from confluent_kafka import Producer

    producer, values = Producer(_settings(servers)), records()
    due, last, number = 0.0, time.monotonic(), 0
    while True:
        now = time.monotonic()
        due, last = due + rate.value * (now - last), now
        for _ in range(int(due)):
            _put(producer, topic, values[number % RECORDS], (number >> 6) % PARTITIONS)
            number += 1
        due -= int(due)
        sent.value = number
        producer.poll(0)
        time.sleep(TICK_SECONDS)


def _put(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def _settings(servers: str) -> dict[str, str | int]:
    return {
        "bootstrap.servers": servers,
        "linger.ms": 10,
        "batch.num.messages": 10_000,
        "queue.buffering.max.messages": 1_000_000,
        "acks": 1,
    }
