"""The latency paper's workload on Spark: ten sources and many `avg` queries in one streaming job.

Every query computes the average CPU of ten hosts over windows of a second. All queries are one job: a tuple is handed
to each of them (`explode`), and (window, query) is what the job groups by, so that the work is tuples × queries, as in
the paper. `floodway.shed` stands before that, where the paper's incoming buffer is; a tick is a micro-batch.

What the engine can take is measured first. Spark takes far more than the paper's rates, so the sources send `scale`
times these: with that the engine's limit is at 90 queries, as the paper's was between 80 and 100.

Latency is the end of a batch less the arrival of what it processed; its spread is over tuples.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from math import ceil
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

import numpy as np

from floodway.control.base import BATCH_SHARE, Controller
from floodway.control.batch import DELAY_BATCHES
from floodway.control.latency import LatencyConfig, LatencyController
from floodway.errors import FloodwayError
from floodway.experiments.dissp.common import PATTERN_SECONDS, RATES, SUSTAINED_QUERIES
from floodway.experiments.dissp.host_feed import HOSTS, SCHEMA, Hosts, generated
from floodway.spark.log import LogWriter, create_log
from floodway.spark.measure.cpu import CpuMeter
from floodway.spark.query.drops import expression
from floodway.spark.session.session import spark_session
from floodway.spark.shed.shed import shed
from floodway.spark.source import register

CORES = 2
MEAN_RATE = HOSTS * float(np.mean(RATES))
"""Tuples/s of all sources at the paper's rates."""
CALIBRATION_QUERIES = 200
CALIBRATION_TUPLES, LARGE_BATCH, SMALL_BATCH = 240_000, 40_000, 100
SMALL_BATCHES = 6
WARM_BATCHES, WARM_BATCH = 3, 2000
LEAST_TARGET = 2.0
TARGETS = (1, 2, 3)
"""Targets are these multiples of the least one that leaves most of a batch to tuples."""
OVERHEADS_PER_TARGET = 4.0
SETTLE_SECONDS = 40.0
METRIC = "dissp"
WATERMARK = "10 seconds"


class DisspEngineError(FloodwayError):
    """The job or its feeder ended by itself."""


@dataclass(frozen=True, slots=True)
class EngineLimit:
    """What was measured of the engine: tuples × queries a second, and what a batch takes whatever it holds."""

    pairs_per_second: float
    batch_seconds: float

    @property
    def queries(self) -> float:
        """How many queries it can sustain at the paper's rates."""
        return self.pairs_per_second / MEAN_RATE

    @property
    def scale(self) -> float:
        """By what the paper's rates are multiplied, so that the limit is at 90 queries."""
        return self.queries / SUSTAINED_QUERIES

    @property
    def targets(self) -> tuple[float, ...]:
        """Latencies that the engine can reach, in whole seconds."""
        least = max(LEAST_TARGET, float(ceil(OVERHEADS_PER_TARGET * self.batch_seconds)))
        return tuple(least * factor for factor in TARGETS)


@dataclass(frozen=True, slots=True)
class EngineBatch:
    """A finished micro-batch: its end in seconds since the load began, tuples kept, latencies in seconds."""

    ended: float
    seconds: float
    kept: int
    latency: float
    deviation: float
    shortest: float
    longest: float


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One run under load. `cpu` is the share of the cores' time that tasks used after settling."""

    queries: int
    target: float | None
    law: str
    batches: tuple[EngineBatch, ...]
    cpu: float
    seconds: float

    @property
    def settled(self) -> list[EngineBatch]:
        """The batches after the first pattern of rates; the last one if there is none."""
        if not self.batches:
            raise DisspEngineError("no batch ended while there was load", hint="Run on a quieter machine")
        return [one for one in self.batches if one.ended >= SETTLE_SECONDS] or [self.batches[-1]]

    @property
    def latency(self) -> float:
        """Mean latency of the tuples, seconds."""
        found = self.settled
        return float(np.average([one.latency for one in found], weights=[one.kept for one in found]))

    @property
    def spread(self) -> float:
        """Standard deviation of the tuples' latencies, seconds: within batches and between them."""
        found = self.settled
        means = np.array([one.latency for one in found])
        squares = means**2 + np.array([one.deviation for one in found]) ** 2
        return float(np.sqrt(np.average(squares, weights=[one.kept for one in found]) - self.latency**2))

    @property
    def kept(self) -> float:
        """Tuples kept in a batch, on the mean."""
        return float(np.mean([one.kept for one in self.settled]))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "latency": round(self.latency, 3),
            "spread": round(self.spread, 3),
            "cpu": round(self.cpu, 3),
            "kept a batch": round(self.kept),
            "kept a second": round(sum(one.kept for one in self.settled) / max(self.seconds - SETTLE_SECONDS, 1.0)),
            "batches": len(self.settled),
            "last latency": round(self.batches[-1].latency, 3),
        }


