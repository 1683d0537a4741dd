"""What the demo does: find out what this machine can process, offer twice that, and run the job three times.

- *without* Floodway every event is processed, however late;
- with a *fixed sample*, what a user would write by hand: half of the events, whatever they are worth;
- with *Floodway*, one line: orders before clicks, as many clicks as there is time for.

Latency is measured the same way in all three, from Spark's own progress: the end of a batch less the mean arrival of
what it processed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodway.experiments.demo.job import windows
from floodway.experiments.demo.shop import SCHEMA, Shop, Totals
from floodway.spark.log import LogReader, create_log
from floodway.spark.log.writer import LogWriter
from floodway.spark.query.drops import expression
from floodway.spark.shed.shed import shed
from floodway.spark.source import register

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

SEED = 7
OVERLOAD = 2.0
WEIGHTS = {"order": 10.0, "click": 1.0}
"""What an event of each kind is worth."""
CALIBRATION_BATCH = 40_000
CALIBRATION_BATCHES = 9
RUNS = ("without Floodway", "fixed sample of 50%", "with Floodway")

Told = Callable[[str, float, str], None]
"""Title, share done in [0, 1], and a remark: for a progress bar."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One finished batch: when it ended (seconds since the load began), mean latency, events processed by kind."""

    ended: float
    latency: float
    orders: int
    clicks: int


@dataclass
class Run:
    """One run of the job. `offered` are events by kind, `estimated` what the job says happened, `truth` what did."""

    name: str
    seconds: float
    batches: list[Batch] = field(default_factory=list)
    offered: dict[str, int] = field(default_factory=dict)
    estimated: Totals | None = None
    truth: Totals | None = None

    @property
    def settled(self) -> list[Batch]:
        """Batches that ended in the last two thirds of the load."""
        return [batch for batch in self.batches if self.seconds / 3 < batch.ended <= self.seconds]

    @property
    def latency(self) -> float | None:
        """Mean latency in seconds of what was processed while the load lasted, its first third left out."""
        tuples = sum(batch.orders + batch.clicks for batch in self.settled)
        found = sum(batch.latency * (batch.orders + batch.clicks) for batch in self.settled)
        return found / tuples if tuples else None

    def kept(self, kind: str) -> float:
        """Share of the events of a kind that were processed while the load lasted."""
        done = sum(getattr(batch, f"{kind}s") for batch in self.batches if batch.ended <= self.seconds)
        return min(1.0, done / self.offered[kind]) if self.offered.get(kind) else 0.0

    @property
    def score(self) -> tuple[float, float]:
        """Weighted events per second while the load lasted, and the best that as many events could have earned."""
        orders = sum(batch.orders for batch in self.batches if batch.ended <= self.seconds)
        clicks = sum(batch.clicks for batch in self.batches if batch.ended <= self.seconds)
        best = min(orders + clicks, self.offered.get("order", 0))
        earned = WEIGHTS["order"] * orders + WEIGHTS["click"] * clicks
        optimum = WEIGHTS["order"] * best + WEIGHTS["click"] * (orders + clicks - best)
        return earned / self.seconds, optimum / self.seconds

    @property
    def error(self) -> float | None:
        """Mean relative error of clicks, orders and revenue by category; None where the job never got that far."""
        if self.estimated is None or self.truth is None:
            return None
        errors: list[float] = [
            abs(getattr(self.estimated, part).get(name, 0.0) - true) / true
            for part in ("clicks", "orders", "revenue")
            for name, true in getattr(self.truth, part).items()
            if true > 0
        ]
        return sum(errors) / len(errors)

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        earned, optimum = self.score
        return {
            "latency": self.latency,
            "kept": {kind: self.kept(kind) for kind in WEIGHTS},
            "score": earned,
            "optimum": optimum,
            "error": self.error,
            "offered": dict(self.offered),
            "batches": len(self.batches),
        }


def calibrate(spark: Session, folder: Path, told: Told) -> float:
    """Events per second that the job can process on this machine: the second best of a few batches of a made-up log.

    The first ones are slow, because everything is compiled in them; the best one may be luck.
    """
    register(spark)
    log = folder / "calibration"
    create_log(log, SCHEMA)
    shop = Shop(SEED)
    with LogWriter(log, sync=False) as writer:
        for _ in range(CALIBRATION_BATCHES):
            writer.append(shop.make(CALIBRATION_BATCH, start_us=0, end_us=0), 0)
    reader = spark.readStream.format("floodway").option("path", str(log)).option("startingOffsets", "earliest")
    events = _all(reader.option("maxTuplesPerBatch", CALIBRATION_BATCH).load(), 0.0, folder)
    query = _start(spark, events, folder / "calibration-state", {}, available_now=True)
    done = 0
    while query.isActive:
        done = len(query.recentProgress)
        told("finding out what this machine can process", done / (CALIBRATION_BATCHES + 1), "")
        time.sleep(0.2)
    if query.exception() is not None:
        raise query.exception()
    rates = [p.numInputRows / (p.batchDuration / 1e3) for p in query.recentProgress if p.numInputRows]
    told("finding out what this machine can process", 1.0, "")
    return float(sorted(rates)[-2])


