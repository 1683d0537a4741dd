"""A catalogue entry as a Spark query that may move: its checkpoint is on shared storage, its batches are fenced.

A batch asks the fence before it writes and again before Spark commits it: a query that has lost its fragment writes
nothing more. What it wrote in the moment between is no harm: Spark's journal takes the offset of a batch once, so two
queries on one checkpoint run the same batch or none, and the output log takes the tag of a batch once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from floodway.errors import FloodwayError
from floodway.job.clocks import PROCESS_CLOCK
from floodway.job.ledger import Ledger
from floodway.spark.log import create_log
from floodway.spark.log.inputs import source_options
from floodway.spark.log.schema import parse_schema
from floodway.spark.query.catalogue import CatalogueEntry
from floodway.spark.query.dead_letters import DeadLetters, has_dead_letters, well_formed
from floodway.spark.query.fragment_lines import delivered_line, source_lines
from floodway.spark.query.fragment_query import BatchError, shortened
from floodway.spark.query.journal import JournaledBatch, committed_batches, query_key, read_batch
from floodway.spark.query.query_notes import note_beginnings, read_notes
from floodway.spark.query.sinks import public_columns, write_logs
from floodway.spark.query.stopping import stop_between_batches
from floodway.spark.source import explain

START_SECONDS = 60.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class CatalogueBatch:
    """What one micro-batch did: tuples offered, kept and malformed by input, tuples written, seconds from cut to end.

    `taken` is how far it has come in each input's log, all partitions together.
    """

    number: int
    offered: Mapping[str, int]
    kept: Mapping[str, int]
    malformed: Mapping[str, int]
    written: int
    seconds: float
    taken: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QueryFiles:
    """Where a fragment reads, writes and journals, and the decision file that says what its sources drop.

    `logs` are folders of logs, or addresses of Kafka topics. Beside the checkpoint, so that they move with it, lie the
    ledger and the malformed records of each input.
    """

    logs: Mapping[str, Path | str]
    output: Path
    checkpoint: Path
    decision: Path

    @property
    def ledger(self) -> Path:
        """What each batch was offered, kept and dropped."""
        return self.checkpoint.with_name("ledger.jsonl")

    def dead_letters(self, name: str) -> Path:
        """Malformed records of one input."""
        return self.checkpoint.with_name("dead-letters") / name


class CatalogueQuery:
    """One fragment as a streaming query; `fence` raises when this process may not run it any more."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        entry: CatalogueEntry,
        parameters: Any,
        files: QueryFiles,
        *,
        fence: Callable[[], None],
        on_batch: Callable[[CatalogueBatch], None] = lambda batch: None,
        trigger_seconds: float = 1.0,
    ) -> None:
        self.name = name
        self.files = files
        self._spark = spark
        self._entry = entry
        self._parameters = parameters
        self._fence = fence
        self._on_batch = on_batch
        self._trigger_seconds = trigger_seconds
        self._ledger = Ledger(files.ledger)
        self._letters: dict[str, DeadLetters] = {}
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Start, and return when the query has found its sources and its place in them."""
        trigger = f"{round(self._trigger_seconds * 1000)} milliseconds"
        try:
            self._query = self._writer().trigger(processingTime=trigger).start()
        except FloodwayError:
            raise
        except Exception as error:  # whatever Spark raises: who asked must be able to give the fragment back
            raise BatchError(f"fragment {self.name} did not start: {shortened(error)}") from None
        deadline = time.monotonic() + START_SECONDS
        while self.failure() is None and time.monotonic() < deadline:
            if not str(self._query.status["message"]).startswith("Initializing"):
                return
            time.sleep(_POLL_SECONDS)
        reason = self.failure() or f"no start within {START_SECONDS:g} s"
        self.stop(grace_seconds=0.0)
        raise BatchError(f"fragment {self.name} did not start: {reason}")

    def frame(self) -> DataFrame:
        """The fragment's streaming DataFrame."""
        inputs = {name: self._read(name) for name in self._entry.inputs}
        return self._entry.build(inputs, self._parameters)

    @property
    def run_id(self) -> str | None:
        """Spark's name of this run; None while it does not run."""
        return None if self._query is None else str(self._query.runId)

    def failure(self) -> str | None:
        """Why the query ended, in one line; None while it runs or was never started."""
        if self._query is None or self._query.isActive:
            return None
        error = self._query.exception()
        return f"query {self.name} ended without a word" if error is None else explain(error)

    def stop(self, grace_seconds: float = 10.0) -> bool:
        """Stop, if it can be between two batches; whether it was. A batch cut short is repeated by the next start."""
        query, self._query = self._query, None
        if query is None:
            return True
        try:
            stop_between_batches(query, self.files.checkpoint, grace_seconds)
        except Exception as error:
            raise BatchError(f"fragment {self.name} did not stop: {shortened(error)}") from None
        return self.at_boundary()

    def at_boundary(self) -> bool:
        """Whether every batch that was cut has been committed."""
        folder = self.files.checkpoint / "offsets"
        cut = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
        done = committed_batches(self.files.checkpoint)
        return max(cut, default=-1) == max(done, default=-1)

    def process_available(self) -> None:
        """Run everything that is in the logs now, and end: for comparisons with an unmoved run."""
        self._writer().trigger(availableNow=True).start().awaitTermination()

    def _writer(self) -> DataStreamWriter:
        """The query but for its trigger; the output log exists from here on."""
        read_notes(self.files.checkpoint)  # refuses a checkpoint of another version
        frame = self.frame()
        columns = public_columns(frame).drop("_arrival").schema
        ddl = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in columns)
        create_log(self.files.output, parse_schema(ddl), stream=self.name)
        writer = frame.writeStream.queryName(self.name).option("checkpointLocation", str(self.files.checkpoint))
        return writer.foreachBatch(self._process)

    def _read(self, name: str) -> DataFrame:
        address = str(self.files.logs[name])
        options = {
            **source_options(address, self._entry.schemas.get(name)),
            "stream": f"{self.name}.{name}",
            "decision": str(self.files.decision),
            # The same number everywhere: a batch repeated by another participant must fall into the same tasks.
            "splits": "1",
            "notes": str(self.files.checkpoint.parent),
        }
        frame = self._spark.readStream.format("floodway").options(**options).load()
        if has_dead_letters(frame):
            letters = DeadLetters(options, self.files.checkpoint.parent, self.files.dead_letters(name))
            letters.create(tasks=1)
            self._letters[f"{self.name}.{name}"] = letters
        return well_formed(frame)

    def _process(self, batch: DataFrame, number: int) -> None:
        try:
            self._fence()
            key = query_key(self.name, self.files.checkpoint)
            journal = read_batch(self.files.checkpoint, number)
            note_beginnings(self.files.checkpoint, journal)
            written = write_logs({self.name: (batch, self.files.output)}, key, number, tasks=1)[self.name].rows
            letters = {at: one for at, one in self._letters.items() if at in journal.offsets}
            dead = {at: one.write(self._spark, journal.offsets[at], key, number, 1).rows for at, one in letters.items()}
            self._fence()
            # One also for an input that brought nothing: an audit counts batches.
            sources = [f"{self.name}.{name}" for name in self._entry.inputs]
            lines = [source_lines(key, journal, at, dead=dead.get(at)) for at in sources]
            self._ledger.append([*chain(*lines), delivered_line(key, journal, self.name, written)])
            for at, one in letters.items():
                one.forget(journal.offsets[at])
            self._on_batch(self._report(journal, written, dead))
        except Exception as error:
            raise BatchError(f"batch {number} of {self.name}: {shortened(error)}") from None

    def _report(self, journal: JournaledBatch, written: int, dead: Mapping[str, int]) -> CatalogueBatch:
        offsets = {at.removeprefix(f"{self.name}."): offset for at, offset in journal.offsets.items()}
        accounts = {name: offset.account() for name, offset in offsets.items()}
        return CatalogueBatch(
            journal.batch,
            {name: account.offered for name, account in accounts.items()},
            {name: account.kept for name, account in accounts.items()},
            {at.removeprefix(f"{self.name}."): count for at, count in dead.items()},
            written,
            max(0.0, PROCESS_CLOCK.now() - PROCESS_CLOCK.steady(journal.timestamp_ms / 1e3)),
            {name: sum(offset.end.values()) for name, offset in offsets.items()},
        )
