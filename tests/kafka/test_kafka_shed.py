"""The one line on an existing Kafka job: Spark's own connector, a real broker, a ledger that agrees with the sink."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import floodway
from floodway.spark.ledger import Ledger
from scripts.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RECORDS = 16_000


def test_one_line_sheds_a_kafka_job_and_accounts_for_it(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("one-line", 2)
    producer = Producer({"bootstrap.servers": broker.address})
    seen: dict[int, int] = {}

    def slow(batch: DataFrame, number: int) -> None:
        count = batch.count()
        time.sleep(0.0015 * count)  # a sink that takes 667 tuples/s at the most
        seen[number] = count

    shed = floodway.shed("one-line", target_latency="1s", mode="enforce", state_dir=str(tmp_path / "state"))
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        source.transform(shed)
        .writeStream.foreachBatch(slow)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    ledger = Ledger(shed.files.ledger)
    try:
        for number in range(RECORDS):
            producer.produce(topic, value=b"%d" % number)
            if number == 0:
                producer.flush()
                query.processAllAvailable()  # the first batch starts workers: no backlog may build up meanwhile
            if number % 100 == 99:
                producer.flush()
                time.sleep(0.1)
        query.processAllAvailable()
        deadline = time.monotonic() + 30
        while ledger.totals().offered < RECORDS and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        query.stop()
    totals = ledger.totals()
    assert query.exception() is None
    assert totals.offered == RECORDS == totals.kept + totals.dropped
    assert totals.dropped > 0
    assert totals.kept == sum(seen.values())
    assert ledger.reconcile() == []


@pytest.mark.slow
def test_a_broker_that_dies_costs_a_shed_job_nothing_beyond_the_ledger(
    spark: SparkSession, fresh_broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_broker.create_topic("one-line-faults", 1)
    producer = Producer({"bootstrap.servers": fresh_broker.address, "enable.idempotence": True})
    seen: dict[int, int] = {}

    def slow(batch: DataFrame, number: int) -> None:
        count = batch.count()
        time.sleep(0.0015 * count)
        seen[number] = count

    shed = floodway.shed("one-line-faults", target_latency="1s", mode="enforce", state_dir=str(tmp_path / "state"))
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", fresh_broker.address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = source.transform(shed).writeStream.foreachBatch(slow)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query, sent = writer.start(), 0
    ledger = Ledger(shed.files.ledger)
    try:
        deadline = time.monotonic() + 180
        while ledger.totals().offered < RECORDS:
            assert time.monotonic() < deadline, query.status
            if sent < RECORDS:
                for number in range(sent, min(sent + 100, RECORDS)):
                    producer.produce(topic, value=b"%d" % number)
                sent = min(sent + 100, RECORDS)
                if sent == RECORDS // 2:
                    producer.flush()
                    fresh_broker.kill()
                    time.sleep(2.0)
                    fresh_broker.restart()
                producer.poll(0)
            if sent == RECORDS:
                assert producer.flush(60) == 0
            if not query.isActive:  # as a supervisor would: the checkpoint says where to go on
                query = writer.start()
            time.sleep(0.1)
    finally:
        query.stop()
    totals = ledger.totals()
    assert totals.offered == RECORDS == totals.kept + totals.dropped
    assert totals.dropped > 0 and totals.kept == sum(seen.values())
    assert ledger.reconcile() == []
