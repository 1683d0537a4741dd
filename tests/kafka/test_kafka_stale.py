"""A job that was down: `max_age` skips the old backlog of a topic, and the ledger says how much that was."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import floodway
from floodway.job.ledger.ledger import Ledger
from scripts.kafka_broker import Broker
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

OLD, FRESH = 20_000, 500
HALF_AN_HOUR_MS = 1_800_000


def test_after_downtime_results_are_fresh_within_three_batches(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.create_topic("stale", 2)
    producer = Producer({"bootstrap.servers": broker.address})
    long_ago_ms = time.time_ns() // 1_000_000 - HALF_AN_HOUR_MS
    for number in range(OLD):
        producer.produce(topic, value=b"old %d" % number, timestamp=long_ago_ms)
    producer.flush()
    state, seen = str(tmp_path / "state"), dict[int, list[str]]()

    def sink(batch: DataFrame, number: int) -> None:
        seen[number] = [row.value for row in batch.select(fn.col("value").cast("string")).collect()]

    kafka = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "startingOffsets": "earliest"}
    shed = floodway.shed(topic, target_latency="30s", mode="enforce", max_age="10s", state_dir=state)
    stream = spark.readStream.format("kafka").options(**kafka, maxOffsetsPerTrigger=str(OLD)).load().transform(shed)
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_for(lambda: 0 in seen)
        for number in range(FRESH):
            producer.produce(topic, value=b"fresh %d" % number)
        producer.flush()
        wait_for(lambda: any(seen.values()))
        query.processAllAvailable()
        ledger = Ledger(shed.files.store)
        wait_for(lambda: ledger.fold().total.offered.total() == OLD + FRESH)
    finally:
        query.stop()
    assert min(number for number, values in seen.items() if values) <= 3
    kept = [value for values in seen.values() for value in values]
    assert kept and all(value.startswith("fresh") for value in kept)
    total = ledger.fold().total
    skipped = total.dropped[topic, "stale"]
    assert skipped >= OLD  # a fresh one that met a long batch on a busy machine is stale too
    assert total.kept.total() == len(kept)
    assert ledger.fold().differences() == []
    again = floodway.dropped(topic, kafka=kafka, spark=spark, state_dir=state)
    assert again.count() == total.dropped.total()
    assert again.filter("timestamp < timestamp_millis(0)").count() == 0
    assert again.filter(fn.col("value").cast("string").startswith("old")).count() == OLD


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "gave up waiting"
        time.sleep(0.05)
