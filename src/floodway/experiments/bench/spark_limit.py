"""An overloaded job, protected by one line, against the same job with a batch limit tuned by hand.

A Python operator that busy-waits is offered twice what one core processes. Ours: `floodway.shed` with a target. Peer:
no shed, `maxTuplesPerBatch` at the value that makes a batch as long as the target asks for, found by calibration; and
the same at twice that. A limit bounds the batch but not the backlog: tuples wait ever longer, and none is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from floodway.agent.loop.feeds import Feed, Feeder
from floodway.control.base import BATCH_SHARE
from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import NARROW, BenchError, Frame, Workbench, workbench
from floodway.experiments.result import Progress
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.operators import apply_operator
from floodway.spark.query.stream_run import shortened
from floodway.spark.shed.shed import shed

TARGET_SECONDS = 2.0
COST_SECONDS = 0.001
OVERLOAD = 2.0
SIZES = (200, 800)
QUIET, QUIET_SECONDS = 0.2, 10.0
"""The load before the overload, as a part of it, and how long it lasts."""


@dataclass
class BatchLatencies:
    """Filled by the query: (end, tuples, mean latency) of every batch."""

    batches: list[tuple[float, int, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, batch: Frame, number: int) -> None:
        """For foreachBatch: process the batch, then look at the clock."""
        try:
            row = batch.selectExpr("count(1) AS n", "avg(unix_micros(_arrival)) / 1e6 AS arrival").collect()[0]
        except Exception as error:
            # The query may be stopped in the middle of a batch, and Spark chokes on its own long message.
            raise BenchError(f"batch {number}: {shortened(error)}") from None
        now = time.time()
        if row["n"]:
            with self.lock:
                self.batches.append((now, int(row["n"]), now - float(row["arrival"])))

    def after(self, since: float, until: float) -> dict[str, float]:
        """Mean and largest latency, and tuples processed, of the batches that ended in a span of time."""
        with self.lock:
            chosen = [item for item in self.batches if since <= item[0] < until]
        if not chosen:
            raise BenchError("no batch ended while it was measured", hint="Run on a quieter machine, or with --long")
        latencies, tuples = [item[2] for item in chosen], [item[1] for item in chosen]
        return {
            "mean latency": rounded(float(np.average(latencies, weights=tuples))),
            "last latency": rounded(latencies[-1]),
            "tuples": sum(tuples),
            "tuples/s": rounded(sum(tuples) / (until - since)),
            "batches": len(chosen),
        }


def fixed_limit(*, long: bool, progress: Progress) -> BenchResult:
    """Latency and tuples processed after settling, under the same load for the same time."""
    seconds = 60.0 if long else 24.0
    with workbench("bench-limit") as bench:
        batch_seconds = _calibrate(bench)
        progress(0.2)
        period = TARGET_SECONDS / BATCH_SHARE
        fixed, per_tuple = line(batch_seconds)
        if fixed > 0.75 * period:
            raise BenchError(
                f"an empty batch takes {fixed:.2f} s here, most of the {period:.2f} s that the target allows",
                hint="Run on a quieter machine",
            )
        best = round((period - fixed) / per_tuple)
        rate = OVERLOAD * best / period
        runs = {
            "shed": measured(bench, rate, seconds, None),
            "tuned": measured(bench, rate, seconds, best),
            "tuned to twice as much": measured(bench, rate, seconds, 2 * best),
        }
        progress(1.0)
    ours, peer = runs["shed"], runs["tuned"]
    share = ours["tuples"] / peer["tuples"]
    return BenchResult(
        id="spark-fixed-limit",
        ours=ours["mean latency"],
        peer=peer["mean latency"],
        ratio=rounded(peer["mean latency"] / ours["mean latency"]),
        goal=f"ours <= 1.1 × the target of {TARGET_SECONDS:g} s, tuples processed >= 0.95 of the peer's",
        holds=ours["mean latency"] <= 1.1 * TARGET_SECONDS and share >= 0.95,
        unit="s, mean latency",
        detail={
            "peer": f"maxTuplesPerBatch={best}, from calibration",
            "tuples processed, ours / peer": rounded(share),
            **runs,
            "offered (tuples/s)": rounded(rate),
            "calibration": {"seconds a batch": rounded(fixed), "ms a tuple": rounded(per_tuple * 1e3)},
            "measured (s)": rounded(seconds / 2),
        },
    )


def _operator() -> Operator:
    return Operator("work", "A", ("s",), OperatorKind.DELAY, cost=COST_SECONDS)


def _calibrate(bench: Workbench) -> dict[int, float]:
    """Seconds of a batch at two sizes, over logs that lie ready."""
    found: dict[int, float] = {}
    # The smaller size once more at the start: the first query of a session is slow for reasons of its own.
    for size in (SIZES[0], *SIZES):
        log = bench.log(size * 6, NARROW)
        batches = bench.drain(_job(bench, log, size), BatchLatencies().note)
        found[size] = median(batch.seconds for batch in batches[1:])
    return found


def line(batch_seconds: Mapping[int, float]) -> tuple[float, float]:
    """Seconds of an empty batch and of a tuple, from batches of two sizes; a tuple costs its busy-wait at least.

    >>> line({200: 0.5, 800: 1.1})
    (0.3, 0.001)
    """
    (small, first), (large, second) = batch_seconds.items()
    per_tuple = max((second - first) / (large - small), COST_SECONDS)
    return round(max(first - small * per_tuple, 0.0), 6), round(per_tuple, 9)


def _job(bench: Workbench, log: Path, limit: int | None, protect: Callable[[Frame], Frame] | None = None) -> Frame:
    options = {} if limit is None else {"maxTuplesPerBatch": str(limit)}
    frame = bench.stream(log, splits="1", **options)
    return apply_operator(_operator(), [frame if protect is None else frame.transform(protect)])


def measured(bench: Workbench, rate: float, seconds: float, limit: int | None) -> dict[str, Any]:
    """Run under load; the first half of the overload, in which `shed` settles, is left out of the figures."""
    seen, started = _overloaded(bench, rate, seconds, limit)
    series = [(rounded(end - started), tuples, rounded(latency)) for end, tuples, latency in seen.batches]
    return {**seen.after(started + seconds / 2, started + seconds), "all batches (end, tuples, latency)": series}


def _overloaded(bench: Workbench, rate: float, seconds: float, limit: int | None) -> tuple[BatchLatencies, float]:
    """Run the job at little load, then for some seconds overloaded; what was seen, and when the overload began.

    It starts quietly because the first batches of any query are slow and pile up what they cannot help.
    """
    root = bench.fresh("run")
    network = Network(
        "bench-limit",
        {"s": Stream("s", rate, schema=NARROW)},
        {"A": Node("A")},
        {"work": _operator()},
        {"q": Output("q", "work")},
    )
    layout, seen = RunLayout(root), BatchLatencies()
    protect = None
    if limit is None:
        state = str(bench.folder / "state")
        protect = shed(root.name, target_latency=TARGET_SECONDS, mode="enforce", state_dir=state)
    steps = f"{QUIET_SECONDS}:{rate * QUIET:g},{10 * seconds + 600}:{rate:g}"
    with Feeder(network, layout, {"s": Feed(options=("--profile", "steps", "--steps", steps))}) as feeder:
        frame = _job(bench, Path(layout.stream(network, "s")), limit, protect)
        writer = frame.writeStream.option("checkpointLocation", str(root / "checkpoint")).foreachBatch(seen.note)
        query = writer.start()
        try:
            feeder.start()
            burst = time.time() + QUIET_SECONDS
            _watched(query, burst + seconds)
            return seen, burst
        finally:
            query.stop()


def _watched(query: Any, until: float) -> None:
    """Wait, as long as the query runs."""
    while (now := time.time()) < until:
        if not query.isActive:
            raise BenchError(f"the query ended: {query.exception()}", hint="See the log above")
        time.sleep(min(0.2, until - now))
