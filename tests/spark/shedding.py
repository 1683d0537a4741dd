"""What the tests of `shed` share: a scripted law, an input of one file a micro-batch, waiting without clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from floodway.control.base import Controller, Decision, Observation, State
from floodway.job.ledger.ledger import Ledger
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


@dataclass
class Stream:
    """A stream read from a folder, one file a micro-batch, and a query whose results are collected."""

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

    def start(self) -> StreamingQuery:
        """Start, or restart on the same checkpoint with a new shed, as a new process would."""
        (self.folder / "in").mkdir(parents=True, exist_ok=True)
        self.shed = shed(
            "test", target_latency="2s", controller=Scripted(self.keeps),
            state_dir=str(self.folder / "state"), **{"mode": "enforce", **self.options},
        )  # fmt: skip
        source = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).json(str(self.folder / "in"))
        self.query = (
            self.build(source, self.shed)
            .writeStream.foreachBatch(self._collect)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )
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
        valid = self.shed.loop.control.latest.valid_from_us
        wait_until(lambda: time.time_ns() // 1000 > valid)

    def stop(self) -> None:
        self.query.stop()
