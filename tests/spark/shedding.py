"""What the tests of `shed` share: a scripted law, an input of one file a micro-batch, waiting without clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from floodway.control.base import Controller, Decision, Observation, State
from floodway.job.ledger.facts import read_rule
from floodway.job.ledger.ledger import Ledger
from floodway.spark.shed.chooser import AT_ONCE_US
from floodway.spark.shed.recovery.fate import fate
from floodway.spark.shed.shed import Shedder, shed
from tests.patience import wait_until


@dataclass(frozen=True)
class Scripted(Controller[State]):
    """A law that decides what the test wants next: the last element of `keeps`."""

    keeps: list[float]
    name: ClassVar[str] = "scripted"
    signal: ClassVar[str] = "batch_seconds"

    def initial(self) -> State:
        return State()

    def update(self, state: State, observation: Observation) -> tuple[State, Decision]:
        return state, Decision(self.keeps[-1] * observation.waiting, 1.0, "scripted")


IDLE = "spark.sql.streaming.noDataProgressEventInterval"


@dataclass
class Stream:
    """A stream read from a folder, one file a micro-batch, and a query whose results are collected.

    Nothing is decided but by what the test feeds: by default no decision expires or is renewed, and a test that is held
    up between two files is no query that waits for data.
    """

    spark: SparkSession
    folder: Path
    schema: str
    build: Callable[[DataFrame, Shedder], DataFrame]
    options: dict[str, Any] = field(default_factory=dict)
    keeps: list[float] = field(default_factory=lambda: [1.0])
    results: dict[int, list[Any]] = field(default_factory=dict)
    files: int = 0
    sink: Callable[[DataFrame], object] = DataFrame.collect
    """What is done with a batch beside collecting its rows: also the last of its actions."""
    follows: bool = False
    """Whether keeps follow the time between batches; otherwise they are the script's, however long things take here."""

    def start(self) -> StreamingQuery:
        """Start, or restart on the same checkpoint with a new shed, as a new process would."""
        (self.folder / "in").mkdir(parents=True, exist_ok=True)
        self.shed = shed(
            "test", target_latency="2s", controller=Scripted(self.keeps),
            state_dir=str(self.folder / "state"), **{"mode": "enforce", "expires_after": "never", **self.options},
        )  # fmt: skip
        source = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).json(str(self.folder / "in"))
        writer = self.build(source, self.shed).writeStream.foreachBatch(self._collect)
        before = self.spark.conf.get(IDLE, None)
        self.spark.conf.set(IDLE, "1d")  # read when a query starts
        try:
            self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        finally:
            self.spark.conf.unset(IDLE) if before is None else self.spark.conf.set(IDLE, before)
        return self.query

    def _collect(self, batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        if self.sink is not DataFrame.collect:
            self.sink(batch)
        self.results[number] = rows

    def feed(self, rows: Iterable[str]) -> None:
        """One more file, processed, reported, and its decision in force when this returns."""
        self.place(rows)
        self.query.processAllAvailable()
        self.settle()

    def place(self, rows: Iterable[str]) -> None:
        """One more file, for the next micro-batch."""
        written = self.folder / f"part-{self.files:05d}.json"
        written.write_text("\n".join(rows))
        # Later files must look later: Spark reads in the order of modification times.
        written.rename(self.folder / "in" / written.name)
        self.files += 1

    def settle(self) -> None:
        """Wait until the last batch is reported and its decision is valid."""
        progress = self.query.lastProgress
        # Progress is told a moment after a batch ends; what the sink has seen is known at once.
        last = max(-1 if progress is None else progress.batchId, *self.results, -1)
        ledger = Ledger(self.shed.files.store)  # written last
        wait_until(lambda: last < 0 or any(line.batch >= last for line in ledger.read()))
        control = self.shed.loop.control
        with self.shed.loop._lock:  # also until all else is written of the batch
            if not self.follows:
                control.put(replace(control.latest, budget=None, rate=None, base_us=None))
        valid = control.latest.valid_from_us
        if any(query.first is not None for query in self.shed.loop._queries.values()):
            # A second batch that began at once would have an entry of its own, which follows its length.
            valid = max(valid, time.time_ns() // 1000 + AT_ONCE_US)
        wait_until(lambda: time.time_ns() // 1000 > valid)

    def found_again(self, batch: int) -> set[int]:
        """The ids of the batch's tuples that were dropped, by the facts alone."""
        facts = next(one for one in self.shed.loop.facts.read() if one.batch == batch)
        offered = self.spark.read.schema(self.schema).json(str(self.folder / "in" / f"part-{batch:05d}.json"))
        gone = offered.filter(~fate(offered, read_rule(self.shed.files.store), facts))
        return {row.id for row in gone.select("id").collect()}

    def stop(self) -> None:
        self.query.stop()
