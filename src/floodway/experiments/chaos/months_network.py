"""The files of a run of a network that grows old: a log with its segments and tags, plans, ledger and figures.

A batch a minute is accounted for by itself; an append to the log stands for an hour of batches, so that a year takes
minutes. A tag that the log still holds is appended again now and then, as after a crash, and must change nothing.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from floodway.agent.loop.plan_book import PlanBook
from floodway.experiments.chaos.months_needs import Needs, needs_of
from floodway.job.decision import JobDecision, StreamDecision, named
from floodway.job.ledger.audit_point import open_ledger
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.status.batches import Batch, BatchLog, BatchReader
from floodway.job.store.store import LocalStore
from floodway.spark.log import LogReader, LogWriter, Retention, create_log

STREAM, SINK, QUERY = "clicks", "out", "A.main@6f0c2c5e1b2a"
LEDGER_SEGMENTS, PLAN_SEGMENTS, PARTS, ROWS = 4, 2, 10, 100
RETENTION = Retention(max_bytes=1 << 18)
FIRST_SECOND = 1_700_000_000


class AgeingNetwork:
    """One stream that is shed, one sink that is an embedded log."""

    what = "network"

    def __init__(self, folder: Path, rng: random.Random, *, batches_a_month: int, at_once: int) -> None:
        self._store = LocalStore(folder / "state")
        self._log = self._store.folder / "out"
        self._rng = rng
        self._batches_a_month, self._at_once = batches_a_month, at_once
        self._batches = self._appends = self._offered = self._kept = 0
        create_log(self._log, "id bigint")

    def live(self) -> None:
        """A month: started anew, then batch after batch, written some hours at a time."""
        ledger = Ledger(self._store, kept_segments=LEDGER_SEGMENTS)
        figures = BatchLog(self._store, {QUERY: self._batches - 1} if self._batches else {})
        plans = self._plans()
        with LogWriter(self._log, retention=RETENTION, sync=False, compact_every=16) as writer:
            end = self._batches + self._batches_a_month
            while self._batches < end:
                last = min(self._batches + self._at_once, end)
                lines = [line for number in range(self._batches, last) for line in self._lines(number, plans)]
                plans.cut(line.plan for line in lines if line.plan)
                ledger.append(lines)
                figures.append(_figures(lines))
                for _ in range(PARTS):
                    self._append(writer)
                self._batches = last

    def judged(self) -> tuple[list[str], Needs]:
        """What does not add up, and what it took to find out."""
        audits: list[list[str]] = []
        needs = needs_of(self._started, lambda: audits.append(self._audited()), self._store.folder)
        return audits[0], needs

    def _started(self) -> object:
        """What a run, its sink and its page read when they start."""
        with LogWriter(self._log, sync=False) as writer:
            end = writer.end()
        figures, plans = BatchReader(self._store).advance(), self._plans()
        return end, Ledger(self._store, kept_segments=LEDGER_SEGMENTS).fold(), figures, plans

    def _audited(self) -> list[str]:
        audited = open_ledger(self._store, full=False)
        told = [*audited.differences, *audited.close([])]
        total = audited.total(QUERY, STREAM)
        if (total.offered, audited.total(QUERY, SINK).delivered) != (self._offered, self._kept):
            told.append(f"the audit has counted {total} tuples, not {self._offered} and {self._kept}")
        end = LogReader(self._log).end_positions()[0]
        if end != self._appends * ROWS:
            told.append(f"the log ends at {end}, not at {self._appends * ROWS}")
        return told

    def _plans(self) -> PlanBook:
        return PlanBook(self._store.folder, kept_segments=PLAN_SEGMENTS)

    def _append(self, writer: LogWriter) -> None:
        rows = pa.table({"id": pa.array(range(ROWS), pa.int64())})
        writer.append(rows, tag=f"{QUERY}:{self._appends}:0")
        self._appends += 1
        recent = max(0, self._appends - 1 - self._rng.randrange(50))
        writer.append(rows, tag=f"{QUERY}:{recent}:0")

    def _lines(self, number: int, plans: PlanBook) -> list[LedgerLine]:
        offered = self._rng.randrange(1000)
        kept = self._rng.randrange(offered + 1)
        self._offered, self._kept = self._offered + offered, self._kept + kept
        time_us = (FIRST_SECOND + 60 * number) * 1_000_000
        keep = {STREAM: StreamDecision(self._rng.randrange(1_000_000))}
        decision = named(JobDecision(mode="enforce", streams=keep, issued_us=time_us))
        plans.issued(decision)
        shed = LedgerLine(QUERY, number, STREAM, Reason.SHEDDER.value, offered, kept, offered - kept, decision.plan)
        sunk = LedgerLine(QUERY, number, SINK, Reason.DELIVERED.value, kept, kept, 0)
        return [replace(line, time_us=time_us) for line in (shed, sunk)]


def _figures(lines: list[LedgerLine]) -> Batch:
    """The figures of some hours as one batch: what matters is how many there are."""
    first, last = FIRST_SECOND + 60.0 * lines[0].batch, FIRST_SECOND + 60.0 * lines[-1].batch + 60.0
    return Batch(QUERY, lines[-1].batch, first, last, batches=len(lines))
