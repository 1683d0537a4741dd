"""Where a fragment's results go: an embedded log, Kafka, the console, or any Spark file format.

A sink is written inside `foreachBatch` and may see a batch twice after a crash. What a batch writes is named by the
query's checkpoint (`journal.query_key`), the sink and the batch, so that it is there once, and another run adds to it:

    log, link over Kafka    the tag QUERY:SINK:BATCH:TASK; a task that finds its tag there writes nothing
    files                   PATH/query=QUERY/output=SINK/batch=BATCH, which is overwritten

Other topics and the console may repeat the last batch. Every sink returns when its tuples had arrived, so that latency
is measured where results become visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.job.clocks import SteadyClock
from floodway.spark.log import LogWriter, Retention
from floodway.spark.log.kafka_links import append_link, is_topic, parse_kafka
from floodway.spark.log.schema import ARRIVAL
from floodway.spark.query.drops import literal, quoted

QUEUE = "_queue"
"""`stream/partition` that a tuple came from; there where a stream of the network has a deadline."""
SINK = "_sink"
STATS = f"{SINK} string, queue string, arrival_ms long, tuples long, bytes long"
"""What was written: tuples of a sink by queue and arrival."""


@dataclass(frozen=True)
class Written:
    """What a batch delivered to one sink: tuples by arrival time in milliseconds since 1970 (−1: unknown) and by queue.

    `queues` holds `stream/partition` for each entry, "" where it is not known. `bytes` is what was appended to a log or
    a link: nothing where the batch was there already, and for other sinks.
    """

    arrival_ms: NDArray[np.int64]
    tuples: NDArray[np.int64]
    queues: tuple[str, ...] = ()
    bytes: int = 0

    @property
    def rows(self) -> int:
        """All tuples, those without an arrival time included."""
        return int(self.tuples.sum())

    def latencies_seconds(self, now_seconds: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Latency of the tuples that carry an arrival time, with how many have it; 0 for those from the future."""
        timed = self.arrival_ms >= 0
        return np.maximum(0.0, now_seconds - self.arrival_ms[timed] / 1e3), self.tuples[timed]

    def steady(self, clock: SteadyClock) -> Written:
        """With arrival times as they are on the time line of a clock."""
        timed = self.arrival_ms >= 0
        arrival_ms = self.arrival_ms.copy()
        arrival_ms[timed] = np.maximum(0, clock.steady_all(arrival_ms[timed] / 1e3) * 1e3).round()
        return replace(self, arrival_ms=arrival_ms)


NOTHING = Written(np.empty(0, np.int64), np.empty(0, np.int64))


def public_columns(df: DataFrame, *, queue: bool = False) -> DataFrame:
    """The columns a sink stores: identity and weight under plain names, other Floodway columns left out.

    A tuple that came through another node keeps the identity it had at the first. With `queue`, the queue it came
    from as well, which tells its deadline and is not stored.
    """
    return df.selectExpr(
        *(f"{quoted(kept)} AS {quoted(name)}" for name, kept in public_names(df.columns, queue=queue).items())
    )


def public_names(there: Sequence[str], *, queue: bool) -> dict[str, str]:
    """The columns a sink stores, each with the one it is kept in here."""
    columns = {name: name for name in there if not name.startswith("_")}
    if "_id" in there:
        columns.setdefault("origin_id", "_id")
    if "_weight" in there:
        columns.setdefault("weight", "_weight")
    return columns | {name: name for name in (ARRIVAL, *([QUEUE] if queue else [])) if name in there}


@dataclass(frozen=True, slots=True)
class Appender:
    """Appends what a task has of a batch to embedded logs and to links over Kafka (an address), by sink.

    Each task writes the partition of its own number; one that ran before finds its tag there and writes nothing. Logs
    keep what `retained` says of their sink, else everything. What goes to sinks without a path is only counted.
    """

    paths: Mapping[str, Path | str]
    query: str
    batch: int
    retained: Mapping[str, Retention] = field(default_factory=dict)

    def append(self, sink: str, rows: pa.Table) -> pa.RecordBatch:
        """Append a task's rows; what was written, as STATS."""
        if sink not in self.paths:
            return _histogram(rows, sink)
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        tag = f"{tag_of(self.query, sink, self.batch)}:{partition}"
        size = _append(rows, str(self.paths[sink]), partition, tag, self.retained.get(sink))
        return _histogram(rows, sink, size)


def write_logs(frames: Mapping[str, DataFrame], appender: Appender, tasks: int) -> dict[str, Written]:
    """Append to all sinks in one Spark job of `tasks` tasks."""
    if not frames:
        return {}
    # One Python worker for all sinks: rows of different shapes travel as one struct a sink, the others null.
    rows = []
    for sink, df in frames.items():
        fields = (f"{literal(name)}, {quoted(kept)}" for name, kept in public_names(df.columns, queue=True).items())
        rows.append(df.selectExpr(f"{literal(sink)} AS {SINK}", f"named_struct({', '.join(fields)}) AS {quoted(sink)}"))
    merged = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), rows).coalesce(tasks)
    stats = merged.mapInArrow(_appending(appender), STATS).toArrow()
    return {sink: written_of(stats, sink) for sink in frames}


