"""Batches that the driver committed and did not live to hear of: what they dropped is found by the checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from floodway.job.decision import write_mode
from floodway.job.ledger.backfill import BackfillStep, Recount, counted_lines, recovered_lines
from floodway.job.ledger.facts import BatchFacts, FactsLog, OffsetRange
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.store.store import LocalStore
from floodway.spark.shed.checkpoints import FIRST_BATCH, NOT_RUN, journaled_ranges, positions
from floodway.units import PPM
from tests.spark.test_spark_shed_loop import Job

TUPLES = 40


def journal(checkpoint: Path, batch: int, time_us: int) -> None:
    """What Spark and Kafka's source leave of a batch: `TUPLES` in each of two partitions."""
    store = LocalStore(checkpoint)
    if batch == 0:
        store.write("sources/0/0", b'\x00v1\n{"clicks":{"0":7,"1":7}}')
    ends = {"clicks": {"0": 7 + TUPLES * (batch + 1), "1": 7 + TUPLES * (batch + 1)}}
    store.write(f"offsets/{batch}", f'v1\n{{"batchTimestampMs":{time_us // 1000}}}\n{json.dumps(ends)}'.encode())


def ranges(batch: int) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("clicks", part, 7 + TUPLES * batch, 7 + TUPLES * (batch + 1)) for part in (0, 1))


def facts_of(job: Job) -> dict[int, BatchFacts]:
    return {one.batch: one for one in FactsLog(job.loop.files.store).read()}


def test_a_checkpoint_tells_what_each_batch_read(tmp_path: Path) -> None:
    for batch in range(3):
        journal(tmp_path, batch, batch)
    store = LocalStore(tmp_path)
    assert [journaled_ranges(store, batch) for batch in range(3)] == [ranges(batch) for batch in range(3)]
    assert journaled_ranges(store, 3) == ()
    store.write("offsets/1", b'v1\n{"batchTimestampMs":1}\n{"logOffset":4}')
    assert journaled_ranges(store, 1) == () == journaled_ranges(store, 2)


