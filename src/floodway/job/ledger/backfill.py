"""Making dropped tuples good in quiet times: which batches come next, whether now is quiet, and what is done already.

A *step* is a few batches whose dropped tuples are processed together. Its name follows from the batches, so a step that
was cut short is repeated under the same name on the same tuples, and a function that overwrites what it wrote under
that name processes each tuple once. A step is done when its lines are in the ledger:

    offered = what the batch dropped      kept = recovered      dropped = lost, because the source no longer has it

Pure but for the ledger: the shell (`spark/shed/recovery/backfill.py`) reads the time and runs Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from floodway.errors import InputError
from floodway.job.ledger.facts import BatchFacts
from floodway.job.ledger.ledger_line import LedgerLine, Reason
from floodway.job.status.status import Status
from floodway.json_text import load_json

STEP_TUPLES = 200_000
LEAST_STEP_TUPLES = 1_000
STEP_BATCHES = 100
"""At most: each batch is a scan of its own."""
SILENT_SECONDS = 60.0
MOST_FAILURES = 3
"""Failures in a row after which a backfill stops by itself."""

Batch = tuple[str, int]
"""Query and number."""


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """Batches whose dropped tuples are processed together."""

    facts: tuple[BatchFacts, ...]

    @property
    def name(self) -> str:
        """The same for the same batches, whoever makes them a step."""
        text = ";".join(f"{one.query}:{one.batch}" for one in self.facts)
        return sha256(text.encode()).hexdigest()[:12]


def next_step(facts: Iterable[BatchFacts], done: Collection[Batch], most_tuples: int) -> BackfillStep | None:
    """The oldest batches that are not done, up to so many tuples but at least one batch; None if all are.

    However few tuples they dropped, there are at most `STEP_BATCHES` of them.

    >>> made = [BatchFacts("q", n, 0, "enforce", 10, 4, 400_000, 7) for n in range(4)]
    >>> step = next_step(made, {("q", 0)}, most_tuples=12)
    >>> [one.batch for one in step.facts]
    [1, 2]
    """
    chosen: list[BatchFacts] = []
    tuples = 0
    for one in facts:
        if (one.query, one.batch) in done:
            continue
        if chosen and (tuples + one.size > most_tuples or len(chosen) == STEP_BATCHES):
            break
        chosen.append(one)
        tuples += one.size
    return BackfillStep(tuple(chosen)) if chosen else None


def step_note(step: BackfillStep) -> bytes:
    """What is left beside the ledger while a step runs."""
    return json.dumps({"version": 1, "batches": [[one.query, one.batch] for one in step.facts]}).encode()


def noted_batches(raw: bytes, place: str) -> set[Batch]:
    """The batches of a step that was cut short; InputError where the note cannot be understood.

    >>> sorted(noted_batches(b'{"version": 1, "batches": [["q", 2], ["q", 1]]}', "note"))
    [('q', 1), ('q', 2)]
    """
    try:
        body = load_json(raw)
        if body["version"] != 1:
            raise ValueError("another version")
        return {(str(query), int(batch)) for query, batch in body["batches"]}
    except (ValueError, LookupError, TypeError, OverflowError):
        raise InputError(
            f"{place} does not say which batches were processed when the last backfill ended",
            hint="Restore it, or remove it: the batches of that step may then be processed twice",
        ) from None


def done_batches(lines: Iterable[LedgerLine], at: str) -> dict[Batch, LedgerLine]:
    """Batches whose dropped tuples at one place were made good, or found to be lost, with the line that says so."""
    return {(line.query, line.batch): line for line in lines if line.reason == Reason.RECOVERED and line.at == at}


@dataclass(frozen=True, slots=True)
class Recount:
    """What a batch was offered, and what it dropped by reason, in the order of the accounts."""

    offered: int
    dropped: Mapping[Reason, int]


def recovered_lines(name: str, step: BackfillStep, recovered: Sequence[int], now_us: int) -> list[LedgerLine]:
    """The ledger lines of a finished step; `recovered` are tuples per batch, in the step's order."""
    lines = []
    for one, tuples in zip(step.facts, recovered, strict=True):
        dropped = max(one.dropped, tuples)  # a batch that was not counted dropped what was found
        line = LedgerLine(
            query=one.query, batch=one.batch, at=name, reason=Reason.RECOVERED.value, offered=dropped,
            kept=tuples, dropped=dropped - tuples, plan=step.name, time_us=now_us,
        )  # fmt: skip
        lines.append(line)
    return lines