def write_sinks(
    frames: Mapping[str, DataFrame], others: Mapping[str, str], appender: Appender, tasks: int
) -> dict[str, Written]:
    """Write to all sinks: to `others`, by their addresses, in a Spark job each, then to all logs in one.

    That one counts for all of them.
    """
    shown = {sink: public_columns(frames[sink], queue=True).persist() for sink in others}
    try:
        for sink, address in others.items():
            write_other(shown[sink].drop(ARRIVAL, QUEUE), address, appender.query, sink, appender.batch)
        return write_logs({**frames, **shown}, appender, tasks)
    finally:
        for frame in shown.values():
            frame.unpersist()


def write_other(stored: DataFrame, address: str, query: str, sink: str, batch: int) -> None:
    """Write to `console`, `kafka://host:port/topic`, or `format:path` with any file format Spark knows."""
    if address == "console":
        stored.show(20, truncate=False)
    elif is_topic(address):
        servers, topic = parse_kafka(address)
        value = stored.select(fn.to_json(fn.struct(*[f"`{c}`" for c in stored.columns])).alias("value"))
        value.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    else:
        kind, path = _format_and_path(address)
        stored.write.format(kind).mode("overwrite").save(batch_folder(path, query, sink, batch))


def writer_of(query: str, sink: str) -> str:
    """Who appends to a log: one sink of one query."""
    return f"{query}:{sink}"


def tag_of(query: str, sink: str, batch: int) -> str:
    """What a batch appends under, in all its tasks."""
    return f"{writer_of(query, sink)}:{batch}"


def batch_folder(path: str, query: str, sink: str, batch: int) -> str:
    """The folder of one batch's files."""
    return f"{path}/query={query}/output={sink}/batch={batch}"


def refuse_unnamed_batches(address: str, sink: str) -> None:
    """Refuse a folder in which an earlier version of Floodway left batches that name no query."""
    _, path = _format_and_path(address)
    if any(Path(path).glob("batch=*")):
        raise InputError(
            f"outputs.{sink}: {path} holds folders batch=N, whose names do not say which run wrote them",
            hint=f"Move them to {path}/query=earlier/output={sink} to keep them, or give the output another path",
        )


def is_log(sink: str | None) -> bool:
    """Whether a sink is an embedded log: a plain path, or nothing (then the runner chooses one)."""
    return sink is None or (sink != "console" and ":" not in sink)


def is_files(sink: str) -> bool:
    """Whether a sink is `format:path`."""
    return not is_log(sink) and sink != "console" and not is_topic(sink)


def _format_and_path(sink: str) -> tuple[str, str]:
    kind, _, path = sink.partition(":")
    if not kind or not path:
        raise InputError(
            f"sink {sink!r} is not understood",
            hint="Write a log's path, console, kafka://host:port/topic, or format:path such as parquet:out",
        )
    return kind, path


def _appending(appender: Appender) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def append(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        full = [batch for batch in batches if batch.num_rows]
        if not full:
            return
        table = pa.Table.from_batches(full)
        for sink in table.column(SINK).unique().to_pylist():
            mine = table.filter(pc.equal(table.column(SINK), sink))
            if mine.num_rows:
                yield appender.append(sink, pa.Table.from_struct_array(mine.column(sink)))

    return append


def _append(rows: pa.Table, path: str, partition: int, tag: str, retention: Retention | None = None) -> int:
    """Append to a log or a link; bytes written."""
    arrival = rows.column(ARRIVAL).combine_chunks() if ARRIVAL in rows.column_names else None
    body = rows.drop_columns([name for name in (ARRIVAL, QUEUE) if name in rows.column_names])
    if is_topic(path):
        return append_link(body, path, partition, tag, arrival).bytes
    with LogWriter(path, retention=retention) as writer:
        return writer.append(body, partition, arrival=arrival, tag=tag).bytes


def _histogram(table: pa.Table, sink: str, written_bytes: int = 0) -> pa.RecordBatch:
    """Tuples by arrival and queue; the bytes stand in the first row."""
    rows = table.num_rows
    arrival = np.full(rows, -1, dtype=np.int64)
    if ARRIVAL in table.column_names:
        arrival = table.column(ARRIVAL).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy() // 1000
    queue = table.column(QUEUE) if QUEUE in table.column_names else pa.chunked_array([pa.nulls(rows, pa.string())])
    counted = (
        pa.table({"arrival_ms": arrival, "queue": pc.fill_null(queue.cast(pa.string()), "")})
        .group_by(["arrival_ms", "queue"])
        .aggregate([([], "count_all")])
    )
    sinks = pa.array([sink] * counted.num_rows, pa.string())
    columns = [sinks, *(counted.column(name).combine_chunks() for name in ("queue", "arrival_ms", "count_all"))]
    columns.append(pa.array([written_bytes, *[0] * (counted.num_rows - 1)][: counted.num_rows], pa.int64()))
    return pa.RecordBatch.from_arrays(columns, names=[SINK, "queue", "arrival_ms", "tuples", "bytes"])


def written_of(found: pa.Table, sink: str) -> Written:
    """What a sink got, from what all tasks wrote."""
    stats = found.filter(pc.equal(found.column(SINK), sink))
    queues = tuple(stats.column("queue").to_pylist())
    size = int(stats.column("bytes").to_numpy().sum())
    return Written(stats.column("arrival_ms").to_numpy(), stats.column("tuples").to_numpy(), queues, size)