def papers_law(target: float, queries: int, limit: EngineLimit) -> LatencyController:
    """The paper's control law; a tick is a micro-batch.

    Its gain is chosen by Proposition 1 for a delay of two batches, and n starts at what fits by the engine's limit. The
    paper's gain of 0.1 is for ticks of 250 ms: a batch takes seconds, and from n = N it would take minutes to settle.
    """
    nominal = limit.pairs_per_second / queries * target / BATCH_SHARE
    return LatencyController(LatencyConfig(target_seconds=target, delay_ticks=DELAY_BATCHES, nominal=nominal))


class SparkEngine:
    """A Spark session with a folder for logs, checkpoints and states; both go with it."""

    def __init__(self, trace: Path | None, seed: int) -> None:
        self._trace, self._seed = trace, seed
        self._numbers = count()

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="floodway-dissp-"))
        settings = {
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
            "spark.sql.adaptive.enabled": "false",
        }
        self._spark = spark_session("floodway-dissp", master=f"local[{CORES}]", conf=settings)
        register(self._spark)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spark.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def limit(self) -> EngineLimit:
        """Drain a log that lies ready in large batches, then in small ones.

        The fastest of the large ones counts: what else the machine does makes a batch slower, and never faster.
        """
        large = self._drained(CALIBRATION_TUPLES, LARGE_BATCH)
        small = self._drained(SMALL_BATCHES * SMALL_BATCH, SMALL_BATCH)
        rate = max(one.kept * CALIBRATION_QUERIES / one.seconds for one in large)
        return EngineLimit(rate, median(one.seconds for one in small[len(small) // 2 :]))

    def run(
        self,
        queries: int,
        scale: float,
        seconds: float,
        *,
        target: float | None = None,
        controller: Controller[Any] | None = None,
        law: str = "none",
    ) -> EngineRun:
        """Offer the pattern of rates for some seconds; without a target nothing is shed."""
        root = self._fresh("run")
        create_log(root / "log", SCHEMA, partitions=2)
        protect = None
        if target is not None:
            state = str(self._folder / "state")
            protect = shed(root.name, target_latency=target, mode="enforce", controller=controller, state_dir=state)
        query = self._start(root, queries, protect, {})
        meter = CpuMeter(self._spark)
        try:
            self._warm(query, root / "log")
            with self._feeder(root / "log", scale, seconds) as feeder:
                try:
                    began, marks = time.time(), []
                    while (now := time.time() - began) < seconds:
                        _check(query, feeder)
                        marks.append((now, meter.cpu_seconds()))
                        time.sleep(min(0.5, max(0.0, seconds - now)))
                finally:
                    feeder.kill()
            batches = tuple(one for found in query.recentProgress if (one := _batch(found, began)) is not None)
        finally:
            query.stop()
        batches = tuple(one for one in batches if 0.0 < one.ended <= seconds)
        return EngineRun(queries, target, law, batches, _cpu(marks, batches), seconds)

    def _warm(self, query: Any, log: Path) -> None:
        """Let the query process some tuples before the load begins: its plans are compiled, its workers started."""
        hosts = Hosts(generated(self._seed))
        for _ in range(WARM_BATCHES):
            now = round(time.time() * 1e6)
            self._append(log, hosts, WARM_BATCH, now)
            query.processAllAvailable()

    def _append(self, log: Path, hosts: Hosts, count: int, at_us: int) -> None:
        made = hosts.make(count, start_us=at_us, end_us=at_us + count)
        with LogWriter(log, sync=False) as writer:
            for partition in range(2):
                writer.append(made.slice(partition * count // 2, count // 2), partition)

    def _drained(self, tuples: int, batch: int) -> list[EngineBatch]:
        root = self._fresh("drain")
        create_log(root / "log", SCHEMA, partitions=2)
        hosts = Hosts(generated(self._seed))
        for start in range(0, tuples, batch):
            self._append(root / "log", hosts, batch, start)
        query = self._start(root, CALIBRATION_QUERIES, None, {"maxTuplesPerBatch": str(batch)})
        try:
            query.processAllAvailable()
            return [one for found in query.recentProgress if (one := _batch(found, 0.0)) is not None]
        finally:
            query.stop()

    def _start(self, root: Path, queries: int, protect: Any, options: dict[str, str]) -> Any:
        tuples = self._spark.readStream.format("floodway").options(path=str(root / "log"), **options).load()
        if protect is not None:
            tuples = tuples.transform(protect)
        arrival = "unix_micros(_arrival)"
        counted = tuples.observe(
            METRIC,
            *(
                expression(f"{function}({arrival}) AS {name}")
                for name, function in (
                    ("tuples", "count"),
                    ("mean", "avg"),
                    ("deviation", "stddev_pop"),
                    ("first", "min"),
                    ("last", "max"),
                )
            ),
        )
        handed = counted.withWatermark("at", WATERMARK).selectExpr(
            "at", "cpu", f"explode(sequence(1, {queries})) AS query"
        )
        averages = handed.groupBy(expression("window(at, '1 second')"), "query").agg({"cpu": "avg"})
        writer = averages.writeStream.outputMode("update").format("noop")
        return writer.option("checkpointLocation", str(root / "checkpoint")).start()

    def _feeder(self, log: Path, scale: float, seconds: float) -> subprocess.Popen[bytes]:
        patterns = ceil(seconds / (PATTERN_SECONDS * len(RATES)))
        steps = ",".join(f"{PATTERN_SECONDS:g}:{HOSTS * rate * scale:.3f}" for rate in RATES * patterns)
        arguments = [str(log), steps, str(self._seed), str(os.getpid())]
        arguments += [] if self._trace is None else [str(self._trace)]
        return subprocess.Popen([sys.executable, "-m", "floodway.experiments.dissp.host_feed", *arguments])

    def _fresh(self, what: str) -> Path:
        return self._folder / f"{what}-{next(self._numbers)}"


def _check(query: Any, feeder: subprocess.Popen[bytes]) -> None:
    if not query.isActive:
        raise DisspEngineError(f"the job ended: {query.exception()}", hint="See what Spark printed above")
    if feeder.poll():
        raise DisspEngineError(f"the feeder ended with code {feeder.returncode}", hint="See what it printed above")


def _batch(progress: Any, began: float) -> EngineBatch | None:
    found = progress.observedMetrics.get(METRIC)
    if found is None or not found["tuples"]:
        return None
    seconds = progress.batchDuration / 1e3
    ended = datetime.fromisoformat(progress.timestamp).timestamp() + seconds
    latency, first, last = (ended - found[name] / 1e6 for name in ("mean", "first", "last"))
    return EngineBatch(ended - began, seconds, found["tuples"], latency, found["deviation"] / 1e6, last, first)


def _cpu(marks: Sequence[tuple[float, float]], batches: Sequence[EngineBatch]) -> float:
    """Share of the cores' time that tasks used, from `marks` (seconds, CPU-seconds) at ends of batches.

    Tasks are counted when they end: a batch that runs at the end of the run would seem to use none.
    """
    ends = [one.ended for one in batches if one.ended >= SETTLE_SECONDS] or [one.ended for one in batches]
    if len(ends) < 2:
        return float("nan")
    first, last = (min(marks, key=lambda mark: abs(mark[0] - end - 0.25)) for end in (ends[0], ends[-1]))
    return (last[1] - first[1]) / (CORES * max(last[0] - first[0], 1e-9))
