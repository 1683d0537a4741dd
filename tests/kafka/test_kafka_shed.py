"""The one line on an existing Kafka job: Spark's own connector, a real broker, a ledger that agrees with the sink."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import floodway
from floodway.job.ledger.ledger import Ledger
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RECORDS = 16_000
AT_ONCE = 100
MANY = 1_000
"""The sink takes one and a half seconds for them: longer than the target, on any machine."""


class Job:
    """Spark's connector, one line, and a sink that takes 667 tuples/s at the most and counts them by batch."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        self.seen: dict[int, int] = {}
        shed = floodway.shed(topic, target_latency="1s", mode="enforce", state_dir=str(folder / "state"))
        options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "startingOffsets": "earliest"}
        stream = spark.readStream.format("kafka").options(**options).load().transform(shed)
        self.writer = stream.writeStream.foreachBatch(self._sink)
        self.writer = self.writer.option("checkpointLocation", str(folder / "checkpoint"))
        self.ledger = Ledger(shed.files.store)

    def _sink(self, batch: DataFrame, number: int) -> None:
        count = batch.count()
        time.sleep(0.0015 * count)
        self.seen[number] = count

    def check(self, sent: int) -> None:
        """Every record was offered, and what was not dropped has reached the sink."""
        total = self.ledger.fold().total
        assert total.offered.total() == sent == total.kept.total() + total.dropped.total()
        assert total.dropped.total() > 0
        assert total.kept.total() == sum(self.seen.values())
        assert self.ledger.fold().differences() == []


def test_one_line_sheds_a_kafka_job_and_accounts_for_it(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("one-line", 2)
    producer = Producer(ordered(broker.address))
    job = Job(spark, broker, topic, tmp_path)
    query = job.writer.start()
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for number in range(sent, sent + count):
            producer.produce(topic, value=b"%d" % number)
        producer.flush()
        sent += count

    def overload() -> None:
        """Whatever a batch takes, as many wait for the next; and never so many that all of them take minutes."""
        if sent - job.ledger.fold().total.offered.total() < 2 * MANY:
            send(MANY)

    try:
        send(1)
        query.processAllAvailable()  # the first batch starts workers: no backlog may build up meanwhile
        wait_until(
            lambda: job.ledger.fold().total.dropped.total() > 0 or not query.isActive,
            "a drop",
            meanwhile=overload,
            pause_seconds=0.1,
        )
        query.processAllAvailable()
        wait_until(lambda: job.ledger.fold().total.offered.total() >= sent, "the last report")
    finally:
        query.stop()
    assert query.exception() is None
    job.check(sent)


@pytest.mark.slow
def test_a_broker_that_dies_costs_a_shed_job_nothing_beyond_the_ledger(
    spark: SparkSession, fresh_broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_broker.create_topic("one-line-faults", 1)
    producer = Producer(ordered(fresh_broker.address))
    job = Job(spark, fresh_broker, topic, tmp_path)
    query, sent = job.writer.start(), 0
    try:
        end = time.monotonic() + PATIENCE_SECONDS
        while job.ledger.fold().total.offered.total() < RECORDS and time.monotonic() < end:
            if sent < RECORDS:
                for number in range(sent, min(sent + AT_ONCE, RECORDS)):
                    producer.produce(topic, value=b"%d" % number)
                sent = min(sent + AT_ONCE, RECORDS)
                if sent == RECORDS // 2:
                    producer.flush()
                    fresh_broker.kill()
                    time.sleep(2.0)
                    fresh_broker.stop()
                    fresh_broker.start()
                producer.poll(0)
            if sent == RECORDS:
                assert producer.flush(PATIENCE_SECONDS) == 0
            if not query.isActive:  # as a supervisor would: the checkpoint says where to go on
                query = job.writer.start()
            time.sleep(0.1)
    finally:
        query.stop()
    job.check(RECORDS)
