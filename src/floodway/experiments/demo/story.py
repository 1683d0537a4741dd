"""What the demo does: find out what this machine can process, offer twice that, and run the job three times.

- *without* Floodway: every event is processed, however late;
- with a *fixed sample*, as a user would write by hand: half of the events, whatever they are worth;
- with *Floodway*, one line: orders before clicks, as many clicks as there is time for.

Latency is measured the same way in all three, from Spark's own progress: the end of a batch less the mean arrival of
what it processed. The load begins when the query has processed some batches: its start is no part of it.

The target follows from what a batch takes on this machine whatever it holds: on a busy one that is a second and more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from floodway.experiments.demo.result import PARTS, DemoBatch, DemoRun
from floodway.experiments.demo.shop import RECORDS, WORTH, Shop, ShopTotals, windows, write
from floodway.job.status.status import Totals
from floodway.spark.query.drops import expression
from floodway.spark.shed.shed import Shedder, shed

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

SEED = 7
OVERLOAD = 2.0
SHED = "shop"
FLOOR = 0.05
WARM_EVENTS = 20_000
"""In each of the batches by which a query is warmed up: a fresh process compiles the code that is used much."""
WARM_BATCHES = 6
LARGE_EVENTS, SMALL_EVENTS = 80_000, 1000
SMALL_BATCHES = 3
STEADY = 1.05
"""A batch that is faster than the fastest before it by less than this factor: the code is compiled."""
STEADY_BATCHES = 3
CALIBRATION_SECONDS = 30.0
"""After that many the measurement ends at the latest: a machine that does much else is never steady."""
BATCH_SHARE = 6.0
"""The target is such that what a batch takes whatever it holds is about a sixth of its batches."""
LEAST_TARGET, MOST_TARGET = 3.0, 9.0
LEAST_SECONDS, SECONDS_PER_TARGET = 36.0, 8.0
LEDGER_SECONDS = 60.0
RUNS = WITHOUT, SAMPLE, PROTECTED = "without Floodway", "fixed sample of 50%", "with Floodway"
SETTINGS = {
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}

Progress = Callable[[str, float, str], None]
"""Title, share done in [0, 1], and a remark: for a progress bar."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What was measured: events per second in large batches, and what a batch takes whatever it holds, in seconds."""

    capacity: float
    batch_seconds: float

    @property
    def target(self) -> float:
        """A latency that the job can meet on this machine with most of the time left for events, in whole seconds."""
        return min(max(LEAST_TARGET, float(ceil(1.5 * BATCH_SHARE * self.batch_seconds))), MOST_TARGET)

    def to_dict(self) -> dict[str, float]:
        """For --json."""
        return {"capacity": self.capacity, "batch_seconds": self.batch_seconds}


def load_seconds(target: float) -> float:
    """How long the load is to last: for about a dozen batches of the target."""
    return max(LEAST_SECONDS, SECONDS_PER_TARGET * target)


def calibrate(spark: Session, folder: Path, progress: Progress, *, seconds: float = CALIBRATION_SECONDS) -> Calibrated:
    """What this machine can do: large batches until they get no faster, because the code is compiled; then small ones.

    The rate is the median of the last large batches, of the time that Spark spends on the events themselves.
    """
    title = "measuring what this machine can process"
    events = folder / "events"
    events.mkdir(parents=True)
    large, small = (
        write(Shop(SEED).make(count, start_us=0, end_us=1_000_000), folder, name)
        for count, name in ((LARGE_EVENTS, "large"), (SMALL_EVENTS, "small"))
    )
    query = _start(spark, _without(_read(spark, events)), folder / "checkpoint", "demo_calibration")
    try:
        rates: list[float] = []
        end = time.monotonic() + seconds
        while len(rates) < STEADY_BATCHES or (time.monotonic() < end and not _steady(rates)):
            found = _process(query, large, events / f"{len(rates):06}.parquet")
            rates.append(found.numInputRows / (found.durationMs["addBatch"] / 1e3))
            progress(title, 1.0 - 1.0 / len(rates), f"{rates[-1]:,.0f} events/s")
        names = [events / f"small-{index}.parquet" for index in range(SMALL_BATCHES)]
        least = [_process(query, small, name).batchDuration / 1e3 for name in names]
    finally:
        query.stop()
    machine = Calibrated(median(rates[-STEADY_BATCHES:]), median(least))
    progress(title, 1.0, f"{machine.capacity:,.0f} events/s; a batch takes {machine.batch_seconds:.1f} s at least")
    return machine


def _steady(rates: Sequence[float]) -> bool:
    """Whether the last batches were no faster than those before them.

    >>> _steady([10.0, 20.0, 21.0, 19.0, 20.5]), _steady([10.0, 20.0, 21.0, 24.0, 20.5])
    (True, False)
    """
    before, last = rates[:-STEADY_BATCHES], rates[-STEADY_BATCHES:]
    return bool(before) and max(last) <= STEADY * max(before)


def _process(query: Any, made: Path, place: Path) -> Any:
    """Offer the query a file at this place; the progress of the batch that has processed it."""
    os.link(made, place)
    query.processAllAvailable()
    _raise_failure(query)
    return [progress for progress in query.recentProgress if progress.numInputRows][-1]


