"""A year of batches in compressed time: whatever a job keeps stays bounded, and its sums still add up.

A point is a month of one batch a minute on a simulated clock, written by the code that jobs use: the ledger, the
figures of batches and a sample of what was dropped. Segments are removed after a week here, not after months. After
every month the job starts anew and is audited. Both may read as much as they did in the third month and no more: what
is counted are bytes that this process asked the system for, and files, not seconds.
"""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.shed_state import ShedFiles
from floodway.job.status.batches import Batch, BatchLog, BatchReader
from floodway.job.store.line_log import KeptLines
from floodway.job.store.store import LocalStore
from floodway.spark.audit.shed import audit_shed
from floodway.spark.shed.checkpoints import note_checkpoint

NAME, QUERY = "clicks", "6f0c2c5e-1b2a-4c8e-9d3f-000000000000"
BATCHES_A_MONTH, PERIOD_SECONDS, AT_ONCE = 43_800, 60, 600
FIRST_SECOND = 1_700_000_000
LEDGER_SEGMENTS, SAMPLE_SEGMENTS = 4, 2
SPARK_KEEPS = 100
SETTLED_MONTHS = 3
"""By then every kind of file has been rotated."""
SLACK = 1.5
"""A start that falls behind the end of a segment reads more than one that falls after a new one was begun."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a start, an audit and the folder needed at the end of a month."""

    start_bytes: int
    audit_bytes: int
    memory_bytes: int
    files: int
    disk_bytes: int


def faults(trial: Trial) -> FaultResult:
    """Month after month on one state."""
    result = FaultResult("months", detail={"months": []})
    trial.folder.mkdir(parents=True, exist_ok=True)
    job = AgeingJob(trial.folder, trial.rng("months"))
    needs: list[Needs] = []
    for month in range(trial.points):
        trial.progress(month / trial.points, f"month {month + 1}, batch {job.batches}")
        job.live()
        found, needed = job.judged()
        result.differences += [f"month {month + 1}: {text}" for text in found]
        needs.append(needed)
        result.tried += 1
    result.differences += grown(needs)
    result.detail["months"] = [[one.start_bytes, one.audit_bytes, one.files, one.disk_bytes] for one in needs]
    result.detail["batches"] = job.batches
    return result


def grown(needs: list[Needs]) -> list[str]:
    """What a later month needs more of than the first months did.

    >>> grown([Needs(1, 1, 1, 1, 1)] * 3 + [Needs(9, 1, 1, 1, 1)])
    ['month 4: start_bytes is 9, and was at most 1 in the first 3']
    """
    told = []
    for name in Needs.__slots__:
        most = max((getattr(one, name) for one in needs[:SETTLED_MONTHS]), default=0)
        told += [
            f"month {month}: {name} is {getattr(one, name)}, and was at most {most} in the first {SETTLED_MONTHS}"
            for month, one in enumerate(needs[SETTLED_MONTHS:], SETTLED_MONTHS + 1)
            if getattr(one, name) > SLACK * most
        ]
    return told


class AgeingJob:
    """The files of a shed, and what they must add up to."""

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
        tracemalloc.start()
        (ledger, fold, shown), start_bytes = _read_by(self._started)
        memory_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        now = FIRST_SECOND + self.batches * PERIOD_SECONDS
        audit, audit_bytes = _read_by(lambda: audit_shed(NAME, ShedFiles(self._store), now))
        told = [*fold.differences(), *audit.differences]
        sums = (fold.total.offered[NAME], fold.total.kept[NAME], fold.total.dropped.total())
        if sums != (self._offered, self._kept, self._offered - self._kept):
            told.append(f"the sums are {sums}, not {(self._offered, self._kept, self._offered - self._kept)}")
        if ledger.last_batch(QUERY, NAME) != self.batches - 1 or audit.batches != self.batches:
            told.append(f"the ledger ends at {ledger.last_batch(QUERY, NAME)}, the audit has seen {audit.batches}")
        if shown == 0:
            told.append("no figures of batches are left")
        files = [path for path in self._store.folder.rglob("*") if path.is_file()]
        disk_bytes = sum(path.stat().st_size for path in files)
        return told, Needs(start_bytes, audit_bytes, memory_bytes, len(files), disk_bytes)

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


def _read_by(work: Callable[[], Result]) -> tuple[Result, int]:
    """What a function gives, and the bytes that it made this process read."""
    before = _bytes_read()
    found = work()
    return found, _bytes_read() - before


def _bytes_read() -> int:
    """Asked of the system by this process so far, from the cache of the disk or not."""
    line = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()[0]
    return int(line.removeprefix("rchar: "))
