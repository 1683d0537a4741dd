"""A shed that drops nothing (`lossless=True`): how much a batch may take, how far behind it is, and until when.

A Floodway source that has the option `decision` reads `source-limit/decision.json` in the shed's state when it cuts a
batch, and takes no more than the limit there; the rest waits in its log:

    limit = C P / (1 - f)      P = T / 1.5

C is the capacity in tuples per second of batches of P, T the target, f the share that is skipped for its age or number
and costs next to nothing. Any other source keeps the limit that it was started with. Wherever a source tells what it
holds back,

    seconds = waiting / (C - r)      r: tuples per second that arrive

is when nothing waits any more. No Spark in here.
"""

from __future__ import annotations

import shutil
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

from floodway.control.base import BATCH_SHARE
from floodway.control.loop import RATE_BATCHES, FinishedBatch, KeepDecision
from floodway.job.decision import DecisionError, JobDecision, Mode, StreamDecision, named, read_decision, write_decision
from floodway.job.places import ShedFiles
from floodway.job.status.parts import BehindPart
from floodway.job.store.store import LocalStore, make_folder
from floodway.spark.shed.report import BatchReport, Warnings
from floodway.spark.shed.settings import ShedSettings

DECISION = "source-limit/decision.json"
LEAST_FRESH = 0.05
UNSEEN_BATCHES = 3
"""Batches in a row beyond the limit before that is said: two may have been cut before it was written."""

UNSEEN = (
    'batches take more tuples than fit into the target: give the Floodway source .option("decision", shed.decision)'
)


def decision_path(files: ShedFiles) -> Path:
    """Where a source finds the limit; InputError for a state that is not on a disk of this machine."""
    return files.folder / DECISION


def waited_nowhere(batch: FinishedBatch) -> FinishedBatch:
    """The batch as a controller is to see it: how long tuples waited for it no keep can shorten."""
    return replace(batch, arrival_seconds=None, backlog=None)


def source_limit_of(settings: ShedSettings, files: ShedFiles) -> SourceLimit | None:
    """Of a shed that drops nothing; None for any other."""
    max_age = None if settings.max_age_us is None else settings.max_age_us / 1e6
    return SourceLimit(files, settings.mean_seconds, max_age) if settings.lossless else None


@dataclass
class SourceLimit:
    """The limit of one shed's source. `mean_seconds` is the mean latency asked for."""

    files: ShedFiles
    mean_seconds: float
    max_age_seconds: float | None = None
    limit: int | None = None
    _left: tuple[int, int] | None = None
    """When the last batch was cut, in microseconds, and what it left."""
    _arrivals: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RATE_BATCHES))
    _written: JobDecision | None = None
    _unseen: int = 0

    def __post_init__(self) -> None:
        """Go on with the limit of the last run: the first batch after downtime is the one that would take too much."""
        if isinstance(self.files.store, LocalStore):
            try:
                self._written = read_decision(decision_path(self.files))
            except DecisionError:  # it is written anew with the first batch
                return
            self.limit = max((one.limit for one in self._written.streams.values() if one.limit), default=None)

    def take(
        self, report: BatchReport, decided: KeepDecision | None, mode: Mode, warnings: Warnings
    ) -> BehindPart | None:
        """Take in a batch; how far behind the job is, None where its source does not tell."""
        self._look(report, mode, warnings)
        capacity = None if decided is None else decided.capacity
        if capacity:
            fresh = 1.0 - (report.skipped + report.passed_over) / max(report.offered, 1)
            self.limit = max(1, round(capacity * self.mean_seconds / BATCH_SHARE / max(fresh, LEAST_FRESH)))
        streams = {one.topic for one in report.ranges if one.floodway}
        if streams and isinstance(self.files.store, LocalStore):
            self._write(JobDecision(mode=mode, streams=dict.fromkeys(streams, StreamDecision(limit=self.limit))))
        found = self._behind(report, capacity)
        return found if found is None or mode != "observe" else replace(found, would_take=self.limit)

    def follow(self, mode: Mode) -> None:
        """The limit belongs to mode enforce, also while nothing arrives."""
        if self._written is not None and self._written.streams and self._written.mode != mode:
            self._write(JobDecision(mode=mode, streams=self._written.streams))

    def _write(self, decision: JobDecision) -> None:
        path = decision_path(self.files)
        make_folder(path.parent)
        write_decision(path, named(decision))
        self._written = decision
        for notes in path.parent.iterdir():  # of the source's tasks, for jobs that account for single records
            if notes.is_dir():
                shutil.rmtree(notes, ignore_errors=True)

    def _look(self, report: BatchReport, mode: Mode, warnings: Warnings) -> None:
        """Whether the source keeps to the limit that was written before."""
        is_over = self._written is not None and self.limit is not None and report.offered > 1.5 * self.limit
        self._unseen = self._unseen + 1 if is_over and mode == "enforce" else 0
        warnings.say_only(UNSEEN if self._unseen >= UNSEEN_BATCHES else None, [UNSEEN])

    def _behind(self, report: BatchReport, capacity: float | None) -> BehindPart | None:
        if report.backlog is None:
            return None
        before, self._left = self._left, (report.started_us, report.backlog)
        if before is not None and report.started_us > before[0]:
            came = max(0, report.offered + report.backlog - before[1])
            self._arrivals.append((came, (report.started_us - before[0]) / 1e6))
        seconds = sum(seconds for _, seconds in self._arrivals)
        rate = sum(came for came, _ in self._arrivals) / seconds if seconds else 0.0
        waiting = report.backlog + round(rate * report.seconds)  # and what came while the batch ran
        room = (capacity or 0.0) - rate
        return BehindPart(waiting, waiting / room if room > 0.0 else None, self.max_age_seconds)