def test_the_decisions_of_unreported_batches_are_found_after_a_restart(tmp_path: Path) -> None:
    """Batches 6 and 7 are committed, and the driver dies before it hears of them."""
    job, checkpoint = Job(tmp_path / "job", rate=25_000.0), tmp_path / "checkpoint"
    job.loop.on_start("q", str(checkpoint))
    truth: dict[int, tuple[int, int]] = {}
    for report in job.reports(9):
        if report.batch == 8:
            job.loop = job.start()
            job.loop.on_start("q", str(checkpoint))
        journal(checkpoint, report.batch, report.started_us // 1000 * 1000)
        entry = job.loop.control.table.at(report.started_us)
        truth[report.batch] = (entry.keep_at(report.started_us // 1000 * 1000), entry.salt)
        if report.batch not in (6, 7):
            job.loop.on_batch(replace(report, ranges=ranges(report.batch)))
    found = facts_of(job)
    assert truth[6] != truth[8]
    for batch in (6, 7):
        assert not found[batch].counted and found[batch].ranges == ranges(batch) and found[batch].dropped == 0
        assert (found[batch].keep_ppm, found[batch].salt) == truth[batch]
    assert found[8].counted
    # A backfill counts them when it reads them again: the gap is over, and all is accounted for.
    ledger = Ledger(job.loop.files.store)
    assert ledger.fold().differences() == ["query q, job: no counts for batches 6 to 7"]
    for batch in (6, 7):
        counted = Recount(80, {Reason.SHEDDER: 30})
        lines = counted_lines("job", found[batch], counted)
        ledger.append([*lines, *recovered_lines("job", BackfillStep((found[batch],)), [30], 0)])
    assert ledger.fold().differences() == []
    assert Ledger(job.loop.files.store).fold().total.recovered["job"] == 60


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_unreported_batches_that_kept_everything_can_be_counted_too(tmp_path: Path, mode: str) -> None:
    job = Job(tmp_path / "job", rate=25_000.0)
    write_mode(job.loop.files.store, mode)
    found = restarted(job, tmp_path / "checkpoint", range(6, 8), 8)
    assert job.loop.control.table.at(job.previous_us).keep_ppm < PPM or mode == "off"
    assert [(found[batch].counted, found[batch].keep_ppm, found[batch].ranges) for batch in (6, 7)] == [
        (False, PPM, ranges(6)),
        (False, PPM, ranges(7)),
    ]


def restarted(job: Job, checkpoint: Path, unheard: range, last: int, **of_last: Any) -> dict[int, BatchFacts]:
    """A driver that dies without having heard of some batches, and the next one hears of the one after them."""
    job.loop.on_start("q", str(checkpoint))
    for report in job.reports(last + 1):
        if report.batch == unheard.stop:
            job.loop = job.start()
            job.loop.on_start("q", str(checkpoint))
        journal(checkpoint, report.batch, report.started_us // 1000 * 1000)
        heard = replace(report, ranges=ranges(report.batch))
        if report.batch not in unheard:
            job.loop.on_batch(replace(heard, **of_last) if report.batch == last else heard)
        LocalStore(checkpoint).write(f"commits/{report.batch}", b"v1\n{}")
    return facts_of(job)


def test_the_first_batches_of_a_query_that_nobody_reported_are_a_gap(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=25_000.0)
    found = restarted(job, tmp_path / "checkpoint", range(2), 3)
    assert Ledger(job.loop.files.store).fold().differences() == ["query q, job: no counts for batches 0 to 1"]
    assert [(found[batch].counted, found[batch].ranges) for batch in (0, 1)] == [(False, ranges(0)), (False, ranges(1))]


def test_batches_before_the_shed_was_there_are_none(tmp_path: Path) -> None:
    job, checkpoint = Job(tmp_path / "job", rate=25_000.0), tmp_path / "checkpoint"
    for batch in range(2):
        LocalStore(checkpoint).write(f"commits/{batch}", b"v1\n{}")
    job.loop.on_start("q", str(checkpoint))
    for report in job.reports(4):
        if report.batch >= 2:
            job.loop.on_batch(report)
    assert Ledger(job.loop.files.store).fold().differences() == []


def test_a_checkpoint_that_cannot_be_read_costs_no_account(tmp_path: Path) -> None:
    """Of a batch that kept nothing, the checkpoint is asked for the decision; and of those that nobody reported."""
    job, checkpoint = Job(tmp_path / "job", rate=25_000.0), tmp_path / "checkpoint"
    job.loop.on_start("q", str(checkpoint))
    for report in job.reports(6):
        if report.batch in (2, 3):
            continue
        journal(checkpoint, report.batch, report.started_us)
        path = checkpoint / "offsets" / str(report.batch)
        path.unlink()
        path.mkdir()
        job.loop.on_batch(replace(report, kept=0, seq=None, batch_time_us=None))
    assert [line.batch for line in Ledger(job.loop.files.store).read()] == [0, 1, 2, 4, 5]
    assert Ledger(job.loop.files.store).fold().differences() == ["query q, job: no counts for batches 2 to 3"]


def test_a_batch_without_tuples_tells_of_those_that_nobody_reported(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=25_000.0)
    found = restarted(job, tmp_path / "checkpoint", range(5, 7), 7, ranges=(), offered=0, kept=0)
    assert Ledger(job.loop.files.store).fold().differences() == ["query q, job: no counts for batches 5 to 6"]
    assert [(found[batch].counted, found[batch].ranges) for batch in (5, 6)] == [(False, ranges(5)), (False, ranges(6))]


def test_a_repeated_batch_that_its_sink_had_already_is_a_gap(tmp_path: Path) -> None:
    """The driver dies between the commit of the sink and that of Spark: the next one counts nothing."""
    job, unread = Job(tmp_path / "job", rate=25_000.0), {"ranges": (), "no_ranges": NOT_RUN, "offered": 0, "kept": 0}
    found = restarted(job, tmp_path / "checkpoint", range(5, 6), 6, **unread)
    assert Ledger(job.loop.files.store).fold().differences() == ["query q, job: no counts for batches 5 to 6"]
    assert [(found[batch].counted, found[batch].ranges) for batch in (5, 6)] == [(False, ranges(5)), (False, ranges(6))]
    first = Job(tmp_path / "first", rate=25_000.0)
    found = restarted(first, tmp_path / "other", range(-1, 0), 0, **unread)
    assert Ledger(first.loop.files.store).fold().differences() == ["query q, job: no counts for batches 0 to 0"]
    assert (found[0].counted, found[0].ranges) == (False, ranges(0))


def test_only_a_repeated_batch_that_read_nothing_was_not_run() -> None:
    kafka = {"description": "KafkaV2[Subscribe[clicks]]", "startOffset": {"clicks": {"0": 3}}, "numInputRows": 0}
    moved = {**kafka, "endOffset": {"clicks": {"0": 9}}}
    asked = ((OffsetRange("clicks", 0, 3, 9),), "")
    assert positions([{**moved, "latestOffset": None}]) == ((), NOT_RUN)
    assert positions([{**moved, "latestOffset": {"clicks": {"0": 9}}}]) == asked  # an aborted transaction
    assert positions([{**moved, "latestOffset": None, "numInputRows": 6}]) == asked
    assert positions([{**kafka, "endOffset": kafka["startOffset"], "latestOffset": None}]) == ((), "")


def test_the_first_batch_of_a_query_can_be_read_again(tmp_path: Path) -> None:
    job, checkpoint = Job(tmp_path / "job"), tmp_path / "checkpoint"
    job.loop.on_start("q", str(checkpoint))
    report = next(job.reports(1))
    journal(checkpoint, 0, report.started_us)
    job.loop.on_batch(replace(report, kept=report.offered // 2, no_ranges=FIRST_BATCH))
    assert (facts_of(job)[0].ranges, facts_of(job)[0].why) == (ranges(0), "")


def test_the_end_of_a_run_that_is_told_late_does_not_end_the_next_one(tmp_path: Path) -> None:
    job = Job(tmp_path / "job")
    job.loop.on_start("q", None, "r1")
    (report,) = job.reports(1)
    job.loop.on_start("q", None, "r2")
    job.loop.on_batch(report)  # of the run before, as its end is
    job.loop.on_end("q", "r1")
    assert not job.loop.finished
    job.loop.on_end("q", "r2")
    assert job.loop.finished
