"""A year of batches in compressed time: whatever a job keeps stays bounded, and its sums still add up.

A point is a month of one batch a minute on a simulated clock, of a shed, of a run of a network (`months_network.py`)
and of two partners (`months_partners.py`), written by the code that they use: of a shed the ledger, the figures of
batches and a sample of what was dropped. Segments are removed after a week here, not after months. After every month
all start anew and are audited. Both may read as much as they did in the first three months and no more.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Protocol

from floodway.experiments.chaos.months_needs import Needs, grown, needs_of
from floodway.experiments.chaos.months_network import AgeingNetwork
from floodway.experiments.chaos.months_partners import AgeingPartners
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.places import ShedFiles
from floodway.job.status.batches import Batch, BatchLog, BatchReader
from floodway.job.store.line_log import KeptLines
from floodway.job.store.store import LocalStore
from floodway.spark.audit.shed import ShedAudit, audit_shed
from floodway.spark.shed.checkpoints import note_checkpoint

NAME, QUERY = "clicks", "6f0c2c5e-1b2a-4c8e-9d3f-000000000000"
BATCHES_A_MONTH, PERIOD_SECONDS, AT_ONCE = 43_800, 60, 600
FIRST_SECOND = 1_700_000_000
LEDGER_SEGMENTS, SAMPLE_SEGMENTS = 4, 2
SPARK_KEEPS = 100


class Ageing(Protocol):
    """Something whose files outlive its process."""

    what: str

    def live(self) -> None:
        """A month."""

    def judged(self) -> tuple[list[str], Needs]:
        """What does not add up, and what it took to find out."""


def faults(trial: Trial) -> FaultResult:
    """Month after month on the same files."""
    result = FaultResult("months", detail={})
    trial.folder.mkdir(parents=True, exist_ok=True)
    job, rng = AgeingJob(trial.folder, trial.rng("months")), trial.rng("others")
    month_seconds = float(BATCHES_A_MONTH * PERIOD_SECONDS)
    every: list[Ageing] = [
        job,
        AgeingNetwork(trial.folder / "network", rng, batches_a_month=BATCHES_A_MONTH, at_once=AT_ONCE),
        AgeingPartners(trial.folder / "partners", rng, month_seconds=month_seconds),
    ]
    needs: dict[str, list[Needs]] = {one.what: [] for one in every}
    for month in range(trial.points):
        for one in every:
            trial.progress(month / trial.points, f"month {month + 1} of a {one.what}")
            one.live()
            found, needed = one.judged()
            result.differences += [f"{one.what}, month {month + 1}: {text}" for text in found]
            needs[one.what].append(needed)
        result.tried += 1
    for what, months in needs.items():
        result.differences += [f"{what}, {text}" for text in grown(months)]
        result.detail[what] = [[one.start_bytes, one.audit_bytes, one.files, one.disk_bytes] for one in months]
    result.detail["batches"] = job.batches
    return result


class AgeingJob:
    """The files of a shed, and what they must add up to."""

    what = "shed"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._store = LocalStore(folder / "state")
        self._checkpoint = folder / "checkpoint"
        self._rng = rng
        self.batches = 0
        self._offered = self._kept = 0
        (self._checkpoint / "commits").mkdir(parents=True)
        (self._checkpoint / "metadata").write_text(json.dumps({"id": QUERY}), encoding="utf-8")
        note_checkpoint(ShedFiles(self._store), QUERY, str(self._checkpoint))

    def live(self) -> None:
        """A month: started anew, then batch after batch, written some hours at a time."""
        ledger = Ledger(self._store, kept_segments=LEDGER_SEGMENTS)
        figures = BatchLog(self._store, {QUERY: self.batches - 1} if self.batches else {})
        dropped = KeptLines(self._store, "dropped", kept_segments=SAMPLE_SEGMENTS)
        for first in range(self.batches, self.batches + BATCHES_A_MONTH, AT_ONCE):
            last = min(first + AT_ONCE, self.batches + BATCHES_A_MONTH)
            lines = [self._line(number) for number in range(first, last)]
            ledger.append(lines)
            dropped.append({"batch": line.batch, "value": "x" * 40} for line in lines)
            figures.append(self._figures(lines))
        self.batches += BATCHES_A_MONTH
        self._commit()

    def judged(self) -> tuple[list[str], Needs]:
        """What does not add up, and what it took to find out."""
        started: list[tuple[Ledger, Fold, int]] = []
        audits: list[ShedAudit] = []
        now = FIRST_SECOND + self.batches * PERIOD_SECONDS
        needs = needs_of(
            lambda: started.append(self._started()),
            lambda: audits.append(audit_shed(NAME, ShedFiles(self._store), now)),
            self._store.folder,
        )
        (ledger, fold, shown), audit = started[0], audits[0]
        told = [*fold.differences(), *audit.differences]
        sums = (fold.total.offered[NAME], fold.total.kept[NAME], fold.total.dropped.total())
        if sums != (self._offered, self._kept, self._offered - self._kept):
            told.append(f"the sums are {sums}, not {(self._offered, self._kept, self._offered - self._kept)}")
        if ledger.last_batch(QUERY, NAME) != self.batches - 1 or audit.batches != self.batches:
            told.append(f"the ledger ends at {ledger.last_batch(QUERY, NAME)}, the audit has seen {audit.batches}")
        if shown == 0:
            told.append("no figures of batches are left")
        return told, needs

    def _started(self) -> tuple[Ledger, Fold, int]:
        """What a job and its page read when they start: the ledger with its sums, and the figures of batches."""
        ledger = Ledger(self._store, kept_segments=LEDGER_SEGMENTS)
        return ledger, ledger.fold(), len(BatchReader(self._store).advance() or ())

    def _line(self, number: int) -> LedgerLine:
        offered = self._rng.randrange(1000)
        kept = self._rng.randrange(offered + 1)
        self._offered, self._kept = self._offered + offered, self._kept + kept
        second = FIRST_SECOND + number * PERIOD_SECONDS
        return LedgerLine(QUERY, number, NAME, "shedder", offered, kept, offered - kept, time_us=second * 1_000_000)

    def _figures(self, lines: list[LedgerLine]) -> Batch:
        """The figures of some hours as one batch: what matters is how many there are."""
        first, last = lines[0].time_us / 1e6, lines[-1].time_us / 1e6 + PERIOD_SECONDS
        offered, kept = sum(line.offered for line in lines), sum(line.kept for line in lines)
        return Batch(QUERY, lines[-1].batch, first, last, offered, kept, batches=len(lines))

    def _commit(self) -> None:
        """What Spark keeps: the last hundred commits."""
        folder = self._checkpoint / "commits"
        for path in folder.iterdir():
            path.unlink()
        for number in range(self.batches - SPARK_KEEPS, self.batches):
            (folder / str(number)).write_text("v1\n{}", encoding="utf-8")
