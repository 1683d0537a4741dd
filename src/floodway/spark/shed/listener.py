"""From Spark's progress events to the loops: one listener a session, attached when the first shed is applied.

Spark posts an event after every micro-batch, with what `observe` counted. The listener finds the metrics of known
sheds by name, makes a `BatchReport` and hands it to the loop. Nothing raised in here reaches the query.
"""

from __future__ import annotations

import logging
from datetime import datetime
from threading import Lock
from weakref import WeakKeyDictionary, ref

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from typing_extensions import override

from floodway.spark.shed.checkpoints import checkpoint_of, note_checkpoint
from floodway.spark.shed.loop import BatchReport, ShedLoop

log = logging.getLogger(__name__)

_lock = Lock()
_loops: dict[str, ShedLoop] = {}
_listeners: WeakKeyDictionary[SparkSession, ShedListener] = WeakKeyDictionary()


def attach(spark: SparkSession, key: str, loop: ShedLoop) -> None:
    """Let `loop` hear of every query of the Spark session that observes `key`; it replaces an earlier one."""
    with _lock:
        _loops[key] = loop
        if spark not in _listeners:
            listener = ShedListener(spark)
            spark.streams.addListener(listener)
            _listeners[spark] = listener


def metric_name(key: str) -> str:
    """The name of a shed's observation."""
    return f"floodway.{key}"


class ShedListener(StreamingQueryListener):
    """Hands events to loops; Spark calls it from one thread."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = ref(spark)
        self._checkpoints: dict[str, str] = {}
        """By query id, until the first progress tells whether a shed is in the query."""

    @override
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Ask for the checkpoint while the query is there for certain; a shed is known from its first progress on."""
        try:
            spark = self._spark()
            found = None if spark is None else checkpoint_of(spark, str(event.id))
            if found is not None:
                self._checkpoints[str(event.id)] = found
        except Exception:  # whatever Spark raises: an audit can be told the folder
            log.debug("no checkpoint of query %s", event.id, exc_info=True)

    @override
    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        for key, loop in list(_loops.items()):
            if metric_name(key) in progress.observedMetrics:
                try:
                    if checkpoint := self._checkpoints.get(str(progress.id)):
                        note_checkpoint(loop.files, str(progress.id), checkpoint)
                    loop.on_batch(report(progress, key))
                except Exception:
                    log.exception("floodway shed %s could not take in batch %s", key, progress.batchId)

    @override
    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        for loop in list(_loops.values()):
            loop.on_idle(str(event.id))

    @override
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._checkpoints.pop(str(event.id), None)
        for loop in list(_loops.values()):
            loop.on_end(str(event.id))


def report(progress: StreamingQueryProgress, key: str) -> BatchReport:
    """The report of one shed from a progress event."""
    seen = progress.observedMetrics[metric_name(key)].asDict()
    started = datetime.fromisoformat(progress.timestamp)
    return BatchReport(
        query=str(progress.id),
        run=str(progress.runId),
        batch=progress.batchId,
        started_us=round(started.timestamp() * 1e6),
        seconds=progress.batchDuration / 1e3,
        offered=seen["offered"],
        kept=seen["kept"],
        would_keep=seen["would_keep"],
        batch_time_us=seen["batch_time_us"],
        seq=seen["seq"],
        keep_ppm=seen["keep_ppm"],
        mode=seen["mode"],
        arrival_us=seen.get("arrival_us"),
        event_us=seen.get("event_us"),
        utilities=seen.get("utilities"),
        dropped_tuples=seen.get("dropped_tuples") or (),
    )
