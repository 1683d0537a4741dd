"""A query that never waits for data is stopped right after a commit, not in the middle of a batch."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from floodway.spark.query.journal import committed_batches
from floodway.spark.query.stopping import stop_between_batches
from tests.patience import wait_until

pytestmark = pytest.mark.spark


class HeldQuery:
    """The query, holding its batches: the first until somebody waits for its end, the next until the query is stopped.

    So how fast the machine is does not matter.
    """

    def __init__(self, query: StreamingQuery, waited_for: Event, stopped: Event) -> None:
        self._query = query
        self._waited_for = waited_for
        self._stopped = stopped

    def __getattr__(self, name: str) -> Any:
        if name == "status":
            self._waited_for.set()
        return getattr(self._query, name)

    def stop(self) -> None:
        stopping = Thread(target=self._query.stop)
        stopping.start()
        wait_until(lambda: not self._query.isActive and self._is_interrupted(), "the interrupt")
        self._stopped.set()
        stopping.join()

    def _is_interrupted(self) -> bool:
        """Whether Spark has interrupted the thread of the query, or that has ended; `isActive` is false before."""
        jvm: Any = SparkContext._jvm
        threads = jvm.java.lang.Thread.getAllStackTraces().keySet()
        return all(thread.isInterrupted() for thread in threads if str(self._query.runId) in thread.getName())


def test_the_batch_under_way_is_finished_and_the_next_is_not_worked_on(spark: SparkSession, tmp_path: Path) -> None:
    begun: list[int] = []
    waited_for, stopped = Event(), Event()

    def process(_: DataFrame, number: int) -> None:
        begun.append(number)
        (waited_for if number == 0 else stopped).wait()

    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = frame.writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(process).start()
    while not begun:
        time.sleep(0.01)
    stop_between_batches(cast(StreamingQuery, HeldQuery(query, waited_for, stopped)), tmp_path, grace_seconds=600.0)
    assert committed_batches(tmp_path)[-1] == 0


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
