"""The example that merges live and recovered windows: its table equals that of the same job without drops.

With FORMAT=delta, and Delta's jars and settings in a `spark-defaults.conf` (SPARK_CONF_DIR), its tables are Delta's.
"""

from __future__ import annotations

import importlib.util
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import floodway
from floodway.job.ledger.backfill import Live
from floodway.job.ledger.ledger import Ledger
from floodway.spark.shed.recovery.backfill import Backfill
from floodway.spark.shed.recovery.recover import Recovery
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.spark.shedding import Scripted

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PATH = Path(__file__).resolve().parents[2] / "examples" / "kafka_recovered_windows.py"
RECORDS, PART, BATCHES = 300, 75, 4
FIRST_MS = int(time.time()) // 60 * 60_000 - 600_000
"""Ten minutes ago: Kafka deletes what is older than its retention, by the time that a record names."""
BATCH_MS = 40_000
"""Longer than the watermark: every batch closes the windows of the one before."""


def example() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("kafka_recovered_windows", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def send(broker: Broker, topic: str, batch: int) -> None:
    """One batch of clicks, spread over its time; one page has a single click in all.

    A query may see a part of it first: what it sees later must not be late, so the broker has ten seconds of clicks in
    both partitions before it gets the next ten.
    """
    producer = Producer(ordered(broker.address))
    for number in range(RECORDS):
        at = FIRST_MS + batch * BATCH_MS + number * BATCH_MS // RECORDS
        page = b"rare" if (batch, number) == (1, 7) else b"page-%d" % (number % 7)
        producer.produce(topic, value=page, timestamp=at, partition=number % 2)
        if (number + 1) % PART == 0:
            assert producer.flush(PATIENCE_SECONDS) == 0


def test_the_merged_table_equals_an_unshed_run(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, topic = example(), broker.create_topic("recovered-windows", 2)
    options: dict[str, str] = job.kafka(broker.address, topic)
    stream = spark.readStream.format("kafka").options(**options).load
    shed = floodway.shed(
        "clicks", target_latency="2s", mode="enforce", controller=Scripted([0.4]), state_dir=str(tmp_path / "state")
    )
    ledger = Ledger(shed.files.store)
    ways: dict[str, Any] = {"shed": shed, "unshed": lambda df: df}
    queries = {name: job.live(stream(), str(tmp_path / name), protect) for name, protect in ways.items()}
    try:
        for batch in range(BATCHES):
            send(broker, topic, batch)
            for query in queries.values():
                query.processAllAvailable()
            wait_until(partial(is_counted, ledger, (batch + 1) * RECORDS))
            wait_until(partial(is_past, shed.loop.control.latest.valid_from_us), "the decision")
    finally:
        for query in queries.values():
            query.stop()

    shed_table, unshed = (spark.read.format(job.FORMAT).load(str(tmp_path / name / "live")) for name in ways)
    assert clicks(shed_table) < clicks(unshed)

    monkeypatch.setenv("OUT", str(tmp_path / "shed"))
    work = Backfill("clicks", Recovery(spark, shed.files, options), job.fill, lambda: Live(False))
    *_, last = work.steps()
    assert (last.remaining, last.lost, work.differences()) == (0, 0, [])
    merged = job.merge(spark, str(tmp_path / "shed"))
    assert rows(merged) == rows(unshed)
    assert any(page == "rare" for _, _, page, _ in rows(merged))
    every_click = spark.read.format("kafka").options(**options).load()
    assert job.differences(merged, every_click) == 0
    assert job.differences(shed_table, every_click) > 0  # what was dropped is missing there


def is_counted(ledger: Ledger, tuples: int) -> bool:
    return ledger.fold().total.offered.total() >= tuples


def is_past(time_us: int) -> bool:
    return time.time_ns() // 1000 > time_us


def clicks(table: DataFrame) -> int:
    return sum(row["clicks"] for row in table.collect())


def rows(table: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((row["start"], row["end"], row["page"], row["clicks"]) for row in table.collect())
