"""What one micro-batch leaves on record: lines of the ledger, and the facts by which dropped tuples are found again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from floodway.job.ledger.facts import BatchFacts
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.job.store.store import Store, StoreError
from floodway.spark.shed.checkpoints import FIRST_BATCH, journaled_ranges
from floodway.spark.shed.keys.quotas import MOST_COUNTED_KEYS, rest_ppm
from floodway.spark.shed.open_batches import journaled_time
from floodway.spark.shed.report import BatchReport
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.job.decision import Mode
    from floodway.spark.shed.chooser import ShedSettings
    from floodway.spark.shed.control_table import Table

UNCERTAIN = (
    "query {query} reads its batches several times, and Spark counted only a part of some: where foreachBatch has "
    "several actions, call batch.persist() before the first"
)

UNKNOWN_KEYS = (
    f"a task of a batch met more than {MOST_COUNTED_KEYS:,} keys: the first tuples of those beyond are not kept for "
    "being first"
)

MOST_UNREPORTED = 100
"""Spark keeps no more batches in a checkpoint, by default."""


def with_decision(report: BatchReport, table: Table, checkpoint: Store | None) -> BatchReport:
    """A report that tells by which decision all tuples of its batch were dropped: none of them is left to tell.

    There was one. Batches that find no decision, or an expired one, keep everything.
    """
    if report.seq is not None or report.kept or not report.offered:
        return report
    journaled = None if checkpoint is None else _journaled_time(checkpoint, report.batch)
    time_us = report.started_us if journaled is None else journaled
    entry = table.at(time_us)
    keep_ppm = rest_ppm(entry.keep_at(time_us), entry.rare_ppm)
    return replace(report, batch_time_us=time_us, seq=entry.seq, keep_ppm=keep_ppm, mode=entry.mode)


def warnings_of(report: BatchReport) -> Iterator[str]:
    """What an operator must know of a batch beside its figures."""
    if report.unknown:
        yield UNKNOWN_KEYS
    if report.uncertain and report.read is not None:
        yield UNCERTAIN.format(query=report.query)


def missed_lines(report: BatchReport, settings: ShedSettings, last_batch: int | None, now_us: int) -> list[LedgerLine]:
    """A gap for the batches since `last_batch` whose counts nobody reported, if there are any."""
    missed = _missed(report, last_batch)
    if not missed:
        return []
    return [
        LedgerLine(
            report.query, missed[0], settings.name, Reason.GAP.value, 0, 0, 0,
            mode=report.mode or settings.mode, time_us=now_us, until=missed[-1],
        )
    ]  # fmt: skip


def _missed(report: BatchReport, last_batch: int | None) -> range:
    """The batches since `last_batch` whose counts nobody reported."""
    end = report.batch if report.was_run else report.batch + 1
    return range(report.batch if last_batch is None else last_batch + 1, end)


def batch_lines(report: BatchReport, settings: ShedSettings, mode: Mode, now_us: int) -> list[LedgerLine]:
    """What was dropped of all, of keys over their share, and as stale; `mode` is for a batch without tuples."""
    if not report.was_run:
        return []
    kept = report.kept + report.skipped + report.passed_over + report.by_share
    shed = LedgerLine(
        query=report.query,
        batch=report.batch,
        at=settings.name,
        reason=Reason.SHEDDER.value,
        offered=report.offered,
        kept=kept,
        dropped=report.offered - kept,
        plan="" if report.seq is None else str(report.seq),
        mode=report.mode or mode,
        keep_ppm=PPM if report.keep_ppm is None else report.keep_ppm,
        time_us=now_us,
    )
    lines = [shed]
    reasons = {Reason.SHARE: report.by_share, Reason.STALE: report.skipped, Reason.LAG: report.passed_over}
    for reason, dropped in reasons.items():
        if dropped:
            offered, kept = kept, kept - dropped
            lines.append(replace(shed, reason=reason.value, offered=offered, kept=kept, dropped=dropped))
    if report.uncertain and report.read is not None:
        uncertain = Reason.UNCERTAIN.value
        lines.append(replace(shed, reason=uncertain, offered=report.read, kept=report.read, dropped=0))
    return lines


def all_facts(
    report: BatchReport,
    last_batch: int | None,
    checkpoint: Store | None,
    settings: ShedSettings,
    table: Table,
    now_us: int,
    *,
    vouched: bool,
) -> list[BatchFacts]:
    """What made tuples of this batch go, for whoever wants them back, and of those before that nobody reported.

    `vouched` says that those have read this very table (`state_copies.py`).
    """
    if checkpoint is None:
        return [facts_of(report, settings, table, now_us)]
    if report.no_ranges == FIRST_BATCH:
        report = replace(report, ranges=journaled_ranges(checkpoint, report.batch))
    before = _unreported(report, last_batch, checkpoint, settings, table, now_us) if vouched else []
    return [*before, facts_of(report, settings, table, now_us)] if report.was_run else before


def facts_of(report: BatchReport, settings: ShedSettings, table: Table, now_us: int) -> BatchFacts:
    """What made tuples of this batch go, for whoever wants them back."""
    time_us = report.batch_time_us or report.started_us
    entry = table.at(time_us)
    ranges, why = report.ranges, "" if report.ranges else report.no_ranges
    if report.seq is not None and entry.seq != report.seq:
        ranges, why = (), "the decision that the batch found is no longer on record"
    epochs = [] if settings.window is None else [((e.start_us, e.pass_ppm, e.emit_ppm), e.seq) for e in table.epochs]
    by_key = entry.quotas if settings.has_quotas else None
    keep, aimed = (rest_ppm(ppm, entry.rare_ppm) for ppm in (entry.keep_at(time_us), entry.keep_ppm))
    quotas, others_ppm = by_key.in_batch(keep, aimed) if by_key else ((), None)
    return BatchFacts(
        query=report.query,
        batch=report.batch,
        time_us=now_us,
        mode=entry.mode,
        offered=report.offered,
        kept=report.kept,
        keep_ppm=PPM if report.keep_ppm is None else report.keep_ppm,
        salt=entry.salt,
        threshold=entry.threshold,
        tie_ppm=entry.tie_at(time_us),
        epochs=tuple(epoch for epoch, seq in epochs if seq <= entry.seq),
        later_epochs=tuple(epoch for epoch, seq in epochs if seq > entry.seq),
        in_gaps=report.in_gaps,
        stale_before_us=None if settings.max_age_us is None else time_us - settings.max_age_us,
        quotas=quotas,
        others_ppm=others_ppm,
        skip=(entry.skip or {}) if settings.skip_when_lag is not None else {},
        ranges=ranges,
        why=why,
    )


def _unreported(
    report: BatchReport, last_batch: int | None, checkpoint: Store, settings: ShedSettings, table: Table, now_us: int
) -> list[BatchFacts]:
    """Of the committed batches since `last_batch` without counts: the driver died before it heard of them.

    Their decisions are in the table until a report goes beyond them, and their positions in the query's checkpoint. A
    batch of which the table knows no more stays a gap: by another decision kept tuples would count as dropped.
    """
    found = []
    for batch in _missed(report, last_batch)[-MOST_UNREPORTED:]:
        time_us, ranges = _journaled_time(checkpoint, batch), journaled_ranges(checkpoint, batch)
        if time_us is None or not ranges or not table.knows(time_us):
            continue
        entry = table.at(time_us)
        missed = BatchReport(
            report.query, report.run, batch, time_us, 0.0, 0, 0, batch_time_us=time_us, seq=entry.seq,
            keep_ppm=rest_ppm(entry.keep_at(time_us), entry.rare_ppm), ranges=ranges,
        )  # fmt: skip
        facts = replace(facts_of(missed, settings, table, now_us), counted=False)
        found.append(facts if entry.mode == "enforce" and not entry.expired(time_us) else _keeping_all(facts))
    return found


def _keeping_all(facts: BatchFacts) -> BatchFacts:
    """The facts of a batch for which nothing was enforced: it is read again only to be counted."""
    epochs = tuple((start_us, PPM, emit_ppm) for start_us, _, emit_ppm in facts.epochs)
    return replace(
        facts, keep_ppm=PPM, threshold=None, quotas=(), others_ppm=None, stale_before_us=None, skip={}, epochs=epochs
    )


def _journaled_time(checkpoint: Store, batch: int) -> int | None:
    """The timestamp of a batch; None also where the checkpoint does not answer: a batch that was counted is counted."""
    try:
        return journaled_time(checkpoint, batch)
    except (StoreError, ValueError, LookupError, TypeError):
        return None
