"""A fragment as a running Spark query: sources with journaled drops, the streaming part, and the tail with
its accounts.

The ledger lines of a batch are written inside the batch, after its sinks and before Spark commits it: there
is no
committed batch without its lines, and a replay finds its own lines there already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from floodway.errors import FloodwayError
from floodway.network.model import Arc, Network
from floodway.spark.fragments import Fragment, SourceSpec
from floodway.spark.journal import JournaledBatch, read_batch
from floodway.spark.layout import Layout
from floodway.spark.ledger import Ledger, LedgerLine, Reason
from floodway.spark.log.meta import META
from floodway.spark.operators import PPM, apply_operator
from floodway.spark.sinks import Written, is_log, parse_kafka, write_logs, write_other
from floodway.spark.source import explain
from floodway.spark.source.offsets import BatchOffset
from floodway.spark.tail import TailResult, run_tail

_TAG = "_source"


class BatchError(FloodwayError):
    """A batch that could not be processed; Spark stops the query and a restart repeats the batch."""


@dataclass(frozen=True)
class BatchReport:
    """What one micro-batch of a fragment (`node.name`) did, for the loop that steers."""

    fragment: str
    journal: JournaledBatch
    ended_seconds: float
    lines: tuple[LedgerLine, ...]
    delivered: Mapping[str, Written]

    @property
    def seconds(self) -> float:
        """From the cut of the batch to its results being visible."""
        return self.ended_seconds - self.journal.timestamp_ms / 1e3


class RunningFragment:
    """A started query: whether it failed, and how to stop it."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def failure(self) -> str | None:
        """Why the query ended, in one line; None while it runs."""
        if self._query.isActive:
            return None
        error = self._query.exception()
        return f"query {self._query.name} ended without a word" if error is None else explain(error)

    def stop(self) -> None:
        """Stop at once; a batch under way is repeated by the next start."""
        self._query.stop()


