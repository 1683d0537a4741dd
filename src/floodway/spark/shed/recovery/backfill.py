"""Processing dropped tuples in quiet times: the shell of `job/ledger/backfill.py`, which reads clocks and runs Spark.

A step goes like this: its batches are noted (`backfill/NAME.json`), their dropped tuples are read again and given to
the user's function, the counts go to the ledger, and the note is removed. Killed anywhere, the next start finds the
note and repeats that step under the same name, or finds its lines in the ledger and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyspark.sql import DataFrame

from floodway.errors import FloodwayError
from floodway.job.ledger.backfill import (
    BackfillPace,
    BackfillStep,
    Batch,
    Live,
    Recount,
    counted_lines,
    done_batches,
    next_step,
    noted_batches,
    recovered_lines,
    step_note,
)
from floodway.job.ledger.facts import BatchFacts
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger import Ledger, LedgerTail
from floodway.job.ledger.ledger_line import LedgerLine
from floodway.job.store.store import Store
from floodway.spark.session.session import explain

POLL_SECONDS = 1.0

Run = Callable[[DataFrame, str], None]
"""What a user does with the dropped tuples of a step, given the step's name: write them where a repeat overwrites."""


class BackfillError(FloodwayError):
    """A backfill that stopped by itself."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a backfill is, in tuples; `waiting` says why it waits, empty while it works."""

    dropped: int
    recovered: int
    lost: int
    waiting: str = ""

    @property
    def remaining(self) -> int:
        """Tuples that are neither made good nor lost."""
        return self.dropped - self.recovered - self.lost


class DroppedSource(Protocol):
    """How dropped tuples are read again: those of a shed (`recover.py`) or of a stream in a network (`streams.py`)."""

    @property
    def store(self) -> Store:
        """The state of the job."""

    def check(self, name: str, since_us: int | None) -> None:
        """InputError where it is not known what of the drops since then was made good at this place."""

    def facts(self, since_us: int | None = None, until_us: int | None = None) -> list[BatchFacts]:
        """The batches of which something may be missing, oldest first."""

    def frame(self, facts: Sequence[BatchFacts]) -> DataFrame:
        """What is missing of these batches."""

    def counts(self, facts: Sequence[BatchFacts], frame: DataFrame) -> list[int]:
        """How many dropped tuples of each batch came back."""

    def account(self, facts: BatchFacts) -> Recount | None:
        """What a batch that was not counted was offered and dropped; None if that cannot be told any more."""

    def shown(self, frame: DataFrame) -> DataFrame:
        """What a user's function is given."""


@dataclass
class Backfill:
    """One backfill of a shed, or of one stream of a network; only one runs at a time.

    `name` is the place in the ledger, `live` tells how the live job is.
    """

    name: str
    recovery: DroppedSource
    run: Run
    live: Callable[[], Live]
    since_us: int | None = None
    until_us: int | None = None
    clock_us: Callable[[], int] = lambda: time.time_ns() // 1000
    sleep: Callable[[float], None] = time.sleep
    pace: BackfillPace = field(default_factory=BackfillPace)

    def __post_init__(self) -> None:
        self.recovery.check(self.name, self.since_us)
        self._store = self.recovery.store
        self._ledger = Ledger(self._store)
        self._tail = LedgerTail(self._store)
        self._lines: dict[Batch, LedgerLine] = {}
        """What the ledger says of the batches that are done."""
        self._facts = self.recovery.facts(self.since_us, self.until_us)

    @property
    def _note(self) -> str:
        return f"backfill/{self.name}.json"

    def progress(self, waiting: str = "") -> Progress:
        """How far it is, by the ledger; a batch whose line it has removed counts as recovered."""
        self._lines |= done_batches(self._tail.lines(self._tail.position, Fold(), mark=True), self.name)
        removed = self._done() - self._lines.keys()
        dropped = recovered = lost = 0
        for one in self._facts:
            batch = (one.query, one.batch)
            line = self._lines.get(batch)
            if line is not None:
                dropped, recovered, lost = dropped + line.offered, recovered + line.kept, lost + line.dropped
            else:
                size = one.dropped if one.counted else one.size
                dropped, recovered = dropped + size, recovered + (size if batch in removed else 0)
        return Progress(dropped, recovered, lost, waiting)

    def unreadable(self) -> int:
        """Dropped tuples whose batches left nothing to find them by."""
        return sum(one.dropped for one in self._facts if not one.readable)

    def differences(self) -> list[str]:
        """Every way in which the ledger does not add up."""
        return self._ledger.fold().differences()

    def steps(self) -> Iterator[Progress]:
        """Work until all is done, also what the live job drops meanwhile; tell progress after steps and in pauses."""
        while (step := self._next()) is not None:
            if waiting := self.live().busy():
                told = self.progress()
                while waiting:
                    yield replace(told, waiting=waiting)
                    self.sleep(POLL_SECONDS)
                    waiting = self.live().busy()
            self._try(step)
            yield self.progress()

    def _done(self) -> set[Batch]:
        fold = self._ledger.fold()
        batches = [(one.query, one.batch) for one in self._facts]
        return {(query, batch) for query, batch in batches if fold.is_recovered(query, self.name, batch)}

    def _next(self) -> BackfillStep | None:
        noted = self._noted()
        if noted is not None:
            return noted
        step = next_step(self._facts, self._done(), self.pace.tuples)
        if step is None:  # of those that were known; the live job may have dropped more meanwhile
            self._facts = self.recovery.facts(self.since_us, self.until_us)
            step = next_step(self._facts, self._done(), self.pace.tuples)
        if step is not None:
            self._store.write(self._note, step_note(step))
        return step

    def _noted(self) -> BackfillStep | None:
        """The step that was under way when the last backfill ended, if it was cut short."""
        raw = self._store.read(self._note)
        if raw is None:
            return None
        noted, fold = noted_batches(raw, f"{self._store.uri}/{self._note}"), self._ledger.fold()
        if all(fold.is_recovered(query, self.name, batch) for query, batch in noted):
            self._store.remove(self._note)
            return None
        facts: list[BatchFacts] = [one for one in self.recovery.facts() if (one.query, one.batch) in noted]
        return BackfillStep(tuple(facts))

    def _try(self, step: BackfillStep) -> None:
        readable = [one for one in step.facts if one.readable]
        found: dict[Batch, int] = {}
        counted = []
        try:
            if readable:
                frame = self.recovery.frame(readable).persist()
                try:
                    counts = self.recovery.counts(readable, frame)
                    found = {(one.query, one.batch): n for one, n in zip(readable, counts, strict=True)}
                    counted = [(one, self.recovery.account(one)) for one in readable if not one.counted]
                    self.run(self.recovery.shown(frame), step.name)
                finally:
                    frame.unpersist()
        except FloodwayError:
            raise
        except Exception as error:  # whatever the user's function or Spark raises
            self.pace = self.pace.failed()
            if self.pace.is_open:
                raise BackfillError(
                    f"backfill of {self.name!r} stopped after {self.pace.failures} failures in a row, "
                    f"the last one in step {step.name}: {explain(error) if str(error) else repr(error)}",
                    hint="Mend the cause and start it again: it continues with this step",
                ) from error
            return
        recovered = [found.get((one.query, one.batch), 0) for one in step.facts]
        lines = [line for one, offered in counted if offered for line in counted_lines(self.name, one, offered)]
        self._ledger.append([*lines, *recovered_lines(self.name, step, recovered, self.clock_us())])
        self._store.remove(self._note)
        self.pace = self.pace.after(was_busy=bool(self.live().busy()))
