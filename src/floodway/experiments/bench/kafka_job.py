"""The job that the benchmarks of `shed` protect: Kafka, JSON, explode, windows, and what its batches took.

It is a job as users have it: Spark's connector, `from_json`, an array taken apart, a sum by page over windows with a
watermark. In one place stands nothing, `floodway.shed`, or the filter that one would write by hand. What passed that
place, and when it came, is counted in the same way for all three.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, median, pstdev
from typing import Any

from floodway.experiments.bench.kafka_load import SCHEMA, Sender
from floodway.experiments.bench.spark_common import BenchError, Frame, Workbench, as_dict
from floodway.spark.measure.observed import observed

METRIC = "bench"
WINDOW = "10 seconds"
PARTS = 1000
"""A filter by hand keeps k of a thousand."""


@dataclass(frozen=True, slots=True)
class KafkaBatch:
    """One micro-batch: when it began (epoch), its seconds, records read and kept, and the kept ones' mean arrival."""

    started: float
    seconds: float
    offered: int
    kept: int
    arrival: float | None

    @property
    def ended(self) -> float:
        """When its results were there."""
        return self.started + self.seconds

    @property
    def latency(self) -> float:
        """Mean latency of what it kept; 0 if that is nothing."""
        return 0.0 if self.arrival is None else self.ended - self.arrival

    @property
    def keep(self) -> float:
        """The share that it kept."""
        return self.kept / self.offered if self.offered else 1.0


def plain(frame: Frame) -> Frame:
    """No protection."""
    return frame


def by_hand(keep: float) -> Callable[[Frame], Frame]:
    """The filter that one writes without Floodway."""
    kept = round(keep * PARTS)
    return lambda frame: frame.filter(f"pmod(xxhash64(topic, partition, offset), {PARTS}) < {kept}")


def job(
    bench: Workbench, servers: str, topic: str, protect: Callable[[Frame], Frame], options: Mapping[str, str]
) -> Frame:
    """The query's results, with `protect` right after the source."""
    return bench.spark.sql(
        f"SELECT window(timestamp, '{WINDOW}') AS w, page, count(1) AS items, sum(item.price * item.n) AS value "
        f"FROM {_items(bench, servers, topic, protect, options)} GROUP BY window(timestamp, '{WINDOW}'), page"
    )


def sliding(
    bench: Workbench,
    servers: str,
    topic: str,
    protect: Callable[[Frame], Frame],
    options: Mapping[str, str],
    slide_ms: int,
) -> Frame:
    """A larger job, on windows that overlap, with a count of distinct users.

    To be overloaded and still in time, a job must spend more on what it keeps than Kafka's reader spends on everything:
    at r times its capacity the reading alone must fit, r s < s + c.
    """
    window = f"window(timestamp, '{WINDOW}', '{slide_ms} milliseconds')"
    return bench.spark.sql(
        f"SELECT {window} AS w, page, count(1) AS items, sum(item.price * item.n) AS value, "
        f"approx_count_distinct(user) AS users, max(item.price) AS dearest "
        f"FROM {_items(bench, servers, topic, protect, options)} GROUP BY {window}, page"
    )


def _items(
    bench: Workbench, servers: str, topic: str, protect: Callable[[Frame], Frame], options: Mapping[str, str]
) -> str:
    """The view of what is bought, by page and user."""
    view = bench.fresh("view").name.replace("-", "_")
    counted = _counted(bench, servers, topic, protect, options)
    counted.selectExpr("timestamp", f"from_json(cast(value AS string), '{SCHEMA}') AS v").selectExpr(
        "timestamp", "v.user AS user", "v.page AS page", "explode(v.items) AS item"
    ).withWatermark("timestamp", "5 seconds").createOrReplaceTempView(view)
    return view


def windowed_count(
    bench: Workbench, servers: str, topic: str, protect: Callable[[Frame], Frame], options: Mapping[str, str]
) -> Frame:
    """A smaller job: records by window, nothing parsed."""
    view = bench.fresh("view").name.replace("-", "_")
    counted = _counted(bench, servers, topic, protect, options)
    counted.withWatermark("timestamp", "5 seconds").createOrReplaceTempView(view)
    return bench.spark.sql(
        f"SELECT window(timestamp, '{WINDOW}') AS w, count(1) AS n FROM {view} GROUP BY window(timestamp, '{WINDOW}')"
    )


def _counted(
    bench: Workbench, servers: str, topic: str, protect: Callable[[Frame], Frame], options: Mapping[str, str]
) -> Frame:
    """What `protect` leaves of a topic, with its count and mean arrival observed."""
    where = {"kafka.bootstrap.servers": servers, "subscribe": topic, **options}
    source = bench.spark.readStream.format("kafka").options(**where).load()
    return observed(protect(source), METRIC, "count(1) AS kept", "avg(cast(timestamp AS double)) AS arrival")


def run(
    bench: Workbench, frame: Frame, load: Sender, seconds: float, on_time: Callable[[float], None], *, least: int = 0
) -> list[KafkaBatch]:
    """The query's batches of that many seconds, counted from its first batch that held anything; `least` at least.

    `on_time` is called all the while with the seconds since then: it may change the load.
    """
    writer = frame.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(bench.fresh("checkpoint"))).start()
    try:
        began: float | None = None
        while began is None or time.time() < began + seconds or len(batches(query.recentProgress)) < least:
            if not query.isActive:
                raise BenchError(f"the query ended: {query.exception()}", hint="See the log above")
            load.check()
            time.sleep(0.05)
            if began is None:
                found = batches(query.recentProgress)
                began = found[0].started if found else None
            else:
                on_time(time.time() - began)
        return batches(query.recentProgress)
    finally:
        query.stop()


def drained(bench: Workbench, frame: Frame) -> list[KafkaBatch]:
    """The batches of a query that reads what there is and ends."""
    writer = frame.writeStream.format("noop").outputMode("update")
    writer = writer.option("checkpointLocation", str(bench.fresh("checkpoint")))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return batches(query.recentProgress)


def batches(progress: Sequence[Any]) -> list[KafkaBatch]:
    """From Spark's progress, those that held anything."""
    found = []
    for item in map(as_dict, progress):
        metrics = item.get("observedMetrics", {}).get(METRIC, {})
        if not item["numInputRows"]:
            continue
        started = datetime.fromisoformat(item["timestamp"]).timestamp()
        seconds = item["durationMs"]["triggerExecution"] / 1e3
        kept = int(metrics.get("kept") or 0)
        found.append(KafkaBatch(started, seconds, int(item["numInputRows"]), kept, metrics.get("arrival")))
    return found


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What a stretch of batches comes to: mean latency over records, records kept per second, spread of lengths."""

    latency: float
    processed: float
    offered: float
    batch_seconds: float
    swing: float
    count: int

    @classmethod
    def of(cls, ran: Sequence[KafkaBatch]) -> BatchFigures:
        """At least three batches."""
        if len(ran) < 3:
            raise BenchError(f"only {len(ran)} batches ended while they were measured", hint="Run on a quieter machine")
        elapsed = ran[-1].ended - ran[0].started
        kept, lengths = sum(batch.kept for batch in ran), [batch.seconds for batch in ran]
        return cls(
            latency=sum(batch.latency * batch.kept for batch in ran) / max(kept, 1),
            processed=kept / elapsed,
            offered=sum(batch.offered for batch in ran) / elapsed,
            batch_seconds=median(lengths),
            swing=pstdev(lengths) / fmean(lengths),
            count=len(ran),
        )
