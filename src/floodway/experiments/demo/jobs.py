"""The demo's job under way: the shop's query on a folder of files, its feeder, and batches offered one by one.

A fresh process compiles the code that is used much, and a busy machine takes long to do so: a query is *warm* once its
batches have stopped getting faster.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from floodway.experiments.demo.shop import RECORDS, WORTH, Shop, ShopTotals, windows, write
from floodway.spark.query.drops import expression
from floodway.spark.shed.shed import Shedder, shed

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

SEED = 7
SHED = "shop"
FLOOR = 0.05
RUNS = WITHOUT, PROTECTED, SAMPLE = "without Floodway", "with Floodway", "fixed sample of 50%"
SETTINGS = {
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
SMALL_EVENTS, SMALL_BATCHES = 1000, 3
STEADY = 1.05
"""A batch that is faster than the fastest before it by less than this factor: the code is compiled."""
STEADY_BATCHES = 3


def shedder(target: float, state: Path) -> Shedder:
    """The line that protects the job."""
    return shed(
        SHED,
        target_latency=target,
        mode="enforce",
        utility=f"if(key = 'order', {WORTH['order']}, {WORTH['click']})",
        floor=FLOOR,
        arrival="timestamp",
        state_dir=str(state),
    )


def _without(events: Any) -> Any:
    return events.selectExpr("*", "1D AS _weight")


def _half(events: Any) -> Any:
    return events.where("pmod(xxhash64(offset), 1000) < 500").selectExpr("*", "2D AS _weight")


DROPS: Mapping[str, Callable[[Any], Any]] = {WITHOUT: _without, SAMPLE: _half}
"""What is done to the stream in the runs that have no Floodway."""


@contextmanager
def started(spark: Session, folder: Path, drop: Callable[[Any], Any], table: str) -> Iterator[Any]:
    """The job's query over `folder/events`, its windows in a table of this name; stopped at the end."""
    events = folder / "events"
    events.mkdir(parents=True)
    counted = (
        spark.readStream.schema(RECORDS)
        .parquet(str(events))
        .transform(drop)
        .observe(
            "demo",
            expression("count_if(key = 'order') AS orders"),
            expression("count_if(key = 'click') AS clicks"),
            expression("avg(unix_micros(timestamp)) AS arrival_us"),
            expression("min(unix_micros(timestamp)) AS oldest_us"),
            expression("max(unix_micros(timestamp)) AS newest_us"),
        )
    )
    writer = windows(spark, counted).writeStream.outputMode("complete").format("memory").queryName(table)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        yield query
    finally:
        query.stop()


class OfferedBatches:
    """Batches of events that are offered to a query, each when it has processed the one before."""

    def __init__(self, query: Any, folder: Path) -> None:
        self._query = query
        self._events = folder / "events"
        self._shop = Shop(SEED, partition=1)
        self._count = 0

    def rate(self, count: int) -> float:
        """Events per second of a batch, of the time that Spark spends on the events themselves."""
        return count / (float(self._process(count).durationMs["addBatch"]) / 1e3)

    def least_seconds(self) -> float:
        """What a batch takes with next to nothing in it."""
        return median(float(self._process(SMALL_EVENTS).batchDuration) / 1e3 for _ in range(SMALL_BATCHES))

    def totals(self) -> ShopTotals:
        """The truth about all events that were offered."""
        return self._shop.totals()

    def _process(self, count: int) -> Any:
        now = round(time.time() * 1e6)
        write(self._shop.make(count, start_us=now, end_us=now + 1), self._events, f"offered-{self._count}")
        self._count += 1
        self._query.processAllAvailable()
        raise_failure(self._query)
        return [progress for progress in self._query.recentProgress if progress.numInputRows][-1]


def rates_until_steady(measure: Callable[[], float], seconds: float, say: Callable[[int, float], None]) -> list[float]:
    """The rates of batches, measured until they are no faster, or for so many seconds; `say` hears each."""
    rates: list[float] = []
    end = time.monotonic() + seconds
    while len(rates) < STEADY_BATCHES or (time.monotonic() < end and not is_steady(rates)):
        rates.append(measure())
        say(len(rates), rates[-1])
    return rates


def is_steady(rates: Sequence[float]) -> bool:
    """Whether the last batches were no faster than those before them.

    >>> is_steady([10.0, 20.0, 21.0, 19.0, 20.5]), is_steady([10.0, 20.0, 21.0, 24.0, 20.5])
    (True, False)
    """
    before, last = rates[:-STEADY_BATCHES], rates[-STEADY_BATCHES:]
    return bool(before) and max(last) <= STEADY * max(before)


@contextmanager
def feeding(folder: Path, rate: float, seconds: float) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """The feeder as a process that writes into a folder, and when it began, in seconds of the epoch; ended at last."""
    command = [sys.executable, "-m", "floodway.experiments.demo.shop_feed", str(folder)]
    arguments = [str(rate), str(seconds), str(SEED), str(os.getpid())]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as feeder:
        try:
            yield feeder, _beginning(feeder, folder)
        finally:
            feeder.kill()


def _beginning(feeder: subprocess.Popen[str], events: Path) -> float:
    """When the load began: the arrival of the first event, in seconds of the epoch."""
    first = events / "000000.parquet"
    while not first.exists():
        if feeder.poll() is not None:
            raise RuntimeError(f"the demo's feeder ended with code {feeder.returncode} before it wrote an event")
        time.sleep(0.01)
    return float(pq.read_table(first, columns=["timestamp"])["timestamp"][0].as_py().timestamp())


def raise_failure(query: Any) -> None:
    """Raise what the query has failed with, if it has."""
    failure = query.exception()
    if failure is not None:
        raise failure