def run(
    spark: Session, folder: Path, name: str, rate: float, *, seconds: float, target: float, state: Path, told: Told
) -> Run:
    """Offer `rate` events per second for some seconds to the job of this name; see RUNS."""
    log = folder / "log"
    create_log(log, SCHEMA)
    events = spark.readStream.format("floodway").option("path", str(log)).load()
    drop = _DROPS[name]
    protected = drop(events, target, state)
    seen: dict[Any, Any] = {}
    query = _start(spark, protected, folder / "state", seen)
    _wait_until_idle(query)
    command = [sys.executable, "-m", "floodway.experiments.demo.feed"]
    arguments = [str(log), str(rate), str(seconds), str(SEED + 1), str(os.getpid())]
    began = time.time()
    with subprocess.Popen([*command, *arguments]) as feeder:
        try:
            while feeder.poll() is None:
                latest = query.lastProgress
                told(name, min(1.0, (time.time() - began) / seconds), _remark(latest))
                if query.exception() is not None:
                    raise query.exception()
                time.sleep(0.2)
        finally:
            feeder.kill()
    result = Run(name, seconds)
    reader = LogReader(log)
    end = reader.end_positions().get(0, 0)
    if drop is not _all:  # a run without a drop would need as long again to catch up
        query.processAllAvailable()
        result.estimated = _totals(seen)
        result.truth = Shop(SEED + 1).truth(reader.read(0, 0, end))
    query.stop()
    result.batches = [batch for p in query.recentProgress if (batch := _batch(p, began)) is not None]
    offered = Shop(SEED + 1).truth(reader.read(0, 0, end))
    result.offered = {"order": round(sum(offered.orders.values())), "click": round(sum(offered.clicks.values()))}
    return result


def _all(events: Any, target: float, state: Path) -> Any:
    return events.selectExpr("*", "1D AS weight")


def _half(events: Any, target: float, state: Path) -> Any:
    return events.where("pmod(xxhash64(_id), 1000) < 500").selectExpr("*", "2D AS weight")


def _shed(events: Any, target: float, state: Path) -> Any:
    one_line = shed(
        "shop", target_latency=target, mode="enforce", utility="if(kind = 'order', 1, 0)", state_dir=str(state)
    )
    return events.transform(one_line).selectExpr("*", "_weight AS weight")


_DROPS: Mapping[str, Callable[[Any, float, Path], Any]] = dict(zip(RUNS, (_all, _half, _shed), strict=True))


def _start(spark: Session, events: Any, state: Path, seen: dict[Any, Any], *, available_now: bool = False) -> Any:
    """Start the job; `seen` gets its windows as they are, by window and category."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    counted = events.observe(
        "demo",
        expression("count_if(kind = 'order') AS orders"),
        expression("count_if(kind = 'click') AS clicks"),
        expression("avg(unix_micros(_arrival)) AS arrival_us"),
    )

    def collect(batch: Any, _: int) -> None:
        for row in batch.collect():
            seen[row.window.start, row.category] = row

    writer = windows(spark, counted).writeStream.outputMode("update").foreachBatch(collect)
    writer = writer.option("checkpointLocation", str(state))
    return writer.trigger(availableNow=True).start() if available_now else writer.start()


def _wait_until_idle(query: Any) -> None:
    """Until the query has looked at its empty log once: what it takes to start is not part of the load."""
    while query.isActive and query.status["message"] != "Waiting for data to arrive":
        time.sleep(0.05)


def _batch(progress: Any, began: float) -> Batch | None:
    counted = progress.observedMetrics.get("demo")
    if counted is None or not counted["orders"] + counted["clicks"]:
        return None
    started = datetime.fromisoformat(progress.timestamp).timestamp()
    ended = started + progress.batchDuration / 1e3
    return Batch(ended - began, ended - counted["arrival_us"] / 1e6, counted["orders"], counted["clicks"])


def _remark(progress: Any) -> str:
    batch = None if progress is None else _batch(progress, 0.0)
    return "" if batch is None else f"latency {batch.latency:4.1f} s"


def _totals(seen: Mapping[Any, Any]) -> Totals:
    found = Totals({}, {}, {})
    for (_, name), row in seen.items():
        for part in ("clicks", "orders", "revenue"):
            column = getattr(found, part)
            column[name] = column.get(name, 0.0) + row[part]
    return found
