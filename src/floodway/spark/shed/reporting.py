"""What a shed says of itself after every batch: latencies of its results, the reason of its decision, its status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.control.keep_loop import KeepDecision
from floodway.job.decision import PPM, Mode
from floodway.job.status.batches import Batch
from floodway.job.status.figures import Figures
from floodway.job.status.latencies import Sketch
from floodway.job.status.reasons import NO_MEASUREMENT, keep_reason
from floodway.job.status.status import ShedPart, Status, at_inputs

if TYPE_CHECKING:
    from floodway.spark.shed.report import BatchReport

STEPS = 20
"""Into how many latencies a batch's are divided."""


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
        return (
            f"overloaded for {decided.held_seconds:.0f} s: nothing is dropped in the first {shed_after_seconds:g} s, "
            "while capacity may come"
        )
    control = decided.control
    return keep_reason(
        control.admit,
        control.admit / max(decided.keep, 1.0 / PPM),
        mode=mode,
        target_seconds=target_seconds,
        floor_seconds=control.floor_seconds if control.unreachable else None,
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
        batch_count=figures.batch_count,
        places=places,
        ledger=figures.ledger(),
        shed=part,
    )
