"""What the demo does: find out what this machine can process, offer twice that, and run the job three times.

- *without* Floodway: every event is processed, however late;
- with a *fixed sample*, as a user would write by hand: half of the events, whatever they are worth;
- with *Floodway*, one line: orders before clicks, as many clicks as there is time for.

Latency is measured the same way in all three, from Spark's own progress: the end of a batch less the mean arrival of
what it processed. The load begins when the query has processed a few events: its start is no part of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from floodway.experiments.demo.job import windows
from floodway.experiments.demo.result import PARTS, Batch, Run
from floodway.experiments.demo.shop import RECORDS, WORTH, Shop, Totals, write
from floodway.job.status.status import Totals as Counts
from floodway.spark.query.drops import expression
from floodway.spark.shed.shed import Shedder, shed

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

SEED = 7
OVERLOAD = 2.0
SHED = "shop"
FLOOR = 0.05
CALIBRATION_EVENTS = 60_000
CALIBRATION_SECONDS = 25.0
CALIBRATION_BATCHES = 5
"""At least that many: the code of a fresh process is compiled in the first ones."""
CALIBRATION_FILES = 200
LEDGER_SECONDS = 60.0
WARM_EVENTS = 1000
RUNS = WITHOUT, SAMPLE, PROTECTED = "without Floodway", "fixed sample of 50%", "with Floodway"
SETTINGS = {
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}

Progress = Callable[[str, float, str], None]
"""Title, share done in [0, 1], and a remark: for a progress bar."""


def calibrate(spark: Session, folder: Path, progress: Progress, *, seconds: float = CALIBRATION_SECONDS) -> float:
    """Events per second that the job can process on this machine, once its code is compiled.

    The job runs for some seconds on files that are all there. The rate is that of its fastest two batches in a row, of
    the time that Spark spends on the events themselves: what a batch costs anyway counts little where batches are long.
    """
    title = "measuring what this machine can process"
    events = folder / "events"
    events.mkdir(parents=True)
    first = write(Shop(SEED).make(CALIBRATION_EVENTS, start_us=0, end_us=1_000_000), folder, "first")
    for index in range(CALIBRATION_FILES):
        os.link(first, events / f"{index:06}.parquet")
    stream = _without(_read(spark, events, files_per_batch=1))
    query = _start(spark, stream, folder / "checkpoint", "demo_calibration")
    began, done, rate = time.monotonic(), 0.0, 0.0
    while done < 1.0:
        time.sleep(0.2)
        _raise_failure(query)
        rates = [p.numInputRows / (p.durationMs["addBatch"] / 1e3) for p in query.recentProgress if p.numInputRows]
        rate = max(map(min, pairwise(rates)), default=0.0)
        shares = (time.monotonic() - began) / seconds, len(rates) / CALIBRATION_BATCHES
        done = 1.0 if len(rates) == CALIBRATION_FILES else min(1.0, *shares)
        progress(title, done, f"{rate:,.0f} events/s" if rate else "")
    query.stop()
    return rate


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
) -> Run:
    """Offer `rate` events per second for some seconds to the job of this name; see RUNS."""
    events = folder / "events"
    events.mkdir(parents=True)
    shedder = _shedder(target, state) if name == PROTECTED else None
    table = f"demo_{RUNS.index(name)}"
    stream = _read(spark, events).transform(shedder or _DROPS[name])
    query = _start(spark, stream, folder / "checkpoint", table)
    try:
        warmed = _warm(query, events)
        command = [sys.executable, "-m", "floodway.experiments.demo.feed", str(events)]
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
            truth = warmed + Totals(**json.loads(feeder.stdout.read() if feeder.stdout else ""))
        if name == WITHOUT:  # it would need as long again to get through what waits
            time.sleep(max(0.0, began + seconds + target - time.time()))
        else:
            query.processAllAvailable()
        batches = [batch for p in query.recentProgress if (batch := _batch(p, began)) is not None]
        estimated = None if name == WITHOUT else _totals(spark.table(table).collect())
    finally:
        query.stop()
    ledger = {} if shedder is None else _ledger(shedder)
    progress(name, 1.0, _remark(query.lastProgress))
    return Run(name, seconds, target, truth, batches, estimated, ledger)


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


def _warm(query: Any, events: Path) -> Totals:
    """Let the query process a few events before the load begins, so that its code is compiled; the truth about them."""
    shop = Shop(SEED, partition=1)
    now = round(time.time() * 1e6)
    write(shop.make(WARM_EVENTS, start_us=now, end_us=now + 1), events, "first")
    query.processAllAvailable()
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


def _batch(progress: Any, began: float) -> Batch | None:
    counted = progress.observedMetrics.get("demo")
    if counted is None or not counted["orders"] + counted["clicks"]:
        return None
    ended = datetime.fromisoformat(progress.timestamp).timestamp() + progress.batchDuration / 1e3
    return Batch(ended - began, ended - counted["arrival_us"] / 1e6, counted["orders"], counted["clicks"])


def _remark(progress: Any) -> str:
    batch = None if progress is None else _batch(progress, 0.0)
    return "" if batch is None else f"latency {batch.latency:4.1f} s"


def _totals(rows: Any) -> Totals:
    found: dict[str, dict[str, float]] = {part: {} for part in PARTS}
    for row in rows:
        for part, column in found.items():
            column[row.category] = column.get(row.category, 0.0) + row[part]
    return Totals(**found)


def _ledger(shedder: Shedder) -> dict[str, int]:
    """What the ledger holds, once Spark has reported the last batch and the end of the query."""
    end = time.monotonic() + LEDGER_SECONDS
    while not shedder.loop.finished and time.monotonic() < end:
        time.sleep(0.05)
    status = shedder.files.read_status()
    totals = Counts() if status is None else status.totals
    return {"offered": totals.offered, "kept": totals.kept, "dropped": sum(totals.dropped.values())}
