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


@pytest.mark.parametrize("form", ["JSON", pytest.param("bytes", marks=pytest.mark.slow)])
def test_all_contenders_read_the_same_tuples(spark: SparkSession, broker: Broker, tmp_path: Path, form: str) -> None:
    register(spark)
    bench = Workbench(spark, tmp_path)
    topic = f"bench-{form}"
    feed(broker.address, topic, TUPLES)
    read: dict[str, list[Row]] = {}
    of_form = contenders(spark, broker.address, topic, TUPLES // 2).items()
    for name, frame in ((name, frame) for name, frame in of_form if name.endswith(form)):
        rows: list[Row] = []

        def collect(batch: DataFrame, number: int, into: list[Row] = rows) -> None:
            into += batch.collect()

        assert len(bench.drain(frame(), collect)) == 2, name
        read[name] = sorted(rows)
    assert read.keys() == {f"floodway, {form}", f"connector, {form}"}
    found = read[f"floodway, {form}"]
    assert found == read[f"connector, {form}"] and len(set(found)) == TUPLES
    if form == "JSON":
        assert [row.id for row in found] == list(range(TUPLES))
