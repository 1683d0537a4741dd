"""The loop of one shed: after every micro-batch, from what was counted to the decision for those to come.

No Spark in here: a `BatchReport` comes in, files go out. In this order, so that a full disk costs as little as
possible: the control entry (and the window epochs), the status, the ledger line. A step that fails is logged and
counted, the next one still runs, and the decision in force stays.
What the keep is to be is decided in `control/loop.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import TYPE_CHECKING

from floodway.control.loop import Efficiency, KeepLoop, Patience
from floodway.errors import FloodwayError
from floodway.job.decision import Mode, OperatorMode
from floodway.job.ledger.facts import BatchFacts, FactsLog
from floodway.job.ledger.ledger import Ledger
from floodway.job.places import ShedFiles
from floodway.job.status.batches import Batch, BatchLog, Latency
from floodway.job.status.figures import read_figures
from floodway.job.status.parts import executors_more
from floodway.job.status.status import Place, Status
from floodway.job.store.lease import hold
from floodway.job.store.line_log import KeptLines, Unwritten
from floodway.spark.shed.accounts import all_facts, batch_lines, missed_lines, warnings_of, with_decision
from floodway.spark.shed.checkpoints import StateFound, earlier_batches, note_checkpoint, noted_checkpoints
from floodway.spark.shed.chooser import Chooser, QueryMemory, first_follow, follow_second, source_limit_of
from floodway.spark.shed.control_file import ControlTable, DecisionWatch
from floodway.spark.shed.control_table import Entry, EntryBudget
from floodway.spark.shed.open_batches import OpenJournal, open_checkpoint
from floodway.spark.shed.report import BatchReport, Warnings, batch_of, latencies_of, reason_of, shed_part
from floodway.spark.shed.state_copies import StateCheck
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.job.status.parts import AccuracyPart
    from floodway.spark.shed.chooser import ShedSettings
    from floodway.spark.shed.executors import ExecutorRequests
    from floodway.spark.shed.keys.key_shares import KeyShares
    from floodway.spark.shed.server_clock import ServerClock
    from floodway.spark.shed.window_drop import WindowSteering

log = logging.getLogger(__name__)

DEADBAND = 0.01
"""Relative change of keep below which the entry in force stays: the history is for decisions, not for noise."""


@dataclass
class ShedLoop:
    """The running shed; `clock_us` is the clock of its batches in microseconds of the epoch."""

    settings: ShedSettings
    files: ShedFiles
    clock_us: Callable[[], int]
    open_journal: OpenJournal = open_checkpoint
    keys: KeyShares | None = None
    """Shares by key, if the settings ask for them."""
    executors: ExecutorRequests | None = None
    """Who asks for more of them, if the settings say so."""
    present: Callable[[], int | None] = lambda: None
    """How many executors there are; None where that says nothing."""
    server: ServerClock | None = None
    """`clock_us`, where that is the clock of another machine."""
    errors: int = 0
    _lock: RLock = field(default_factory=RLock)
    _queries: dict[str, QueryMemory] = field(default_factory=dict)
    _running: dict[str, str | None] = field(default_factory=dict)
    """Queries that have not ended, with their runs: those that the shed is in, and those not known to be others."""
    _ended: bool = False
    windows: WindowSteering | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.files = ShedFiles(hold(self.files.store))
        self._operator = OperatorMode(self.files.store, self.settings.mode, f"shed {self.settings.name}")
        self.warnings = Warnings(self.settings.name)
        opened_us = self.clock_us()
        self.ledger = Ledger(self.files.store)
        self.figures, last = read_figures(self.files.store)
        self.batches = BatchLog(self.files.store, last)
        self.facts = FactsLog(self.files.store)
        self.dropped = KeptLines(self.files.store, "dropped")
        self._lines = Unwritten(self.ledger.append)
        self._facts = Unwritten[BatchFacts](lambda facts: self.facts.add(*facts))
        self._status = self.files.read_status()
        self._efficiency = Efficiency(None if self._status is None else self._status.executor_efficiency)
        self.control = ControlTable(
            self.files.store,
            self.clock_us,
            self._first(),
            noted_checkpoints(self.files),
            self.open_journal,
            None if self.settings.expires_seconds is None else round(self.settings.expires_seconds * 1e6),
            lambda query: self.ledger.last_batch(query, self.settings.name),
            self._doubt_us,
        )
        if self._status is not None and self._status.shed is not None:
            self.control.late_writes = self._status.shed.late_writes
        self._watch = DecisionWatch(self.control, self.warnings)
        self._state = StateCheck(self.files, self.settings.name, self._operator, self.control, self.warnings, opened_us)
        self._copies = self._state.copies
        self.control.copy = lambda raw: self._guarded("copying the decision", lambda: self._copies.write(raw))
        self._found = StateFound(self.settings.name, self.files.store.uri, not self.control.resumed, opened_us)
        self._state.look(self.control.open_batches.journals())
        self._begin()

    def _begin(self) -> None:
        """With the control table that there is, and what the code says."""
        before, first = self.control.latest, self._first()
        accuracy, quotas = self.settings.accuracy, before.quotas
        if quotas is None or not (self.keys if accuracy is None else accuracy) or bool(accuracy) != bool(quotas.sizes):
            quotas = None  # those of an option that was taken out of the code, or changed
        skip = None if self.settings.skip_when_lag is None else before.skip
        self.control.put(replace(before, mode=first.mode, salt=first.salt, quotas=quotas, skip=skip))
        self._chooser = Chooser(self.settings, self.keys, skip, source_limit_of(self.settings, self.files))
        self.windows = None
        if self.settings.window is not None:
            from floodway.spark.shed.window_drop import WindowSteering

            seen_us = self._status.shed.seen_us if self._status and self._status.shed else None
            unknown = self._state.was_older or (self.control.resumed and self._status is None)
            unsure = self.clock_us() if unknown else None
            self.windows = WindowSteering(self.settings.window, self.control, seen_us, unsure_until_us=unsure)

    @property
    def finished(self) -> bool:
        """Whether the queries that the shed was in have all ended."""
        with self._lock:
            return self._ended and not self._running

    def serve(self, reader: Callable[[bytes], None]) -> None:
        """Give the control table to a reader beside the file, from now on."""
        with self._lock:
            self.control.also_to(reader)

    def on_start(self, query: str, checkpoint: str | None, run: str | None = None) -> None:
        """A query has started; whether the shed is in it shows in its first progress."""
        with self._lock:
            self._running[query] = run
            self.control.open_batches.started(query, checkpoint, self.clock_us() - self._doubt_us())
            if checkpoint is not None:
                self._guarded("noting a checkpoint", lambda: note_checkpoint(self.files, query, checkpoint))
                self._guarded("reading the checkpoint", lambda: self._restore(query))
            self.renew()

    def _restore(self, query: str) -> None:
        """Begin a state that was lost, or is an older one, with what the query's checkpoint holds of it."""
        checkpoint = self.control.open_batches.journal(query)
        if checkpoint is None:
            return
        try:
            self._state.started(query, checkpoint)
        finally:
            if not self._state.in_use:
                self._begin()

    def renew(self) -> None:
        """Let the decision hold for longer, while there is a query that may use it; the status says until when."""
        with self._lock:
            if self._running:
                self._guarded("renewing the decision", self.control.renew)
                if self._status is not None:
                    mode, until = self.control.latest.mode, self._decision_until()
                    renewed = replace(self._status, mode=mode, decision_until=until, warnings=self._said())
                    self._status = renewed
                    self._guarded("writing the status", lambda: self.files.write_status(renewed))

    def look_at_clock(self, ended_us: int | None = None) -> None:
        """See whether the clock of batches was set; not under the lock, as another machine is asked."""
        if self.server is not None:
            server = self.server
            self._guarded("asking for the server's time", lambda: server.look(ended_us))

    def _doubt_us(self) -> int:
        return 0 if self.server is None else self.server.doubt_us

    def follow_mode(self) -> None:
        """Follow the operator's mode also while a batch runs: the next one begins before this one is reported."""
        if self._running and self._mode() != self.control.latest.mode:
            with self._lock:
                self._guarded("changing the mode", lambda: self._put(self._keep_ppm()))
                self.renew()

    def follow_second(self) -> None:
        """Let the third batch of a run follow the second one, which is running, before anything of that is reported."""
        with self._lock:
            journal, undecided = self.control.open_batches.journal, self.control.latest.keep_ppm == PPM
            if undecided and follow_second(self._queries.values(), journal, self.settings, self.clock_us()):
                self._put(self._keep_ppm())

    def on_foreign(self, query: str) -> None:
        """A query has progressed, and the shed is not in it; or this progress lacks its counts."""
        with self._lock:
            known = query in self._queries or self.ledger.last_batch(query, self.settings.name) is not None
            if query in self._running and not known:
                del self._running[query]
                self.control.open_batches.forget(query)
                self._guarded("forgetting a checkpoint", lambda: note_checkpoint(self.files, query, None))

    def on_batch(self, report: BatchReport) -> None:
        """Take in one micro-batch."""
        self.look_at_clock(report.ended_us)
        with self._lock:
            self._running.setdefault(report.query, report.run)
            self.control.open_batches.reported(report.query, report.batch, report.started_us)
            query = self._query(report)
            # Before a new decision: the table has the batch's own until then.
            checkpoint = self.control.open_batches.journal(report.query)
            report = with_decision(report, self.control.table, checkpoint)
            missed = missed_lines(report, self.settings, query.last_batch, self.clock_us())
            facts = all_facts(
                *(report, query.last_batch, checkpoint, self.settings, self.control.table, self.clock_us()),
                vouched=self._state.vouches(report.query),
            )
            self._state.reported(report.query)
            seen = self._chooser.take(report, self.control.table.at(report.batch_time_us or report.started_us))
            self._guarded("writing the control table again", lambda: self._watch.look(report))
            self._guarded("deciding", lambda: self._decide(query, seen))
            if self.windows is not None:
                windows = self.windows
                if missed:
                    windows.lost_sight(self.clock_us())
                windows.saw(report.event_us)
                self._guarded("changing window epochs", lambda: windows.steer(self._window_keep()))
            for text in warnings_of(report):
                self.warnings.say(text)
            if self.keys is not None:
                self.warnings.say_only(self.keys.warning, self.keys.warnings)
            lines = [*missed, *batch_lines(report, self.settings, self.control.latest.mode, self.clock_us())]
            batch = self._batch(query, report)
            self.figures.add(lines, batch)
            # Before the ledger: a batch on it has its event times on record, and what it dropped can be found.
            self._guarded("writing the status", lambda: self._report(query, report, batch))
            self._guarded("writing the facts", lambda: self._facts.write(facts))
            self._guarded("writing the ledger", lambda: self._lines.write(lines))
            self._guarded("writing the batch", lambda: self.batches.append(batch))
            self._guarded("writing the side output", lambda: self._save_dropped(report))
            query.last_batch = report.batch

    def on_idle(self, query: str, time_us: int) -> None:
        """Follow the operator's mode also while nothing arrives; a pause is not a long batch."""
        with self._lock:
            self.control.open_batches.idle(query, time_us)
            known = self._queries.get(query)
            if known is not None:
                known.follow = None
                self._guarded("changing the mode", lambda: self._put(self._keep_ppm()))

    def on_end(self, query: str, run: str | None = None) -> None:
        """A query has stopped: it no longer has a say. Spark tells it late: the next run may have begun."""
        with self._lock:
            if run is None or self._running.get(query) in (None, run):
                self._ended |= query in self._running
                self._running.pop(query, None)
                self._queries.pop(query, None)
                self._copies.end(query)
                self.control.open_batches.ended(query, self.clock_us())

    def _query(self, report: BatchReport) -> QueryMemory:
        known = self._queries.get(report.query)
        if known is None or known.run != report.run:
            last = self.ledger.last_batch(report.query, self.settings.name)
            before = None if self._status is None or self._status.shed is None else self._status.shed.controller
            loop = KeepLoop.resumed(self.settings.controller, before)
            patience = Patience(self.settings.shed_after_seconds)
            known = self._queries[report.query] = QueryMemory(report.run, loop, last, patience)
            self._guarded("reading the checkpoint", lambda: self._look_back(known, report))
        return known

    def _look_back(self, query: QueryMemory, report: BatchReport) -> None:
        checkpoint = self.control.open_batches.journal(report.query)
        if checkpoint is not None:
            self._copies.begin(report.query, checkpoint, self.control.table.encode())
        found = earlier_batches(report, checkpoint, self._found, self._mode(), restored=self.control.resumed)
        if query.last_batch is None:
            query.last_batch = None if found.since is None else found.since - 1
            for text in found.words:
                self.warnings.say(text)

    def _decision_until(self) -> float | None:
        until_us = self.control.latest.until_us
        return None if until_us is None else until_us / 1e6

    def _first(self) -> Entry:
        """What the code says."""
        return Entry(0, 0, salt=self.settings.salt, mode=self._mode())

    def _mode(self) -> Mode:
        return self._operator.look()

    def _decide(self, query: QueryMemory, report: BatchReport) -> None:
        latest = self.control.latest
        decided = query.loop.step(
            report.finished(lossless=self.settings.lossless),
            keep_in_force=latest.keep_at(report.ended_us) / PPM if latest.mode == "enforce" else 1.0,
            target_seconds=self.settings.target_seconds * self.settings.headroom,
        )
        query.latency_seconds = None if decided is None else decided.latency_seconds
        if report.arrival_us is not None and (decided is None or self.settings.lossless):
            query.latency_seconds = (report.ended_us - report.arrival_us) / 1e6
        if decided is not None:
            query.take(decided, report.ended_us, self.settings)
            self._efficiency.take(self.present(), decided.capacity)
            if self.executors is not None:
                self.executors.take(decided.capacity_needed, report.ended_us / 1e6, self._efficiency.measured)
        elif query.decided is None:
            query.first, query.follow = report, first_follow(report, self.settings, latest)
        self._put(self._keep_ppm())

    def _keep_ppm(self) -> int:
        """What the query in the greatest need asks for; the keep in force while nobody asks."""
        asked = [query.keep_ppm for query in self._queries.values() if query.keep_ppm is not None]
        return min(asked, default=self.control.latest.keep_ppm)

    def _follow(self, keep_ppm: int) -> EntryBudget | None:
        """That of the query which asked for this keep, or else of one that has not asked for any yet."""
        queries = [query for asked in (keep_ppm, None) for query in self._queries.values() if query.keep_ppm == asked]
        return queries[0].follow if queries else None

    def _window_keep(self) -> int:
        return self._keep_ppm() if self._mode() == "enforce" else PPM

    def _put(self, keep_ppm: int) -> None:
        latest, mode = self.control.latest, self._mode()
        follow = self._follow(keep_ppm)
        if mode == "off":
            keep_ppm, follow = PPM, None
        elif follow is None and abs(keep_ppm - latest.keep_ppm) <= DEADBAND * latest.keep_ppm and keep_ppm < PPM:
            keep_ppm = latest.keep_ppm
        self.control.put(self._chooser.completed(replace(latest, keep_ppm=keep_ppm, mode=mode).following(follow)))

    def _save_dropped(self, report: BatchReport) -> None:
        place = {"query": report.query, "batch": report.batch}
        if report.dropped_tuples:
            self.dropped.append({**place, "tuple": text} for text in report.dropped_tuples)

    def _batch(self, query: QueryMemory, report: BatchReport) -> Batch:
        gap = 0.0 if query.started_us is None else (report.started_us - query.started_us) / 1e6
        query.started_us = report.started_us
        mode = self.control.latest.mode
        query.behind = self._chooser.look_behind(report, query.decided, self._mode(), self.warnings)
        reason = reason_of(query, mode, self.settings, report, self._accuracy(query))
        return batch_of(report, mode, reason, latencies_of(query.latency_seconds, gap, report.kept))

    def _accuracy(self, query: QueryMemory) -> AccuracyPart | None:
        groups = self._chooser.groups
        return None if groups is None else groups.part(query.latency_seconds, self.settings.target_seconds)

    def _report(self, query: QueryMemory, report: BatchReport, batch: Batch) -> None:
        latest, decided, efficiency = self.control.latest, query.decided, self._efficiency.measured
        control, needed = (None, None) if decided is None else (decided.control, decided.capacity_needed)
        keep, seen_us = latest.keep_ppm / PPM, None if self.windows is None else self.windows.seen_us
        told = Status(
            name=self.settings.name,
            kind="shed",
            mode=latest.mode,
            time=self.clock_us() / 1e6,
            latency=Latency(target=self.settings.target_seconds),
            keep=keep,
            decision_seen=self._watch.seen,
            decision_until=self._decision_until(),
            reason=batch.reason,
            errors=self.errors + self._operator.errors,
            warnings=self._said(),
            unreachable=control is not None and control.unreachable,
            floor_seconds=None if control is None else control.floor_seconds,
            capacity_needed=needed,
            executors_more=executors_more(self.present(), needed, efficiency),
            executor_efficiency=efficiency,
            accuracy=self._accuracy(query),
            behind=query.behind,
            keys=() if self.keys is None else self.keys.shown(latest.quotas),
            would_drop_tuples=report.would_drop,
            places={self.settings.name: Place(keep)},
            shed=shed_part(report, query.loop.snapshot(), seen_us, self.control.late_writes),
        )
        self._status = self.figures.refreshed(told)
        self.files.write_status(self._status)

    def _said(self) -> tuple[str, ...]:
        return (*self._operator.warnings, *self.control.warnings, *self.warnings)

    def _guarded(self, doing: str, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:  # also a fault of the user's own law
            # The stream is worth more than its accounts: say it, count it, go on.
            self.errors += 1
            unforeseen = not isinstance(error, (FloodwayError, OSError, ValueError))
            log.error("floodway shed %s, %s: %s", self.settings.name, doing, error, exc_info=unforeseen)
