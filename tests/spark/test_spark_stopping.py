"""A query that never waits for data is stopped right after a commit, not in the middle of a batch."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from floodway.spark.query.journal import committed_batches
from floodway.spark.query.stopping import stop_between_batches

pytestmark = pytest.mark.spark


def test_the_batch_under_way_is_finished_and_the_next_is_not_worked_on(spark: SparkSession, tmp_path: Path) -> None:
    begun: list[int] = []
    ended: list[int] = []

    def process(_: DataFrame, number: int) -> None:
        begun.append(number)
        time.sleep(1.0)  # a batch of a second, so that the next one cannot have ended when it is stopped
        ended.append(number)

    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = frame.writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(process).start()
    while not ended:
        time.sleep(0.01)
    while len(begun) == len(ended):
        time.sleep(0.01)
    under_way = begun[-1]
    stop_between_batches(query, tmp_path, grace_seconds=60.0)
    assert under_way in ended
    assert max(committed_batches(tmp_path)) == under_way


def test_after_its_grace_it_is_stopped_wherever_it_is(spark: SparkSession, tmp_path: Path) -> None:
    begun: list[int] = []

    def process(_: DataFrame, number: int) -> None:
        begun.append(number)
        time.sleep(2.0)

    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = frame.writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(process).start()
    while not begun:
        time.sleep(0.01)
    stop_between_batches(query, tmp_path, grace_seconds=0.0)
    assert not query.isActive and len(begun) == 1
