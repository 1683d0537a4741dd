"""A live job whose capacity does not depend on the machine: its sink waits for a service, so long for every tuple."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import floodway
from floodway.job.ledger.ledger import Ledger
from floodway.job.status.status import Status
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS, wait_until

CAPACITY = 500
"""Tuples per second that the sink takes."""
PARTITIONS = 2
WARM_BATCHES = 8
BLOCK = 10
"""Tuples that are sent at once."""


class Result(NamedTuple):
    """A number that came out: in which batch, when, in seconds of the epoch, and how old it was."""

    number: int
    batch: int
    seconds: float
    latency: float


def values(frame: DataFrame) -> DataFrame:
    """The numbers as text, with their times."""
    return frame.select(fn.col("value").cast("string").alias("value"), "timestamp")


class LiveJob:
    """A shed in front of that sink, and who sends numbers to it at a `rate` that may be changed; few at first.

    Between blocks are `gaps`, relative to their mean, or none where all are alike. `past` are times in milliseconds of
    records that are there before the job, `stamps` the times of all records by partition, in their order.
    """

    def __init__(
        self,
        spark: SparkSession,
        broker: Broker,
        folder: Path,
        name: str,
        *,
        gaps: Iterator[float] | None = None,
        past: tuple[int, ...] = (),
        **options: Any,
    ) -> None:
        self.rate, self.sent, self.results = 0.4 * CAPACITY, 0, list[Result]()
        self.stamps: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._gaps, self._ended = gaps, Event()
        self._topic, self._producer = broker.create_topic(name, PARTITIONS), Producer(ordered(broker.address))
        for at_ms in past:
            self._produce(at_ms)
        assert self._producer.flush(PATIENCE_SECONDS) == 0
        self.shed = floodway.shed("clicks", mode="enforce", state_dir=str(folder / "state"), **options)
        self.ledger = Ledger(self.shed.files.store)
        self.kafka = {"kafka.bootstrap.servers": broker.address, "subscribe": self._topic}
        self.checkpoint = folder / "checkpoint"
        stream = spark.readStream.format("kafka").options(**self.kafka, startingOffsets="earliest").load()
        writer = stream.transform(self.shed).writeStream.foreachBatch(self._sink)
        self._sender = Thread(target=self._send)
        self._sender.start()
        self.query = writer.option("checkpointLocation", str(self.checkpoint)).start()

    def _produce(self, at_ms: int) -> None:
        partition = self.sent % PARTITIONS
        while True:
            try:
                self._producer.produce(self._topic, value=b"%d" % self.sent, partition=partition, timestamp=at_ms)
                break
            except BufferError:
                self._producer.poll(1.0)
        self.stamps[partition].append(at_ms)
        self.sent += 1

    def _sink(self, batch: DataFrame, number: int) -> None:
        rows = values(batch).collect()
        time.sleep(len(rows) / CAPACITY)
        now = time.time()
        self.results += [Result(int(row.value), number, now, now - row.timestamp.timestamp()) for row in rows]

    def _send(self) -> None:
        due = time.monotonic()
        while not self._ended.is_set():
            for _ in range(BLOCK):
                self._produce(time.time_ns() // 1_000_000)
            self._producer.poll(0)
            due += BLOCK / self.rate * (1.0 if self._gaps is None else next(self._gaps))
            time.sleep(max(0.0, due - time.monotonic()))

    def warm_up(self) -> None:
        """Wait for a few batches: the first ones of a fresh process are slow and tell a controller nothing."""
        wait_until(lambda: self.results and self.results[-1].batch >= WARM_BATCHES, "the first batches")

    @property
    def dropped(self) -> int:
        """Tuples, so far."""
        return self.ledger.fold().total.dropped.total()

    @property
    def status(self) -> Status | None:
        """What the job says of itself."""
        return self.shed.files.read_status()

    def numbers(self) -> list[int]:
        """What came out."""
        return [one.number for one in self.results]

    def drain(self) -> None:
        """Send no more, and process and report what is there."""
        self._end()
        self.query.processAllAvailable()
        wait_until(lambda: self.ledger.fold().total.offered.total() == self.sent, "the last report")

    def stop(self) -> None:
        """End, as it is."""
        self._end()
        self.query.stop()

    def _end(self) -> None:
        self._ended.set()
        self._sender.join()
        assert self._producer.flush(PATIENCE_SECONDS) == 0
