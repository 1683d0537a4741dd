"""A query that never waits for data is stopped right after a commit, not in the middle of a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from floodway.spark.query.journal import committed_batches
from floodway.spark.query.stream_run import stop_between_batches
from tests.patience import wait_until

pytestmark = pytest.mark.spark


class HeldQuery:
    """The query, holding its batches: the first until somebody waits for its end, the next until the query is stopped.

    So how fast the machine is does not matter. Whether Spark still commits a batch that ends after its interrupt is
    left to Spark; what is judged is what was committed when the stop was asked for.
    """

    def __init__(self, query: StreamingQuery, checkpoint: Path) -> None:
        self._query = query
        self._checkpoint = checkpoint
        self.waited_for = Event()
        self.stopped = Event()
        self.committed_at_stop: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if name == "status":
            self.waited_for.set()
        return getattr(self._query, name)

    def stop(self) -> None:
        self.committed_at_stop = committed_batches(self._checkpoint)
        stopping = Thread(target=self._query.stop)
        stopping.start()
        wait_until(lambda: not self._query.isActive, "the stop")
        self.stopped.set()
        stopping.join()


class Batches:
    """A stream that is never out of data; a batch ends when its gate opens."""

    def __init__(self, spark: SparkSession, checkpoint: Path, gates: Callable[[HeldQuery, int], Event]) -> None:
        self.begun: list[int] = []
        self._made = Event()
        self._gates = gates
        frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(self._process)
        self.query = HeldQuery(writer.start(), checkpoint)
        self._made.set()
        wait_until(lambda: self.begun, "a batch")

    def _process(self, _: DataFrame, number: int) -> None:
        self._made.wait()
        self.begun.append(number)
        self._gates(self.query, number).wait()


def test_the_batch_under_way_is_finished_and_the_next_is_not_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    batches = Batches(spark, tmp_path, lambda query, number: query.waited_for if number == 0 else query.stopped)
    stop_between_batches(cast(StreamingQuery, batches.query), tmp_path, grace_seconds=600.0)
    assert batches.query.committed_at_stop == [0]
    assert not batches.query.isActive


def test_after_its_grace_it_is_stopped_wherever_it_is(spark: SparkSession, tmp_path: Path) -> None:
    batches = Batches(spark, tmp_path, lambda query, _: query.stopped)
    stop_between_batches(cast(StreamingQuery, batches.query), tmp_path, grace_seconds=0.0)
    # Only the stop releases the batch: one that waited for the batch's end would never return.
    assert batches.query.committed_at_stop == []
    assert not batches.query.isActive and batches.begun == [0]


def test_one_that_waits_for_data_can_be_stopped_right_after_its_next_batch(spark: SparkSession, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    frame = spark.readStream.schema("value string").text(str(source))
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(lambda batch, number: None)
    query = HeldQuery(writer.start(), checkpoint)
    stopping = Thread(
        target=stop_between_batches,
        args=(cast(StreamingQuery, query), checkpoint, 600.0),
        kwargs={"idle_seconds": 600.0},
    )
    stopping.start()
    query.waited_for.wait()
    assert stopping.is_alive() and query.isActive
    (source / "one.txt").write_text("one")
    stopping.join()
    assert query.committed_at_stop == [0] and not query.isActive


def test_one_that_gets_no_data_is_stopped_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("value string").text(str(tmp_path / "in"))
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.foreachBatch(lambda batch, number: None).start()
    stop_between_batches(query, tmp_path / "checkpoint", grace_seconds=600.0, idle_seconds=0.2)
    assert not query.isActive and committed_batches(tmp_path / "checkpoint") == []
