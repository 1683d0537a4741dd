"""From Spark's progress events to the loops: one listener a session, attached when the first shed is applied.

A shed has one loop in a process, however often it is applied: pipelines that evaluate their code several times apply it
several times. Spark posts an event after every micro-batch, with what `observe` counted. The listener finds the metrics
of known sheds by name, makes a `BatchReport` and hands it to the loop. Nothing raised in here reaches the query.

A progress is taken as JSON. PySpark's own way from Java asks for every figure of it by itself, and looks through all
jars for a class with every observation: more than a third of a profile's samples of a job with small batches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Event, Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary, ref

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from typing_extensions import override

from floodway.errors import InputError
from floodway.json_text import load_json
from floodway.spark.session.stores import is_connect
from floodway.spark.shed.checkpoints import backlog, checkpoint_of, positions, waiting
from floodway.spark.shed.control_columns import Decided
from floodway.spark.shed.keys.quotas import key_counts
from floodway.spark.shed.loop import ShedLoop
from floodway.spark.shed.report import BatchReport

log = logging.getLogger(__name__)

BEATS = 4
"""Per time to expire: a decision expires when so many were missed."""

LOOK_SECONDS, STEP_SECONDS = 0.25, 0.5
"""How often the clock is looked at between two beats, and by how much it is off when it was set."""

EVER_SECONDS = 60.0
"""For a decision that never expires: then a beat renews nothing, and only looks whether a query is left."""

MODE_SECONDS = 1.0
"""How often the operator's mode is looked at, beside after every batch, and a run's second batch."""

_lock = Lock()
_applied: dict[str, Applied] = {}
_listeners: WeakKeyDictionary[SparkSession, ShedListener] = WeakKeyDictionary()


class Heartbeat:
    """A thread that looks after one loop between its batches while queries run, or until it is stopped.

    It puts the operator's mode in force also while a batch runs, and renews the decision: a query may outlive its
    shed's loop (on Spark Connect the client may die and the query goes on), and a decision that nobody renews expires,
    so that the batches keep everything again (`Entry.until_us`).
    """

    def __init__(self, loop: ShedLoop) -> None:
        self._loop = loop
        self._lock = Lock()
        self._stopped = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin, or begin again for a query that was started after all had ended; while it beats, nothing is done."""
        with self._lock:
            if self._thread is None:
                name = f"floodway-{self._loop.settings.name}"
                self._thread = Thread(target=self._beat, name=name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Renew no more; returns when the thread has ended."""
        self._stopped.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _beat(self) -> None:
        period = (self._loop.settings.expires_seconds or EVER_SECONDS) / BEATS
        while not self._stopped_within(period) and not self._is_over():
            self._loop.look_at_clock()
            self._look()
            self._loop.renew()

    def _look(self) -> None:
        try:
            self._loop.follow_mode()
            self._loop.follow_second()
        except Exception:  # what a store's client raises without words must not end the beats
            log.exception("floodway shed %s could not look at its mode or its batch", self._loop.settings.name)

    def _stopped_within(self, seconds: float) -> bool:
        """Wait for the next beat, which comes at once when the machine's clock is set: a step makes nothing expire."""
        looked = began = time.monotonic()
        began_us = self._loop.clock_us()
        while not self._stopped.wait(min(seconds, LOOK_SECONDS)):
            passed = time.monotonic() - began
            stepped = abs((self._loop.clock_us() - began_us) / 1e6 - passed) > STEP_SECONDS
            if stepped or passed >= seconds:
                return False
            if began + passed - looked >= MODE_SECONDS:
                looked = began + passed
                self._look()
        return True

    def _is_over(self) -> bool:
        """Whether no query is left; one that starts from now on begins anew."""
        with self._lock:
            if self._loop.finished:
                self._thread = None
            return self._thread is None


@dataclass(slots=True)
class Applied:
    """A shed of this process: what was asked of it, as comparable values, and the loop that steers it.

    `on_source` says that all that a source hands over is offered to the shed, wherever it is applied.
    """

    options: tuple[object, ...]
    loop: ShedLoop
    on_source: bool
    heartbeat: Heartbeat


def attach(
    spark: SparkSession, key: str, options: tuple[object, ...], make: Callable[[], ShedLoop], *, on_source: bool
) -> ShedLoop:
    """The loop of the shed `key`, which from now on hears of every query of the session that observes the key.

    The same shed applied again has the same loop. One with other options would write over its decisions: it is refused
    until the queries of the first have ended.
    """
    with _lock:
        known = _applied.get(key)
        if known is None or known.loop.finished:
            loop = make()
            known = _applied[key] = Applied(options, loop, on_source, Heartbeat(loop))
            known.heartbeat.start()
        elif known.options != options:
            name = known.loop.settings.name
            raise InputError(
                f"shed {name!r} is already in use in this process with other options",
                hint="Give each shed a name of its own. To change options, stop its queries (or Python, without any).",
            )
        known.on_source &= on_source
        if spark not in _listeners:
            listener = ShedListener(spark)
            spark.streams.addListener(listener)
            _listeners[spark] = listener
    return known.loop


def _loops() -> list[ShedLoop]:
    with _lock:
        return [applied.loop for applied in _applied.values()]


def metric_name(key: str) -> str:
    """The name of a shed's observation."""
    return f"floodway.{key}"


def offered_name(key: str) -> str:
    """The name of its observation before the drop, where there is one of its own."""
    return f"floodway-offered.{key}"


class ShedListener(StreamingQueryListener):
    """Hands events to loops; Spark calls it from one thread."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = ref(spark)
        if not is_connect(spark):
            java: Any = SparkContext._jvm
            wrapper = java.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
            self._jlistenerobj = wrapper(_JavaListener(self))

    @override
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Ask for the checkpoint while the query is there for certain."""
        checkpoint = None
        try:
            spark = self._spark()
            checkpoint = None if spark is None else checkpoint_of(spark, str(event.id))
        except Exception:  # whatever Spark raises: an audit can be told the folder
            log.debug("no checkpoint of query %s", event.id, exc_info=True)
        with _lock:
            applied = list(_applied.values())
        for shed in applied:
            try:
                shed.loop.on_start(str(event.id), checkpoint, str(event.runId))
                shed.heartbeat.start()
            except Exception:  # one shed that fails must not keep the others from hearing of it
                log.exception("floodway shed %s could not take in a query", shed.loop.settings.name)

    @override
    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Spark Connect alone calls this."""
        self.on_progress(event.progress.json)

    def on_progress(self, text: str) -> None:
        """Hand a progress in JSON to the loops whose sheds are in the query."""
        progress = load_json(text)
        seen = progress.get("observedMetrics", {})
        with _lock:
            applied = list(_applied.items())
        for key, shed in applied:
            try:
                if metric_name(key) not in seen:
                    shed.loop.on_foreign(progress["id"])
                    continue
                shed.loop.on_batch(report(progress, key, on_source=shed.on_source))
            except Exception:
                log.exception("floodway shed %s could not take in batch %s", key, progress["batchId"])

    @override
    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        for loop in _loops():
            loop.on_idle(str(event.id), _micros(event.timestamp))

    @override
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        for loop in _loops():
            loop.on_end(str(event.id), str(event.runId))


class _JavaListener(JStreamingQueryListener):
    """What Java calls: hands on a progress in one text."""

    def __init__(self, listener: ShedListener) -> None:
        super().__init__(listener)
        self._listener = listener

    @override
    def onQueryProgress(self, jevent: Any) -> None:
        self._listener.on_progress(jevent.progress().json())

    class Java:
        implements = JStreamingQueryListener.Java.implements


def report(progress: Mapping[str, Any], key: str, *, on_source: bool) -> BatchReport:
    """The report of one shed from a progress."""
    sources = progress["sources"] if on_source else []
    observed = progress["observedMetrics"]
    seen = observed.get(offered_name(key), {}) | observed[metric_name(key)]
    decided = Decided.read(seen.get("decided"))
    ranges, why = positions(progress["sources"])
    stale, over, behind = (seen.get(name, 0) for name in ("stale", "over", "behind"))
    return BatchReport(
        query=progress["id"],
        run=progress["runId"],
        batch=progress["batchId"],
        started_us=_micros(progress["timestamp"]),
        seconds=progress["durationMs"]["triggerExecution"] / 1e3,  # Spark 3.5 has no batchDuration in its JSON
        offered=seen["offered"],
        kept=seen["kept"],
        batch_time_us=seen.get("batch_time_us"),
        seq=decided.seq,
        keep_ppm=decided.keep_ppm,
        mode=decided.mode,
        stale=stale,
        skipped=stale if decided.enforced else 0,
        over=over,
        by_share=over if decided.enforced else 0,
        key_points=seen.get("key_points"),
        key_counts=key_counts(seen.get("key_counts") or ()),
        key_name=seen.get("key_name"),
        sample=seen.get("sample") or (),
        sampled=seen.get("sampled", 0),
        first=seen.get("first", 0),
        unknown=seen.get("unknown", 0),
        behind=behind,
        passed_over=behind if decided.enforced else 0,
        waiting=waiting(progress["sources"]),
        arrival_us=seen.get("arrival_us"),
        event_us=seen.get("event_us"),
        in_gaps=seen.get("in_gaps", 0),
        utilities=seen.get("utilities"),
        dropped_tuples=seen.get("dropped_tuples") or (),
        read=sources[0]["numInputRows"] if len(sources) == 1 else None,
        backlog=backlog(sources),
        ranges=ranges,
        no_ranges=why,
    )


def _micros(timestamp: str) -> int:
    """Microseconds of the epoch from Spark's `2026-01-01T00:00:00.000Z`."""
    return round(datetime.fromisoformat(timestamp).timestamp() * 1e6)
