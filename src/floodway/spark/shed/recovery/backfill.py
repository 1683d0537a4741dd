"""Processing dropped tuples in quiet times: the shell of `job/ledger/backfill.py`, which reads clocks and runs Spark.

A step goes like this: its batches are noted (`backfill.json`), their dropped tuples are read again and given to the
user's function, the counts go to the ledger, and the note is removed. Killed anywhere, the next start finds the note
and repeats that step under the same name, or finds its lines in the ledger and goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from floodway.errors import FloodwayError
from floodway.job.ledger.backfill import Batch, Live, Pace, Step, done_batches, next_step, recovered_lines
from floodway.job.ledger.facts import BatchFacts
from floodway.job.ledger.ledger import Ledger
from floodway.json_text import load_json
from floodway.spark.shed.recovery.recover import Recovery

NOTE = "backfill.json"
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


@dataclass
class Backfill:
    """One backfill of one shed; only one runs at a time. `live` tells how the live job is."""

    name: str
    recovery: Recovery
    run: Run
    live: Callable[[], Live]
    since_us: int | None = None
    until_us: int | None = None
    clock_us: Callable[[], int] = lambda: time.time_ns() // 1000
    sleep: Callable[[float], None] = time.sleep
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        self._store = self.recovery.files.store
        self._ledger = Ledger(self._store)
        self._facts = self.recovery.facts(self.since_us, self.until_us)

    def progress(self, waiting: str = "") -> Progress:
        """How far it is, by the ledger."""
        chosen = {(one.query, one.batch) for one in self._facts}
        lines = [ln for ln in self._ledger.lines() if ln.reason == "recovered" and (ln.query, ln.batch) in chosen]
        return Progress(
            sum(one.dropped for one in self._facts),
            sum(line.kept for line in lines),
            sum(line.dropped for line in lines),
            waiting,
        )

    def differences(self) -> list[str]:
        """Every way in which the ledger does not add up."""
        return self._ledger.fold().differences()

    def steps(self) -> Iterator[Progress]:
        """Work until all is done, telling progress after every step and while it waits."""
        while (step := self._next()) is not None:
            while waiting := self.live().busy():
                yield self.progress(waiting)
                self.sleep(POLL_SECONDS)
            self._try(step)
            yield self.progress()

    def _next(self) -> Step | None:
        done = done_batches(self._ledger.lines())
        noted = self._noted(done)
        if noted is not None:
            return noted
        step = next_step(self._facts, done, self.pace.tuples)
        if step is not None:
            batches = [[one.query, one.batch] for one in step.facts]
            self._store.write(NOTE, json.dumps({"version": 1, "batches": batches}).encode())
        return step

    def _noted(self, done: set[Batch]) -> Step | None:
        """The step that was under way when the last backfill ended, if it was cut short."""
        raw = self._store.read(NOTE)
        if raw is None:
            return None
        noted = {(str(query), int(batch)) for query, batch in load_json(raw)["batches"]}
        if noted <= done:
            self._store.remove(NOTE)
            return None
        facts: list[BatchFacts] = [one for one in self.recovery.facts() if (one.query, one.batch) in noted]
        return Step(tuple(facts))

    def _try(self, step: Step) -> None:
        try:
            frame = self.recovery.frame(step.facts).persist()
            try:
                recovered = self.recovery.counts(step.facts, frame)
                self.run(frame.drop("_query", "_batch"), step.name)
            finally:
                frame.unpersist()
        except FloodwayError:
            raise
        except Exception as error:  # whatever the user's function or Spark raises
            self.pace = self.pace.failed()
            if self.pace.is_open:
                raise BackfillError(
                    f"backfill of {self.name!r} stopped after {self.pace.failures} failures in a row, "
                    f"the last one in step {step.name}: {str(error).splitlines()[0] if str(error) else error!r}",
                    hint="Mend the cause and start it again: it goes on with this step",
                ) from error
            return
        self._ledger.append(recovered_lines(self.name, step, recovered, self.clock_us()))
        self._store.remove(NOTE)
        self.pace = self.pace.after(was_busy=bool(self.live().busy()))
