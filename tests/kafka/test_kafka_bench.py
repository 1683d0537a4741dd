"""What the Kafka benchmark compares: every contender reads every tuple of the topic, with the same values."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from floodway.experiments.bench.kafka_source import contenders, feed
from floodway.experiments.bench.spark_common import Workbench
from floodway.spark.source import register
from scripts.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TUPLES = 3000


def test_all_contenders_read_the_same_tuples(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    register(spark)
    bench = Workbench(spark, tmp_path)
    feed(broker.address, "bench", TUPLES)
    read: dict[str, list[Row]] = {}
    for name, frame in contenders(spark, broker.address, "bench", TUPLES // 2).items():
        rows: list[Row] = []

        def collect(batch: DataFrame, number: int, into: list[Row] = rows) -> None:
            into += batch.collect()

        assert len(bench.drain(frame(), collect)) == 2, name
        read[name] = sorted(rows)
    assert read["floodway, JSON"] == read["connector, JSON"]
    assert [row.id for row in read["floodway, JSON"]] == list(range(TUPLES))
    assert read["floodway, bytes"] == read["connector, bytes"]
    assert len(set(read["floodway, bytes"])) == TUPLES
