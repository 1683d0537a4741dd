"""A fragment as a running Spark query: sources with journaled drops, the streaming part, the tail with its accounts.

The ledger lines of a batch are written inside the batch, after its sinks and before Spark commits it: there is no
committed batch without its lines, and a replay finds its own lines there already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from floodway.errors import FloodwayError
from floodway.job.ledger import Ledger, LedgerLine
from floodway.job.options import OnLoss
from floodway.network.model import Arc, Network
from floodway.spark.log.inputs import source_options
from floodway.spark.log.kafka_links import is_kafka_link, is_topic, link_schema
from floodway.spark.log.meta import META
from floodway.spark.query.dead_letters import PREFIX, DeadLetters, has_dead_letters, well_formed
from floodway.spark.query.drops import literal, quoted
from floodway.spark.query.fragment_lines import batch_lines
from floodway.spark.query.fragments import Fragment, SourceSpec, is_link
from floodway.spark.query.journal import JournaledBatch, first_offsets, query_key, read_batch
from floodway.spark.query.layout import Layout
from floodway.spark.query.operators import apply_operator
from floodway.spark.query.query_notes import note_beginnings, note_tasks, read_notes
from floodway.spark.query.retaining import Retaining
from floodway.spark.query.side_output import dropped_sample, save_sample
from floodway.spark.query.sinks import QUEUE, Written, is_log, tag_of, write_logs, write_other
from floodway.spark.query.stopping import stop_between_batches
from floodway.spark.query.tail import run_tail
from floodway.spark.source.backend import open_backend
from floodway.spark.source.datasource import explain, own_message
from floodway.spark.source.drops import SEQUENCE_BITS
from floodway.spark.source.gone import PassingOver, forget_gone
from floodway.spark.source.options import parse_options

log = logging.getLogger(__name__)

_TAG = "_source"
_DROPPED = "dropped"
_FORGET_EVERY = 100


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

    @property
    def query(self) -> str:
        """The query as its ledger lines name it."""
        return self.lines[0].query if self.lines else self.fragment


class RunningFragment:
    """A started query: whether it failed, and how to stop it."""

    def __init__(self, query: StreamingQuery, checkpoint: Path) -> None:
        self._query = query
        self._checkpoint = checkpoint

    def failure(self) -> str | None:
        """Why the query ended, in one line; None while it runs."""
        if self._query.isActive:
            return None
        error = self._query.exception()
        return f"query {self._query.name} ended without a word" if error is None else explain(error)

    def stop(self, grace_seconds: float = 10.0) -> None:
        """Stop, if it can be between two batches; a batch still under way is repeated by the next start."""
        stop_between_batches(self._query, self._checkpoint, grace_seconds)


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
        side_output: int = 0,
        on_loss: OnLoss = "fail",
        retaining: Retaining | None = None,
    ) -> None:
        self.fragment = fragment
        self._spark = spark
        self._network = network
        self._layout = layout
        self._ledger = ledger
        self._on_batch = on_batch
        self._on_cut = on_cut
        self._side_output = side_output
        self._on_loss = on_loss
        self._retaining = retaining
        self._retention = None if retaining is None else retaining.retention
        self._letters: dict[str, DeadLetters] = {}
        self._schemas: dict[str, str | None] = {}
        self.tasks = self._tasks()

    @property
    def name(self) -> str:
        """`node.fragment`: the query's name in Spark, in the ledger and in reports."""
        return f"{self.fragment.node}.{self.fragment.name}"

    @property
    def checkpoint(self) -> Path:
        """Where Spark journals this query."""
        return self._layout.checkpoint(self.fragment)

    def _tasks(self) -> int:
        """As many tasks as the node has CPUs: a node of one CPU does one thing at a time, as its plan assumes.

        A query that was started before goes on with the tasks it had: a batch that it left half written would
        otherwise be repeated in other parts, and the logs it writes have a partition a task.
        """
        wanted = max(1, round(self._network.nodes[self.fragment.node].cpu))
        tasks = read_notes(self.checkpoint).tasks or wanted
        if tasks != wanted:
            log.warning(
                "query %s goes on with %d task(s), as it was started; for the %d that the cpu of its node gives now, "
                "start it with a new state folder",
                self.name,
                tasks,
                wanted,
            )
        return tasks

    def start(self) -> RunningFragment:
        """Start the query; batches follow each other as fast as they are processed."""
        note_tasks(self.checkpoint, self.tasks)
        query = (
            self._streaming()
            .writeStream.queryName(self.name)
            .option("checkpointLocation", str(self.checkpoint))
            .foreachBatch(self._process)
            .start()
        )
        return RunningFragment(query, self.checkpoint)

    def missing_sources(self) -> list[str]:
        """The sources whose log is not there yet (a Kafka topic is taken to be, unless another node makes it)."""
        return [spec.name for spec in self.fragment.sources if not self._is_there(spec)]

    def _is_there(self, spec: SourceSpec) -> bool:
        address = self._layout.source(self._network, self.fragment, spec)
        if is_kafka_link(spec.producer, address):
            return self._link_schema(address) is not None
        return is_topic(address) or (Path(address) / META).exists()

    def _link_schema(self, address: str) -> str | None:
        """The columns of a link over Kafka, asked for until its writer has told them."""
        if self._schemas.get(address) is None:
            self._schemas[address] = link_schema(address)
        return self._schemas[address]

    def sources_exist(self) -> bool:
        """Whether every log this fragment reads is there."""
        return not self.missing_sources()

    def create_dead_letter_logs(self) -> None:
        """Make logs for malformed records, for the sources that can have some; known after `sink_frames`."""
        for letters in self._letters.values():
            letters.create(self.tasks)

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
        # Sources with different columns in one query: each row carries its own struct and its source's name.
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
        options = self._options(spec)
        frame = self._spark.readStream.format("floodway").options(**options).load()
        if has_dead_letters(frame):
            folder = self._layout.dead_letters(spec)
            self._letters[spec.location or spec.name] = DeadLetters(
                options, self._layout.decision.parent, folder, self._retention
            )
        if "weight" in frame.columns and is_link(spec):  # came through another node, which may drop too
            frame = frame.withColumn("_weight", fn.col("_weight") * fn.col("weight")).drop("weight")
        if spec.location is not None and any(s.deadline is not None for s in self._network.streams.values()):
            partition = fn.shiftrightunsigned("_id", SEQUENCE_BITS)
            frame = frame.withColumn(QUEUE, fn.concat(fn.lit(f"{spec.location}/"), partition.cast("string")))
        return well_formed(frame)

    def _options(self, spec: SourceSpec) -> dict[str, str]:
        """The reader's options for one source."""
        address = self._layout.source(self._network, self.fragment, spec)
        options = {
            "stream": spec.location or spec.name,
            "decision": str(self._layout.decision),
            "arcs": ",".join(self._inner_arcs()),
            "splits": str(self.tasks),
            "onLoss": self._on_loss,
        }
        if is_kafka_link(spec.producer, address):
            return {**options, **source_options(address, self._link_schema(address)), "valueFormat": "arrow"}
        schema = self._network.streams[spec.producer].schema if is_topic(address) else None
        return {**options, **source_options(address, schema)}

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
            spec.name: batch.filter(f"{_TAG} = {literal(spec.name)}").select(f"{quoted(spec.name)}.*")
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
        note_beginnings(self.checkpoint, journal)
        self._on_cut(self.name, journal)
        # The streaming plan below runs once an action: hold on to its result where several follow.
        several = len(self.fragment.sources) > 1 and not self.fragment.streaming
        sinks = len(self.fragment.outputs) + len(self.fragment.cut)
        held = batch.persist() if several or (sinks > 1 and self.fragment.streaming) else batch
        try:
            result = run_tail(self._network, self.fragment, self._heads(held), partial(self._write, journal))
        finally:
            if held is not batch or several:
                held.unpersist()
        if self._side_output:
            self._save_dropped(journal)
        lines = batch_lines(self._key, self.fragment, journal, result, self._layout.lost)
        self._ledger.append(lines)
        if number % _FORGET_EVERY == 0:
            forget_gone(self._layout.lost, first_offsets(self.checkpoint))
        for at, letters in self._lettered(journal):
            letters.forget(journal.offsets[at])
        self._on_batch(BatchReport(self.name, journal, time.time(), tuple(lines), result.delivered))

    def _write(self, journal: JournaledBatch, frames: Mapping[str, DataFrame]) -> dict[str, Written]:
        key, number = self._key, journal.batch
        logs: dict[str, tuple[DataFrame, Path | str]] = {}
        written: dict[str, Written] = {}
        for sink, frame in frames.items():
            if sink not in self._network.outputs:
                producer, _, consumer = sink.partition("->")
                logs[sink] = (frame, self._layout.link(Arc(producer, consumer)))
            elif is_log(address := self._layout.output(self._network, sink)):
                logs[sink] = (frame, Path(address))
            elif is_kafka_link(sink, address):
                logs[sink] = (frame, address)
            else:
                written[sink] = write_other(frame, address, key, sink, number)
        retained = {sink: kept for sink in logs if self._retaining and (kept := self._retaining.of(sink))}
        written |= write_logs(logs, key, number, self.tasks, retained)
        # After all else: the notes of malformed records are there when the batch has been read.
        for at, letters in self._lettered(journal):
            written[PREFIX + at] = letters.write(self._spark, journal.offsets[at], key, number, self.tasks)
        return written

    def _lettered(self, journal: JournaledBatch) -> list[tuple[str, DeadLetters]]:
        return [(at, letters) for at, letters in self._letters.items() if at in journal.offsets]

    def _save_dropped(self, journal: JournaledBatch) -> None:
        """Append a capped sample of what each source dropped to its side output."""
        for spec in self.fragment.sources:
            offset = journal.offsets.get(spec.location or spec.name)
            if offset is None or spec.location is None:
                continue
            # What has gone meanwhile cannot be shown any more: a sample stops nothing.
            backend = PassingOver(open_backend(parse_options(self._options(spec))), lambda *_: None)
            sample = dropped_sample(backend, offset, self._side_output)
            if sample is not None:
                save_sample(
                    self._layout.dropped(spec),
                    sample,
                    stream=spec.name,
                    tag=tag_of(self._key, _DROPPED, journal.batch),
                    retention=self._retention,
                )

    @property
    def _key(self) -> str:
        """What results and ledger lines of this checkpoint name."""
        return query_key(self.name, self.checkpoint)


def shortened(error: BaseException, most: int = 600) -> str:
    """Floodway's own message if there is one, else the first lines, without the plan or Java stack Spark appends."""
    text = own_message(error) or str(error).split("JVM stacktrace:")[0].split("\n\tat ")[0].strip()
    return text if len(text) <= most else text[:most] + " …"
