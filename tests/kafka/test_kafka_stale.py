"""A job that was down: `max_age` skips the old backlog of a topic, and the ledger says how much that was."""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import fmean

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import floodway
from floodway.job.ledger.ledger import Ledger
from scripts.kafka_broker import Broker
from tests.kafka.live_job import PARTITIONS, LiveJob, values
from tests.kafka.producers import ordered
from tests.patience import wait_until
from tests.spark.shedding import Scripted

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

OLD, FRESH = 20_000, 500
HALF_AN_HOUR_MS = 1_800_000
TARGET_SECONDS = 5.0
BATCHES_LOOKED_AT = 12


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


@pytest.mark.slow
@pytest.mark.timing
def test_half_an_hour_of_backlog_is_behind_with_the_third_batch(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """As after downtime: records of every moment of the last half hour, and new ones all the time."""
    now_ms, records = time.time_ns() // 1_000_000, 90_000
    past = tuple(now_ms - HALF_AN_HOUR_MS * (records - number) // records for number in range(records))
    job = LiveJob(spark, broker, tmp_path, "backlog", past=past, target_latency=TARGET_SECONDS, max_age="10s")
    try:
        wait_until(lambda: job.results and job.results[-1].batch >= BATCHES_LOOKED_AT, "enough batches")
        job.drain()
    finally:
        job.stop()
    batches = sorted({one.batch for one in job.results})
    means = {at: fmean(one.latency for one in job.results if one.batch == at) for at in batches}
    print("\nmean latency by batch:", {at: round(mean, 2) for at, mean in means.items()})
    assert all(mean <= TARGET_SECONDS for at, mean in means.items() if at >= 2)
    total = job.ledger.fold().total
    assert job.ledger.fold().differences() == []
    assert total.dropped["clicks", "stale"] == stale_by_journal(job)
    gone = floodway.dropped("clicks", kafka=job.kafka, spark=spark, state_dir=str(tmp_path / "state"))
    dropped = [int(row.value) for row in values(gone).collect()]
    assert sorted([*dropped, *job.numbers()]) == list(range(job.sent))
    assert total.dropped.total() == len(dropped)


def stale_by_journal(job: LiveJob) -> int:
    """Records that were older than ten seconds when Spark cut their batch, by its own journal."""
    found, starts = 0, [0] * PARTITIONS
    for path in sorted((job.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        _, meta, offsets = path.read_text().splitlines()
        (ends,) = json.loads(offsets).values()
        for partition, start in enumerate(starts):
            read = job.stamps[partition][start : ends[str(partition)]]
            found += sum(at_ms < json.loads(meta)["batchTimestampMs"] - 10_000 for at_ms in read)
        starts = [ends[str(partition)] for partition in range(PARTITIONS)]
    return found