def run(
    spark: Session,
    folder: Path,
    name: str,
    rate: float,
    *,
    seconds: float,
    target: float,
    state: Path,
    progress: Progress,
) -> DemoRun:
    """Offer `rate` events per second for some seconds to the job of this name; see RUNS."""
    events = folder / "events"
    events.mkdir(parents=True)
    shedder = _shedder(target, state) if name == PROTECTED else None
    table = f"demo_{RUNS.index(name)}"
    stream = _read(spark, events).transform(shedder or _DROPS[name])
    query = _start(spark, stream, folder / "checkpoint", table)
    try:
        warmed = _warm(query, events, progress, name)
        command = [sys.executable, "-m", "floodway.experiments.demo.shop_feed", str(events)]
        arguments = [str(rate), str(seconds), str(SEED), str(os.getpid())]
        with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as feeder:
            try:
                began = _beginning(feeder, events)
                while feeder.poll() is None:
                    _raise_failure(query)
                    progress(name, min(0.99, (time.time() - began) / seconds), _remark(query.lastProgress))
                    time.sleep(0.2)
            finally:
                feeder.kill()
            load = ShopTotals(**json.loads(feeder.stdout.read() if feeder.stdout else ""))
        if name == WITHOUT:  # it would need as long again to get through what waits
            time.sleep(max(0.0, began + seconds + target - time.time()))
        else:
            query.processAllAvailable()
        ended = [batch for p in query.recentProgress if (batch := _batch(p, began)) is not None]
        batches = [batch for batch in ended if batch.ended > 0.0]
        estimated = None if name == WITHOUT else _totals(spark.table(table).collect())
    finally:
        query.stop()
    ledger = {} if shedder is None else _ledger(shedder)
    progress(name, 1.0, _remark(query.lastProgress))
    return DemoRun(name, seconds, target, load, batches, warmed, estimated, ledger)


def _read(spark: Session, events: Path, files_per_batch: int | None = None) -> Any:
    reader = spark.readStream.schema(RECORDS)
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.parquet(str(events))


def _without(events: Any) -> Any:
    return events.selectExpr("*", "1D AS _weight")


def _half(events: Any) -> Any:
    return events.where("pmod(xxhash64(offset), 1000) < 500").selectExpr("*", "2D AS _weight")


def _shedder(target: float, state: Path) -> Shedder:
    return shed(
        SHED,
        target_latency=target,
        mode="enforce",
        utility=f"if(key = 'order', {WORTH['order']}, {WORTH['click']})",
        floor=FLOOR,
        arrival="timestamp",
        state_dir=str(state),
    )


_DROPS: Mapping[str, Callable[[Any], Any]] = {WITHOUT: _without, SAMPLE: _half}


def _start(spark: Session, events: Any, checkpoint: Path, table: str) -> Any:
    """Start the job; its windows are in a table of this name."""
    counted = events.observe(
        "demo",
        expression("count_if(key = 'order') AS orders"),
        expression("count_if(key = 'click') AS clicks"),
        expression("avg(unix_micros(timestamp)) AS arrival_us"),
    )
    writer = windows(spark, counted).writeStream.outputMode("complete").format("memory").queryName(table)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def _warm(query: Any, events: Path, progress: Progress, name: str) -> ShopTotals:
    """Let the query process some events before the load begins, so that its code is compiled; the truth about them."""
    shop = Shop(SEED, partition=1)
    for index in range(WARM_BATCHES):
        progress(name, 0.0, "warming up")
        now = round(time.time() * 1e6)
        write(shop.make(WARM_EVENTS, start_us=now, end_us=now + 1), events, f"warm-{index}")
        query.processAllAvailable()
        _raise_failure(query)
    return shop.totals()


def _raise_failure(query: Any) -> None:
    failure = query.exception()
    if failure is not None:
        raise failure


def _beginning(feeder: subprocess.Popen[str], events: Path) -> float:
    """When the load began: the arrival of the first event, in seconds of the epoch."""
    first = events / "000000.parquet"
    while not first.exists():
        if feeder.poll() is not None:
            raise RuntimeError(f"the demo's feeder ended with code {feeder.returncode} before it wrote an event")
        time.sleep(0.01)
    return float(pq.read_table(first, columns=["timestamp"])["timestamp"][0].as_py().timestamp())


def _batch(progress: Any, began: float) -> DemoBatch | None:
    counted = progress.observedMetrics.get("demo")
    if counted is None or not counted["orders"] + counted["clicks"]:
        return None
    ended = datetime.fromisoformat(progress.timestamp).timestamp() + progress.batchDuration / 1e3
    return DemoBatch(ended - began, ended - counted["arrival_us"] / 1e6, counted["orders"], counted["clicks"])


def _remark(progress: Any) -> str:
    batch = None if progress is None else _batch(progress, 0.0)
    return "" if batch is None else f"latency {batch.latency:4.1f} s"


def _totals(rows: Any) -> ShopTotals:
    found: dict[str, dict[str, float]] = {part: {} for part in PARTS}
    for row in rows:
        for part, column in found.items():
            column[row.category] = column.get(row.category, 0.0) + row[part]
    return ShopTotals(**found)


def _ledger(shedder: Shedder) -> dict[str, int]:
    """What the ledger holds, once Spark has reported the last batch and the end of the query."""
    end = time.monotonic() + LEDGER_SECONDS
    while not shedder.loop.finished and time.monotonic() < end:
        time.sleep(0.05)
    status = shedder.files.read_status()
    totals = Totals() if status is None else status.totals
    return {"offered": totals.offered, "kept": totals.kept, "dropped": sum(totals.dropped.values())}
