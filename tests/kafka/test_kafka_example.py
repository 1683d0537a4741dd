"""The example job on a real broker: windowed counts with the one line, estimates that add up, a ledger that agrees."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import floodway
from floodway.job.ledger.ledger import Ledger
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PATH = Path(__file__).resolve().parents[2] / "examples" / "kafka_windowed_count.py"
RECORDS = 2_000


def example() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("kafka_windowed_count", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_counts_every_click_and_says_so(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    job = example()
    topic = broker.create_topic("windowed-count", 2)
    producer = Producer(ordered(broker.address))
    for number in range(RECORDS):
        producer.produce(topic, value=b"page-%d" % (number % 3))
    producer.flush()
    shed = floodway.shed("windowed-count", target_latency="30s", state_dir=str(tmp_path))
    counts = job.count(job.read(spark, broker.address, topic).transform(shed))
    query = (
        counts.writeStream.outputMode("complete")
        .format("memory")
        .queryName("windowed_count_example")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_SECONDS)
    rows = spark.sql(
        "SELECT page, sum(seen) AS seen, sum(estimate) AS estimate FROM windowed_count_example GROUP BY page"
    )
    found = {row["page"]: (row["seen"], row["estimate"]) for row in rows.collect()}
    assert {page: seen for page, (seen, _) in found.items()} == {"page-0": 667, "page-1": 667, "page-2": 666}
    assert all(estimate == pytest.approx(seen) for seen, estimate in found.values())  # observe: nothing was dropped
    ledger = Ledger(shed.files.store)
    wait_until(lambda: ledger.fold().total.offered.total() >= RECORDS, "the last report")
    assert ledger.fold().total.offered.total() == RECORDS
    assert ledger.fold().differences() == []
