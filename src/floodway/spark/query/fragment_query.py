"""A fragment as a running Spark query: sources with journaled drops, the streaming part, the tail with its accounts.

The ledger lines of a batch are written inside the batch, after its sinks and before Spark commits it: there is no
committed batch without its lines, and a replay finds its own lines there already.

A fragment may move between processes, with its checkpoint on storage that they share. A batch then asks the `fence`
before it writes and again before Spark commits it: a query that has lost its fragment writes nothing more. What it
wrote in between does no harm: Spark's journal takes the offset of a batch once, and a log takes its tag once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from floodway.errors import InputError
from floodway.job.clocks import PROCESS_CLOCK, SteadyClock
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.options.options import OnLoss
from floodway.network.model import Arc, Network, Operator, OperatorKind
from floodway.planning.windows.window_keeps import from_numbers
from floodway.spark.log.kafka_links import is_kafka_link
from floodway.spark.log.schema import EVENT_TIME
from floodway.spark.query.count_join import JoinWindows
from floodway.spark.query.dead_letters import PREFIX
from floodway.spark.query.drops import whole_windows
from floodway.spark.query.fragment_lines import StreamFacts, batch_lines
from floodway.spark.query.fragment_sources import FragmentSources
from floodway.spark.query.fragment_windows import FragmentWindows, PlacedKeeps
from floodway.spark.query.fragments import Fragment
from floodway.spark.query.journal import (
    JournaledBatch,
    first_offsets,
    note_beginnings,
    note_tasks,
    offsets_at,
    query_key,
    read_batch,
    read_notes,
)
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.operators import apply_chain, apply_operator
from floodway.spark.query.python_pass.one_pass import OnePass, one_pass
from floodway.spark.query.python_pass.steps import chains
from floodway.spark.query.retaining import Retaining
from floodway.spark.query.sinks import Appender, Written, is_log, tag_of, write_sinks
from floodway.spark.query.state_meter import StateSize
from floodway.spark.query.stream_run import BatchError, StreamRun, shortened
from floodway.spark.query.tail import TailResult, run_tail, sink_arcs, tagged, untagged
from floodway.spark.source.keys import KeyDrops
from floodway.spark.source.notes import forget_gone

log = logging.getLogger(__name__)

_DROPPED = "dropped"
_FORGET_EVERY = 100


@dataclass(frozen=True)
class FragmentReport:
    """What one micro-batch of a fragment did, for the loop that steers.

    When it was cut and ended, and when what it delivered had arrived, by the clock of the query (`job/clocks.py`).
    `state` is what operators, or some of them together, hold: in Spark's state stores after the batch before.
    """

    fragment: str
    journal: JournaledBatch
    cut_seconds: float
    ended_seconds: float
    lines: tuple[LedgerLine, ...]
    delivered: Mapping[str, Written]
    state: Mapping[tuple[str, ...], StateSize] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """From the cut of the batch to its results being visible."""
        return self.ended_seconds - self.cut_seconds

    def latencies(self, sinks: Iterable[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Seconds from arrival to delivery at these sinks, with how many tuples had each, of those with an arrival."""
        pairs = [self.delivered[sink].latencies_seconds(self.ended_seconds) for sink in sinks if sink in self.delivered]
        seconds = np.concatenate([pair[0] for pair in pairs]) if pairs else np.zeros(0)
        return seconds, np.concatenate([pair[1] for pair in pairs]) if pairs else np.zeros(0, dtype=np.int64)

    def mean_latency(self, sinks: Iterable[str]) -> float | None:
        """Mean latency in seconds of what these sinks got; None where nothing carries its arrival."""
        seconds, tuples = self.latencies(sinks)
        return float(np.average(seconds, weights=tuples)) if tuples.sum() else None

    @property
    def query(self) -> str:
        """The query as its ledger lines name it."""
        return self.lines[0].query if self.lines else self.fragment


Apply = Callable[[Operator, list[DataFrame]], DataFrame]
"""What an operator makes of its inputs: that of a network file, or an entry of a catalogue."""


