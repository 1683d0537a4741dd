"""What a shed says of itself after every batch: latencies of its results, the reason of its decision, its status."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from floodway.control.keep_loop import KeepDecision
from floodway.job.decision import Mode
from floodway.job.status.batches import Batch
from floodway.job.status.figures import Figures
from floodway.job.status.latencies import Sketch
from floodway.job.status.parts import AccuracyPart
from floodway.job.status.reasons import NO_MEASUREMENT, executors_more, held_reason, keep_reason
from floodway.job.status.status import KeyPart, ShedPart, Status, at_inputs
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.spark.shed.report import BatchReport

log = logging.getLogger(__name__)

MOST_WARNINGS = 8
STEPS = 20
"""Into how many latencies a batch's are divided."""


class Warnings(deque[str]):
    """What an operator must know beside the figures, latest last."""

    def __init__(self, shed: str) -> None:
        super().__init__(maxlen=MOST_WARNINGS)
        self._shed = shed

    def say(self, text: str) -> None:
        """Once, in the log, and in the status from now on."""
        if text not in self:
            self.append(text)
            log.warning("floodway shed %s: %s", self._shed, text)

    def say_only(self, text: str | None, among: Iterable[str]) -> None:
        """This one, and none of the others any more."""
        for other in among:
            if other != text and other in self:
                self.remove(other)
        if text is not None:
            self.say(text)


def latencies_of(mean_seconds: float | None, gap_seconds: float, tuples: int) -> Sketch:
    """The latencies of a batch's results, of which Spark counts the mean only.

    The tuples of a batch arrive evenly between the start of the batch before it and its own, so their latencies are
    even over that gap, as the control laws for percentiles have it.

    >>> found = latencies_of(2.0, 1.0, 1000)
    >>> found.count, round(found.mean, 3), round(found.quantile(0.95), 2)
    (1000, 2.0, 2.42)
    """
    found = Sketch()
    if mean_seconds is not None:
        least, width = max(0.0, mean_seconds - gap_seconds / 2.0), min(gap_seconds, 2.0 * mean_seconds)
        for step in range(STEPS):
            share = tuples * (step + 1) // STEPS - tuples * step // STEPS
            found.add(least + width * (step + 0.5) / STEPS, share)
    return found


def batch_of(report: BatchReport, mode: Mode, reason: str, latencies: Sketch) -> Batch:
    """The figures of a batch on record; `mode` is the one in force where the batch held no tuples."""
    return Batch(
        query=report.query,
        batch=report.batch,
        cut_seconds=report.started_us / 1e6,
        ended_seconds=report.ended_us / 1e6,
        offered=report.offered,
        kept=report.kept,
        keep=1.0 if report.keep_ppm is None else report.keep_ppm / PPM,
        mode=report.mode or mode,
        reason=reason,
        latencies=latencies,
        busy_seconds=report.seconds,
    )


def reason_of(decided: KeepDecision | None, mode: Mode, target_seconds: float, shed_after_seconds: float = 0.0) -> str:
    """Why the batches to come keep what they keep."""
    if decided is None:
        return NO_MEASUREMENT
    if decided.held_seconds is not None and mode != "off":
        return held_reason(decided.held_seconds, shed_after_seconds)
    control = decided.control
    return keep_reason(
        control.admit,
        control.admit / max(decided.keep, 1.0 / PPM),
        mode=mode,
        batch_seconds=decided.batch_seconds,
        target_seconds=target_seconds,
        floor_seconds=control.floor_seconds if control.unreachable else None,
    )


def shed_part(report: BatchReport, controller: Mapping[str, Any], seen_us: int | None, late_writes: int) -> ShedPart:
    """What a shed needs to resume after a batch, and what only a shed has."""
    return ShedPart(
        query=report.query,
        batch=report.batch,
        batch_seconds=report.seconds,
        controller=dict(controller),
        seen_us=seen_us,
        late_writes=late_writes,
        stale=report.stale,
        over=report.over,
        first=report.first,
        behind=report.behind,
    )


def shed_status(
    name: str,
    figures: Figures,
    part: ShedPart,
    batch: Batch,
    *,
    mode: Mode,
    keep: float,
    now_seconds: float,
    target_seconds: float,
    decided: KeepDecision | None,
    executors: int | None,
    accuracy: AccuracyPart | None,
    keys: tuple[KeyPart, ...],
    decision_seen: bool | None,
    decision_until: float | None,
    warnings: tuple[str, ...],
    errors: int,
) -> Status:
    """The status after a batch; `keep` is that of the decision in force."""
    places = figures.places({name: keep}, now_seconds)
    rates, _, totals = at_inputs(places, places)
    control = None if decided is None else decided.control
    return Status(
        name=name,
        kind="shed",
        mode=mode,
        time=now_seconds,
        latency=figures.latency(target_seconds),
        rates=rates,
        keep=keep,
        totals=totals,
        decision_seen=decision_seen,
        decision_until=decision_until,
        warnings=warnings,
        reason=batch.reason,
        errors=errors,
        unreachable=control is not None and control.unreachable,
        floor_seconds=None if control is None else control.floor_seconds,
        capacity_needed=None if decided is None else decided.capacity_needed,
        executors_more=None if decided is None else executors_more(executors, decided.capacity_needed),
        accuracy=accuracy,
        keys=keys,
        batch_count=figures.batch_count,
        places=places,
        ledger=figures.ledger(),
        shed=part,
    )