def counted_lines(name: str, facts: BatchFacts, counted: Recount) -> list[LedgerLine]:
    """The ledger lines of a batch that nobody reported, counted when it was read again; the gap is then over.

    Their time is that of the batch: nothing was offered to the job while the backfill ran.

    >>> facts = BatchFacts("q", 7, 0, "enforce", 0, 0, 400_000, 5, counted=False)
    >>> lines = counted_lines("clicks", facts, Recount(10, {Reason.SHEDDER: 3, Reason.STALE: 2, Reason.LAG: 0}))
    >>> [(line.reason, line.offered, line.kept, line.dropped) for line in lines]
    [('shedder', 10, 7, 3), ('stale', 7, 5, 2)]
    """
    lines, offered = [], counted.offered
    for reason, dropped in counted.dropped.items():
        if reason is Reason.SHEDDER or dropped:
            line = LedgerLine(
                query=facts.query, batch=facts.batch, at=name, reason=reason.value, offered=offered,
                kept=offered - dropped, dropped=dropped, mode=facts.mode, keep_ppm=facts.keep_ppm,
                time_us=facts.time_us,
            )  # fmt: skip
            lines.append(line)
            offered -= dropped
    return lines


@dataclass(frozen=True, slots=True)
class Live:
    """What is known of the live job: whether it runs, its latency and target in seconds, and the share it keeps."""

    running: bool
    latency_seconds: float | None = None
    target_seconds: float | None = None
    keep: float = 1.0

    def busy(self) -> str:
        """Why a backfill has to wait now; empty if it may go on.

        >>> Live(True, latency_seconds=1.0, target_seconds=2.0, keep=0.7).busy()
        'the live job sheds: it keeps 70%'
        >>> Live(True, 2.5, 2.0).busy(), Live(False, 9.0, 2.0, 0.1).busy()
        ('the live job is late: 2.5 s at a target of 2 s', '')
        """
        if not self.running:
            return ""
        if self.keep < 1.0:
            return f"the live job sheds: it keeps {self.keep:.0%}"
        if self.latency_seconds is None or self.target_seconds is None or self.latency_seconds <= self.target_seconds:
            return ""
        return f"the live job is late: {self.latency_seconds:g} s at a target of {self.target_seconds:g} s"


class LiveJob:
    """How the live job is, by its status; one that has not been heard of for a while does not run.

    It is heard of after every batch, and where the target is high, batches are long. The clocks of both need not agree,
    and may be set: what counts is how long ago the status was another one, and at the first look how old it says to be.
    """

    def __init__(self, now_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._began = now_seconds
        self._heard: tuple[float, float] | None = None

    def look(self, status: Status | None) -> Live:
        """By the status that it has now."""
        if status is None:
            return Live(False)
        if self._heard is None:
            self._heard = status.time, self._monotonic() - max(0.0, self._began - status.time)
        elif self._heard[0] != status.time:
            self._heard = status.time, self._monotonic()
        latency = status.latency
        patience = max(SILENT_SECONDS, 2.0 * max(latency.target or 0.0, latency.mean or 0.0))
        if self._monotonic() - self._heard[1] > patience:
            return Live(False)
        return Live(True, latency.mean, latency.target, status.keep if status.mode == "enforce" else 1.0)


@dataclass(frozen=True, slots=True)
class BackfillPace:
    """How large the next step may be, and how many have failed in a row: the breaker of a backfill.

    A step during which the live job became busy is followed by one of half the size, a quiet one by one a quarter
    larger. After `MOST_FAILURES` failures in a row the breaker opens.

    >>> pace = BackfillPace(200_000).after(was_busy=True)
    >>> pace.tuples, pace.failed().failed().is_open, pace.failed().failed().failed().is_open
    (100000, False, True)
    """

    tuples: int = STEP_TUPLES
    failures: int = 0
    most_tuples: int = STEP_TUPLES

    @property
    def is_open(self) -> bool:
        """Whether to stop."""
        return self.failures >= MOST_FAILURES

    def after(self, *, was_busy: bool) -> BackfillPace:
        """After a step that succeeded."""
        wanted = self.tuples // 2 if was_busy else self.tuples + self.tuples // 4
        return BackfillPace(min(max(wanted, LEAST_STEP_TUPLES), self.most_tuples), 0, self.most_tuples)

    def failed(self) -> BackfillPace:
        """After a step that failed."""
        return BackfillPace(self.tuples, self.failures + 1, self.most_tuples)