class FragmentQuery:
    """One fragment's streaming query: build it, start it, see whether it failed, stop it.

    `fence` raises when this process may not run the fragment any more. With `trigger_seconds` a batch begins that often
    at most; otherwise batches follow each other as fast as they are processed. With a `gate` (a path) it can be
    prepared while it runs elsewhere. A new query with `last_tuples` begins so many before the end of each partition.
    `keys` are streams that are shed by key.
    """

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        fragment: Fragment,
        layout: RunLayout,
        ledger: Ledger,
        on_batch: Callable[[FragmentReport], None],
        on_cut: Callable[[str, JournaledBatch], None] = lambda query, journal: None,
        side_output: int = 0,
        on_loss: OnLoss = "fail",
        retaining: Retaining | None = None,
        apply: Apply = apply_operator,
        fence: Callable[[], None] = lambda: None,
        trigger_seconds: float | None = None,
        gate: Path | None = None,
        last_tuples: int | None = None,
        windows: FragmentWindows | None = None,
        keys: Mapping[str, KeyDrops] | None = None,
        clock: SteadyClock = PROCESS_CLOCK,
    ) -> None:
        self.fragment = fragment
        self._spark = spark
        self._network = network
        self._layout = layout
        self._ledger = ledger
        self._facts = StreamFacts(self._ledger.store)
        self._on_batch = on_batch
        self._on_cut = on_cut
        self._side_output = side_output
        self._retaining = retaining
        self._clock = clock
        self._apply = apply
        self._windows = windows
        self._fence = fence
        self._trigger_seconds = trigger_seconds
        self._frame: DataFrame | None = None
        self._pass: OnePass | None = None
        self.tasks = self._tasks()
        retention = None if retaining is None else retaining.retention
        self._sources = FragmentSources(
            spark, network, fragment, layout, self.tasks, on_loss, retention, gate, last_tuples, windows, keys
        )
        self._run = StreamRun(spark, self.name, self.checkpoint, gate)

    @property
    def name(self) -> str:
        """The query's name in Spark, in the ledger and in reports."""
        return self.fragment.query

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
                "query %s continues with %d task(s), as it was started; for the %d that the cpu of its node gives now, "
                "start it with a new state folder",
                self.name,
                tasks,
                wanted,
            )
        return tasks

    def prepare(self, *, wait_seconds: float) -> None:
        """Build the plan and start the query as far as its gate; another application still runs the fragment."""
        self._run.hold(self._writer(), wait_seconds=wait_seconds)

    def start(self, *, wait_seconds: float = 0.0) -> None:
        """Start the query; with `wait_seconds`, return when it has found its sources and its place in them."""
        self._run.go(self._writer, wait_seconds=wait_seconds)

    @property
    def started(self) -> bool:
        """Whether the query has found its sources and its place in them."""
        return self._run.started

    def process_available(self) -> None:
        """Run everything that is in the logs now, and end."""
        self._unpaced().trigger(availableNow=True).start().awaitTermination()

    @property
    def run_id(self) -> str | None:
        """Spark's name of this run; None while it does not run."""
        return self._run.run_id

    def failure(self) -> str | None:
        """Why the query ended, in one line; None while it runs or was never started."""
        return self._run.failure()

    def stop(self, grace_seconds: float = 10.0, *, after_batch: bool = False) -> None:
        """Stop between two batches if it can be, `after_batch` right after the next; one under way is repeated."""
        self._run.stop(grace_seconds, (self._trigger_seconds or 0.0) if after_batch else 0.0)

    def _writer(self) -> DataStreamWriter:
        writer = self._unpaced()
        if self._trigger_seconds is None:
            return writer
        return writer.trigger(processingTime=f"{round(self._trigger_seconds * 1000)} milliseconds")

    def _unpaced(self) -> DataStreamWriter:
        """The query but for its trigger."""
        note_tasks(self.checkpoint, self.tasks)
        frame, self._frame = self._frame or self._streaming(), None
        self._pass = self._one_pass(frame)
        writer = frame.writeStream.queryName(self.name).option("checkpointLocation", str(self.checkpoint))
        return writer.foreachBatch(self._process)

    def missing_sources(self) -> list[str]:
        """The sources whose log is not there yet (a Kafka topic is taken to be, unless another node makes it)."""
        return self._sources.missing()

    def create_dead_letter_logs(self) -> None:
        """Make logs for malformed records, for the sources that can have some; known after `sink_frames`."""
        self._sources.create_dead_letter_logs()

    def sink_frames(self) -> dict[str, DataFrame]:
        """Empty DataFrames as the sinks will get them, to create logs with the right columns in advance.

        The plan that is built for it is the one that is started next.
        """
        shapes: dict[str, DataFrame] = {}

        def note(frames: Mapping[str, DataFrame]) -> dict[str, Written]:
            shapes.update(frames)
            return {}

        frames = {spec.name: self._sources.read(spec) for spec in self.fragment.sources}
        self._frame = self._joined(frames)
        heads = {self.fragment.streaming[-1]: self._frame} if self.fragment.streaming else frames
        empty = {name: self._spark.createDataFrame([], frame.schema) for name, frame in heads.items()}
        run_tail(self._network, self.fragment, empty, note, self._conditions(empty, ()))
        return shapes

    def _streaming(self) -> DataFrame:
        return self._joined({spec.name: self._sources.read(spec) for spec in self.fragment.sources})

    def _joined(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """One streaming DataFrame of all sources: what the streaming part makes of them, or all of them tagged."""
        if self.fragment.streaming:
            return self._zone(frames)
        if len(frames) == 1:
            return next(iter(frames.values())).coalesce(self.tasks)
        return tagged(frames).coalesce(self.tasks)

    def _zone(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        made = dict(frames)
        for first, *others in chains(self._network, self.fragment.streaming):
            operator = self._network.operators[first]
            inputs = [made[p] if p in made else made[str(Arc(p, first))] for p in operator.inputs]
            following = [self._network.operators[name] for name in others]
            chain = apply_chain([operator, *following], inputs) if following else self._apply(operator, inputs)
            made[[first, *others][-1]] = chain
        return made[self.fragment.streaming[-1]]

    def _heads(self, batch: DataFrame) -> dict[str, DataFrame]:
        if self.fragment.streaming:
            return {self.fragment.streaming[-1]: batch}
        if len(self.fragment.sources) == 1:
            return {self.fragment.sources[0].name: batch}
        return untagged(batch, [spec.name for spec in self.fragment.sources])

    def _process(self, batch: DataFrame, number: int) -> None:
        try:
            self._run_batch(batch, number)
        except Exception as error:
            # Spark searches the message with a recursive regular expression and dies on a long one.
            raise BatchError(f"batch {number} of {self.name}: {shortened(error)}") from None

    def _run_batch(self, batch: DataFrame, number: int) -> None:
        self._fence()
        journal = read_batch(self.checkpoint, number)
        cut_seconds = min(self._clock.steady(journal.timestamp_ms / 1e3), self._clock.now())
        note_beginnings(self.checkpoint, journal)
        self._on_cut(self.name, journal)
        result = self._tail_result(batch, journal)
        for at, letters in self._sources.dead_letters(journal):
            # After all else: the notes of malformed records are there when the batch has been read.
            written = letters.write(self._spark, journal.offsets[at], self._key, number, self.tasks)
            result.delivered[PREFIX + at] = written
        if self._side_output:
            self._sources.save_dropped(journal, tag_of(self._key, _DROPPED, number), self._side_output)
        self._fence()
        lines = batch_lines(self._key, self.fragment, journal, result, self._layout.lost)
        self._facts.add(self._key, journal, lines)  # before the ledger: what is on it can be found again
        self._ledger.append(lines)
        if number % _FORGET_EVERY == 0:
            forget_gone(self._layout.lost, first_offsets(self.checkpoint))
        for at, letters in self._sources.dead_letters(journal):
            letters.forget(journal.offsets[at])
        ended_seconds = self._clock.now()
        delivered = {sink: written.steady(self._clock) for sink, written in result.delivered.items()}
        state = self._state(number)
        self._on_batch(FragmentReport(self.name, journal, cut_seconds, ended_seconds, tuple(lines), delivered, state))

    def _tail_result(self, batch: DataFrame, journal: JournaledBatch) -> TailResult:
        """Push a batch through the tail: in one pass where it can be one, else in parts."""
        logs, keeps = self._logs(), self._published(journal.batch)
        retained = {sink: kept for sink in logs if self._retaining and (kept := self._retaining.of(sink))}
        appender = Appender(logs, self._key, journal.batch, retained)
        if self._pass is not None:
            return self._pass.run(batch.coalesce(self.tasks) if self.fragment.streaming else batch, appender)
        # The streaming plan below runs once an action: hold on to its result where several follow.
        several = len(self.fragment.sources) > 1 and not self.fragment.streaming
        sinks = len(self.fragment.outputs) + len(self.fragment.cut)
        held = batch.persist() if several or (sinks > 1 and self.fragment.streaming) else batch
        try:
            heads = self._heads(held)
            conditions, joins = self._conditions(heads, keeps), self._joins(journal.batch)
            return run_tail(self._network, self.fragment, heads, partial(self._write, appender), conditions, joins)
        finally:
            if held is not batch or several:
                held.unpersist()

    def _joins(self, number: int) -> Callable[[str], JoinWindows]:
        return lambda name: JoinWindows(self.checkpoint / "joins" / name, number)

    def _state(self, number: int) -> dict[tuple[str, ...], StateSize]:
        held: dict[tuple[str, ...], StateSize] = {}
        windowed = tuple(n for n in self.fragment.streaming if self._network.operators[n].window is not None)
        if windowed and (stores := self._run.state_size()) is not None:
            held[windowed] = stores
        for name in self.fragment.operators:
            operator = self._network.operators[name]
            if operator.kind is OperatorKind.JOIN and operator.windows is not None and operator.run is None:
                held[(name,)] = StateSize(self._joins(number)(name).bytes(), round(sum(operator.windows)))
        return held

    def _published(self, number: int) -> list[PlacedKeeps]:
        """The keeps of windows that a batch has journaled, which the queries below can read from now on."""
        if self._windows is None or not self._windows.drops:
            return []
        offsets = offsets_at(self.checkpoint, number).values()
        keeps = [(at, from_numbers(numbers)) for offset in offsets for at, numbers in offset.windows.items()]
        self._windows.publish(self.name, keeps)
        return keeps

    def _conditions(self, heads: Mapping[str, DataFrame], keeps: Collection[PlacedKeeps]) -> dict[Arc, str]:
        """Which windows may leave the streaming part: those that are whole."""
        if self._windows is None or not self._windows.checked:
            return {}
        last = self.fragment.streaming[-1]
        if not {"window", EVENT_TIME} & set(heads[last].columns):
            raise InputError(
                f"operators.{last}: its result has neither a column 'window' nor {EVENT_TIME!r}, "
                "so windows that were dropped in part cannot be distinguished from whole ones",
                hint=f"Put the window's start out as {EVENT_TIME!r}, or leave `window` out for random drops",
            )
        condition = whole_windows(heads[last], self._windows.deciding(keeps))
        return dict.fromkeys(self._windows.checked, condition)

    def _one_pass(self, frame: DataFrame) -> OnePass | None:
        """The tail as one pass, where all its sinks are logs and whole windows need not be told from others."""
        checked = self._windows is not None and self._windows.checked
        if checked or self._logs().keys() != sink_arcs(self._network, self.fragment).keys():
            return None
        return one_pass(self._network, self.fragment, {at: head.schema for at, head in self._heads(frame).items()})

    def _logs(self) -> dict[str, Path | str]:
        """The sinks that are logs or links, and where they are."""
        logs: dict[str, Path | str] = {str(arc): self._layout.link(arc) for arc in self.fragment.cut}
        for output in self.fragment.outputs:
            address = self._layout.output(self._network, output)
            if is_log(address) or is_kafka_link(output, address):
                logs[output] = address
        return logs

    def _write(self, appender: Appender, frames: Mapping[str, DataFrame]) -> dict[str, Written]:
        others = {sink: self._layout.output(self._network, sink) for sink in frames if sink not in appender.paths}
        return write_sinks(frames, others, appender, self.tasks)

    @property
    def _key(self) -> str:
        """What results and ledger lines of this checkpoint name."""
        return query_key(self.name, self.checkpoint)
