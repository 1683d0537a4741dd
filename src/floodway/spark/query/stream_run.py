"""One run of a streaming query: start it, at once or behind a gate, see whether it failed, stop it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from floodway.errors import FloodwayError
from floodway.job.store.store import make_folder
from floodway.spark.query.journal import checkpoint_id, committed_batches
from floodway.spark.query.state_meter import StateMeter, StateSize
from floodway.spark.session.session import explain, own_message
from floodway.spark.source.gate import OPEN, SHUT, decide, remove, waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_POLL_SECONDS = 0.02
_SHUT_SECONDS = 10.0


class BatchError(FloodwayError):
    """A batch that could not be processed; Spark stops the query and a restart repeats the batch."""


class StreamRun:
    """A query with its checkpoint. With a `gate` it can be held: started, and kept from its checkpoint until `go`."""

    def __init__(self, spark: SparkSession, name: str, checkpoint: Path, gate: Path | None = None) -> None:
        self._spark = spark
        self._name = name
        self._checkpoint = checkpoint
        self._gate = gate
        self._query: StreamingQuery | None = None
        self._held = False
        self._state = StateMeter()

    @property
    def run_id(self) -> str | None:
        """Spark's name of this run; None while it does not run."""
        return None if self._query is None else str(self._query.runId)

    @property
    def started(self) -> bool:
        """Whether the query has found its sources and its place in them."""
        return self._query is not None and not str(self._query.status["message"]).startswith("Initializing")

    def state_size(self) -> StateSize | None:
        """What Spark's state stores took after the last batch that ended; None before the first."""
        progress = None if self._query is None else self._query._jsq.lastProgress()
        if progress is None:
            return None
        # As one text: PySpark's own progress asks Java for every field.
        return self._state.size(json.loads(progress.json()).get("stateOperators", []))

    def hold(self, writer: DataStreamWriter, *, wait_seconds: float) -> None:
        """Start as far as the gate. Nothing is started where it cannot be: `go` then starts it from the beginning.

        That is for a checkpoint that Spark has not made, and for one whose query runs in this application.
        """
        if self._gate is None or not self._is_another_applications():
            return
        gate = self._gate
        make_folder(gate.parent)
        self._begin(writer)
        self._held = True
        self._await(waiting(gate).exists, wait_seconds)

    def go(self, writer: Callable[[], DataStreamWriter], *, wait_seconds: float = 0.0) -> None:
        """Start, or go on from the gate; with `wait_seconds`, return when it has found its place in its sources."""
        if self._gate is not None:
            decide(self._gate, OPEN)
        if self._query is None:
            self._begin(writer())
        self._held = False
        if wait_seconds > 0:
            self._await(lambda: self.started, wait_seconds)

    def failure(self) -> str | None:
        """Why the query ended, in one line; None while it runs or was never started."""
        if self._query is None or self._query.isActive:
            return None
        error = self._query.exception()
        return f"query {self._name} ended without a word" if error is None else explain(error)

    def stop(self, grace_seconds: float = 10.0, idle_seconds: float = 0.0) -> None:
        """Stop, if it can be between two batches; a batch still under way is repeated by the next start."""
        query, self._query = self._query, None
        try:
            if query is not None and self._held and self._gate is not None:
                # Spark waits for the reader and cannot interrupt that.
                decide(self._gate, SHUT)
                _await_end(query)
            elif query is not None:
                stop_between_batches(query, self._checkpoint, grace_seconds, idle_seconds)
        except Exception as error:
            raise BatchError(f"query {self._name} did not stop: {shortened(error)}") from None
        finally:
            self._held = False
            if self._gate is not None:
                remove(self._gate)

    def _begin(self, writer: DataStreamWriter) -> None:
        try:
            self._query = writer.start()
        except FloodwayError:
            raise
        except Exception as error:  # whatever Spark raises, whoever asked gets one line
            raise BatchError(f"query {self._name} did not start: {shortened(error)}") from None

    def _await(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.failure() is None and time.monotonic() < deadline:
            if condition():
                return
            time.sleep(_POLL_SECONDS)
        reason = self.failure() or f"no start within {seconds:g} s"
        self.stop(grace_seconds=0.0)
        raise BatchError(f"query {self._name} did not start: {reason}")

    def _is_another_applications(self) -> bool:
        """Whether there is a checkpoint whose query this application may start beside the one that runs elsewhere."""
        known = checkpoint_id(self._checkpoint)
        return known is not None and known not in {str(query.id) for query in self._spark.streams.active}


def shortened(error: BaseException, most: int = 600) -> str:
    """Floodway's own message if there is one, else the first lines, without the plan or Java stack Spark appends."""
    text = own_message(error) or str(error).split("JVM stacktrace:")[0].split("\n\tat ")[0].strip()
    return text if len(text) <= most else text[:most] + " …"


def _await_end(query: StreamingQuery) -> None:
    deadline = time.monotonic() + _SHUT_SECONDS
    while query.isActive and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    query.stop()


def stop_between_batches(
    query: StreamingQuery, checkpoint: Path, grace_seconds: float, idle_seconds: float = 0.0
) -> None:
    """Stop when the query waits for data, or right after its next commit: an overloaded one never waits.

    With `idle_seconds` one that waits may still run a batch in that time: what goes on elsewhere then begins right
    after a batch. After `grace_seconds` it is stopped wherever it is; a batch cut short is repeated by the next start.
    """
    began = time.monotonic()
    before = _last_commit(checkpoint)
    while query.isActive and _last_commit(checkpoint) == before:
        longest = grace_seconds if query.status["isTriggerActive"] else min(idle_seconds, grace_seconds)
        if time.monotonic() - began >= longest:
            break
        time.sleep(_POLL_SECONDS)
    query.stop()


def _last_commit(checkpoint: Path) -> int:
    return max(committed_batches(checkpoint), default=-1)
