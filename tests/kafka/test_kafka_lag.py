"""A backlog in Kafka that is too long: the oldest tuples are skipped by position, counted, and found again."""

from __future__ import annotations

import re
import time
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import floodway
from floodway.errors import InputError
from floodway.job.ledger.ledger import Ledger
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import wait_until
from tests.spark.shedding import Scripted

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TUPLES, LIMIT, MOST = 8_000, 1_000, 500


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_the_oldest_of_a_long_backlog_are_skipped(
    spark: SparkSession, broker: Broker, tmp_path: Path, mode: str
) -> None:
    topic = broker.create_topic(f"lag-{mode}", 2)
    producer = Producer(ordered(broker.address))
    for number in range(TUPLES):
        producer.produce(topic, value=b"%d" % number, partition=number % 2)
    producer.flush()
    kafka = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "startingOffsets": "earliest"}
    shed = floodway.shed(
        topic, target_latency="30s", mode=mode, skip_when_lag=MOST, controller=Scripted([1.0]), state_dir=str(tmp_path)
    )
    seen: dict[int, list[int]] = {}
    ledger = Ledger(shed.files.store)

    def sink(batch: DataFrame, number: int) -> None:
        # What is decided on a batch is in force when the next ends, however slowly the machine reports.
        wait_until(lambda: number == 0 or any(line.batch == number - 1 for line in ledger.lines()), "a report")
        wait_until(lambda: time.time_ns() // 1000 > shed.loop.control.latest.valid_from_us, "the decision")
        seen[number] = [row.n for row in batch.select(fn.col("value").cast("string").cast("int").alias("n")).collect()]

    stream = spark.readStream.format("kafka").options(**kafka, maxOffsetsPerTrigger=str(LIMIT)).load()
    query = stream.transform(shed).writeStream.foreachBatch(sink)
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: ledger.fold().total.offered.total() == TUPLES)
    finally:
        running.stop()
    fold = ledger.fold()
    kept = {number for values in seen.values() for number in values}
    assert fold.differences() == []
    assert fold.total.kept.total() == len(kept)
    if mode == "observe":
        assert len(kept) == TUPLES and not fold.total.dropped
        return
    # The first batches ran before anybody knew of the backlog.
    assert fold.total.dropped[topic, "lag"] == TUPLES - len(kept) > TUPLES / 2
    # Of each partition the newest are left: together as many as may wait, but for rounding.
    newest = [next((n for n in count() if TUPLES - 2 + part - 2 * n not in kept), TUPLES) for part in (0, 1)]
    assert sum(newest) >= MOST - 2
    again = floodway.dropped(topic, kafka=kafka, spark=spark, state_dir=str(tmp_path))
    gone = {int(row.n) for row in again.select(fn.col("value").cast("string").alias("n")).collect()}
    assert gone == set(range(TUPLES)) - kept


def test_a_lag_without_positions_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.readStream.format("rate").load()
    for options, message in (
        ({"skip_when_lag": 10}, "the stream has no columns topic, partition and offset"),
        ({"skip_when_lag": 0}, "skip_when_lag=0 is no number of tuples of at least 1"),
        ({"skip_when_lag": 10, "window": floodway.WindowDrop("timestamp", "1s")}, "skip_when_lag= would take a part"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            source.transform(floodway.shed("x", target_latency="2s", state_dir=str(tmp_path), **options))
