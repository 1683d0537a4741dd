"""A job that was down: `max_age` skips the old backlog of a topic, and the ledger says how much that was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import floodway
from floodway.job.ledger.ledger import Ledger
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import wait_until
from tests.spark.shedding import Scripted

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

OLD, FRESH = 20_000, 500
HALF_AN_HOUR_MS = 1_800_000


class Job:
    """Spark's connector, one line, and a sink that keeps the values of every batch."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        self.kafka = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "startingOffsets": "earliest"}
        self.state = str(folder / "state")
        self.seen: dict[int, list[str]] = {}
        shed = floodway.shed(
            topic, target_latency="30s", mode="enforce", max_age="5m", state_dir=self.state,
            controller=Scripted([1.0]),  # however slow the machine is, nothing is dropped for its speed
        )  # fmt: skip
        stream = spark.readStream.format("kafka").options(**self.kafka).load().transform(shed)
        writer = stream.writeStream.foreachBatch(self._sink)
        self.query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        self.ledger = Ledger(shed.files.store)

    def _sink(self, batch: DataFrame, number: int) -> None:
        self.seen[number] = [row.value for row in batch.select(fn.col("value").cast("string")).collect()]


def test_after_downtime_results_are_fresh_within_three_batches(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.create_topic("stale", 2)
    producer = Producer(ordered(broker.address))
    producer.produce(topic, value=b"fresh")
    producer.flush()
    before = Job(spark, broker, topic, tmp_path)
    before.query.processAllAvailable()
    # The next job takes over the state: what comes later from this one is refused.
    wait_until(lambda: before.ledger.fold().total.offered.total() == 1, "the first report")
    before.query.stop()
    assert list(before.seen) == [0]

    long_ago_ms = time.time_ns() // 1_000_000 - HALF_AN_HOUR_MS
    for number in range(OLD):
        producer.produce(topic, value=b"old %d" % number, timestamp=long_ago_ms)
    for number in range(FRESH):
        producer.produce(topic, value=b"fresh %d" % number)
    producer.flush()
    job = Job(spark, broker, topic, tmp_path)
    try:
        wait_until(lambda: job.ledger.fold().total.offered.total() == 1 + OLD + FRESH)
    finally:
        job.query.stop()
    fresh = {number: values for number, values in job.seen.items() if values}
    assert min(fresh) <= 3
    assert all(value.startswith("fresh") for values in fresh.values() for value in values)
    fold = job.ledger.fold()
    assert fold.differences() == []
    assert fold.total.dropped[topic, "stale"] == OLD
    assert fold.total.kept.total() == 1 + sum(map(len, fresh.values())) == 1 + FRESH
    again = floodway.dropped(topic, kafka=job.kafka, spark=spark, state_dir=job.state)
    assert again.count() == fold.total.dropped.total()
    assert again.filter(fn.col("value").cast("string").startswith("old")).count() == OLD