class FragmentQuery:
    """Builds and starts one fragment's streaming query."""

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        fragment: Fragment,
        layout: Layout,
        ledger: Ledger,
        on_batch: Callable[[BatchReport], None],
        on_cut: Callable[[str, JournaledBatch], None] = lambda query, journal: None,
    ) -> None:
        self.fragment = fragment
        self._spark = spark
        self._network = network
        self._layout = layout
        self._ledger = ledger
        self._on_batch = on_batch
        self._on_cut = on_cut
        # As many tasks as the node has CPUs: a node of one CPU does one thing at a time, as its plan assumes.
        self.tasks = max(1, round(network.nodes[fragment.node].cpu))

    @property
    def name(self) -> str:
        """`node.fragment`: the query's name in Spark, in the ledger and in reports."""
        return f"{self.fragment.node}.{self.fragment.name}"

    @property
    def checkpoint(self) -> Path:
        """Where Spark journals this query."""
        return self._layout.checkpoint(self.fragment)

    def start(self) -> RunningFragment:
        """Start the query; batches follow each other as fast as they are processed."""
        query = (
            self._streaming()
            .writeStream.queryName(self.name)
            .option("checkpointLocation", str(self.checkpoint))
            .foreachBatch(self._process)
            .start()
        )
        return RunningFragment(query)

    def sources_exist(self) -> bool:
        """Whether every log this fragment reads is there (a Kafka topic is taken to be)."""
        addresses = (self._layout.source(self._network, self.fragment, spec) for spec in self.fragment.sources)
        return all(address.startswith("kafka://") or (Path(address) / META).exists() for address in addresses)

    def sink_frames(self) -> dict[str, DataFrame]:
        """Empty DataFrames as the sinks will get them, to create logs with the right columns in advance."""
        shapes: dict[str, DataFrame] = {}

        def note(frames: Mapping[str, DataFrame]) -> dict[str, Written]:
            shapes.update(frames)
            return {}

        empty = {spec.name: self._spark.createDataFrame([], self._read(spec).schema) for spec in self.fragment.sources}
        run_tail(self._network, self.fragment, self._heads_of(empty), note)
        return shapes

    def _streaming(self) -> DataFrame:
        frames = {spec.name: self._read(spec) for spec in self.fragment.sources}
        if self.fragment.streaming:
            return self._zone(frames)
        if len(frames) == 1:
            return next(iter(frames.values())).coalesce(self.tasks)
        # Sources with different columns in one query: each row carries its own struct and the name of its
        # source.
        tagged = [
            df.select(fn.lit(name).alias(_TAG), fn.struct(*[f"`{c}`" for c in df.columns]).alias(name))
            for name, df in frames.items()
        ]
        return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), tagged).coalesce(self.tasks)

    def _zone(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        made = dict(frames)
        for name in self.fragment.streaming:
            operator = self._network.operators[name]
            inputs = [made[p] if p in made else made[str(Arc(p, name))] for p in operator.inputs]
            made[name] = apply_operator(operator, inputs)
        return made[self.fragment.streaming[-1]]

    def _read(self, spec: SourceSpec) -> DataFrame:
        address = self._layout.source(self._network, self.fragment, spec)
        reader = (
            self._spark.readStream.format("floodway")
            .option("stream", spec.location or spec.name)
            .option("decision", str(self._layout.decision))
            .option("arcs", ",".join(self._inner_arcs()))
            .option("splits", str(self.tasks))
        )
        if address.startswith("kafka://"):
            servers, topic = parse_kafka(address)
            stream = self._network.streams[spec.producer]
            reader = reader.option("kafka.bootstrap.servers", servers).option("topic", topic)
            if stream.schema is not None:
                reader = reader.option("schema", stream.schema)
            return reader.load()
        frame = reader.option("path", address).load()
        if "weight" in frame.columns:  # came through another node, which may have dropped too
            frame = frame.withColumn("_weight", fn.col("_weight") * fn.col("weight")).drop("weight")
        return frame

    def _inner_arcs(self) -> list[str]:
        """Branches whose drops happen in this fragment's tail."""
        producers = [*(spec.name for spec in self.fragment.sources), *self.fragment.operators]
        return [
            str(Arc(p, c))
            for p in producers
            if p in self._network.consumers and self._network.is_split(p)
            for c in self._network.consumers[p]
        ]

    def _heads(self, batch: DataFrame) -> dict[str, DataFrame]:
        if self.fragment.streaming:
            return {self.fragment.streaming[-1]: batch}
        if len(self.fragment.sources) == 1:
            return {self.fragment.sources[0].name: batch}
        return {
            spec.name: batch.filter(fn.col(_TAG) == spec.name).select(f"`{spec.name}`.*")
            for spec in self.fragment.sources
        }

    def _heads_of(self, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        return {self.fragment.streaming[-1]: self._zone(frames)} if self.fragment.streaming else dict(frames)

    def _process(self, batch: DataFrame, number: int) -> None:
        try:
            self._run_batch(batch, number)
        except Exception as error:
            # Spark searches the message with a recursive regular expression and dies on a long one.
            raise BatchError(f"batch {number} of {self.name}: {shortened(error)}") from None

    def _run_batch(self, batch: DataFrame, number: int) -> None:
        journal = read_batch(self.checkpoint, number)
        self._on_cut(self.name, journal)
        # The streaming plan below runs once an action: hold on to its result where several follow.
        several = len(self.fragment.sources) > 1 and not self.fragment.streaming
        sinks = len(self.fragment.outputs) + len(self.fragment.cut)
        held = batch.persist() if several or (sinks > 1 and self.fragment.streaming) else batch
        try:
            result = run_tail(self._network, self.fragment, self._heads(held), partial(self._write, number))
        finally:
            if held is not batch or several:
                held.unpersist()
        lines = self._lines(journal, result)
        self._ledger.append(lines)
        self._on_batch(BatchReport(self.name, journal, time.time(), tuple(lines), result.delivered))

    def _write(self, number: int, frames: Mapping[str, DataFrame]) -> dict[str, Written]:
        logs: dict[str, tuple[DataFrame, Path]] = {}
        written: dict[str, Written] = {}
        for sink, frame in frames.items():
            if sink not in self._network.outputs:
                producer, _, consumer = sink.partition("->")
                logs[sink] = (frame, self._layout.link(Arc(producer, consumer)))
            elif is_log(address := self._layout.output(self._network, sink)):
                logs[sink] = (frame, Path(address))
            else:
                written[sink] = write_other(frame, address, number)
        return {**write_logs(logs, self._tag(number), self.tasks), **written}

    def _tag(self, number: int) -> str:
        return f"{self.name}:{number}"

    def _lines(self, journal: JournaledBatch, result: TailResult) -> list[LedgerLine]:
        """One line for every place of the fragment, also where nothing came: an audit counts batches."""
        lines = []
        for spec in self.fragment.sources:
            at = spec.location or spec.name
            offset = journal.offsets.get(at)
            ranges = offset.ranges() if offset else []
            offered = sum(end - start for _, start, end in ranges)
            kept = sum(offset.admission.count(*piece) for piece in ranges) if offset else 0
            lines.append(self._line(journal, at, offered, kept, offset, offset.keep_ppm if offset else PPM))
        # All sources read the same decision file; a branch's keep travels with the tuples of any of them.
        offset = next(iter(journal.offsets.values()), None)
        for arc, (offered, kept) in result.branches.items():
            lines.append(self._line(journal, arc, offered, kept, offset, offset.arc_keep(arc) if offset else PPM))
        for sink, written in result.delivered.items():
            lines.append(self._line(journal, sink, written.rows, written.rows, offset, PPM, Reason.DELIVERED))
        return lines

    def _line(
        self,
        journal: JournaledBatch,
        at: str,
        offered: int,
        kept: int,
        offset: BatchOffset | None,
        keep_ppm: int,
        reason: Reason = Reason.SHEDDER,
    ) -> LedgerLine:
        return LedgerLine(
            query=self.name,
            batch=journal.batch,
            at=at,
            reason=reason,
            offered=offered,
            kept=kept,
            dropped=offered - kept,
            plan=offset.plan if offset else "",
            mode=offset.mode if offset else "off",
            keep_ppm=keep_ppm,
            time_us=journal.timestamp_ms * 1000,
        )


def shortened(error: BaseException, most: int = 600) -> str:
    """The first lines of an error's message, without the plan or the Java stack that Spark appends."""
    text = str(error).split("JVM stacktrace:")[0].split("\n\tat ")[0].strip()
    return text if len(text) <= most else text[:most] + " …"
