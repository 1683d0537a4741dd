"""A shed that drops nothing: its source's batches follow the target, and it says until when what waits is processed."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import floodway
from floodway.control.base import Decision
from floodway.control.loop import KeepDecision
from floodway.errors import InputError
from floodway.job.decision import JobDecision, StreamDecision, read_decision, write_decision
from floodway.job.ledger.facts import OffsetRange
from floodway.job.ledger.ledger import Ledger
from floodway.job.places import ShedFiles
from floodway.job.status.parts import BehindPart
from floodway.job.status.status import Status
from floodway.spark.audit.shed import audit_shed
from floodway.spark.log import LogWriter, create_log
from floodway.spark.shed.report import BatchReport, Warnings
from floodway.spark.shed.source_limit import UNSEEN, SourceLimit, decision_path
from floodway.spark.source import register
from tests.patience import wait_until

CAPACITY, TARGET_SECONDS = 500, 4.5
PIECES = 5
"""Batches into which a burst is cut: in the fourth it is forgotten when it came, and one is left that waits."""


def report(batch: int, offered: int, left: int | None, **others: Any) -> BatchReport:
    """A batch of two seconds on an embedded log, one every two seconds."""
    ranges = (OffsetRange("clicks", 0, 0, offered, floodway=True),)
    return BatchReport(
        query="q", run="r", batch=batch, started_us=batch * 2_000_000, seconds=2.0, offered=offered, kept=offered,
        backlog=left, ranges=ranges, **others
    )  # fmt: skip


def decided(capacity: float) -> KeepDecision:
    """At 100 tuples a second."""
    return KeepDecision(1.0, Decision(1.0, 1.0, ""), 100.0, 2.0, 2.0, capacity_needed=100.0 / capacity)


def test_the_limit_is_what_fits_and_the_end_of_the_backlog_is_told(tmp_path: Path) -> None:
    files, warnings = ShedFiles(tmp_path), Warnings("clicks")
    limit = SourceLimit(files, mean_seconds=3.0)
    limit.take(report(0, 200, 10_000), None, "enforce", warnings)
    assert read_decision(decision_path(files)).limit("clicks") is None
    # 1000 came in the two seconds: 500 tuples a second arrive, and 600 can be processed.
    behind = limit.take(report(1, 800, 10_200), decided(600.0), "enforce", warnings)
    assert behind is not None and (behind.tuples, behind.catch_up_seconds) == (11_200, 112.0)
    assert read_decision(decision_path(files)).limit("clicks") == 1200
    # Nine of ten tuples of a batch are too old, and cost next to nothing.
    limit.take(report(2, 1000, 10_200, skipped=900), decided(600.0), "enforce", warnings)
    assert read_decision(decision_path(files)).limit("clicks") == 12_000
    overloaded = limit.take(report(3, 1000, 10_200), decided(400.0), "enforce", warnings)
    assert overloaded is not None and overloaded.catch_up_seconds is None
    again = SourceLimit(files, mean_seconds=3.0)
    again.take(report(4, 800, 10_200), None, "enforce", warnings)
    assert read_decision(decision_path(files)).limit("clicks") == again.limit == 800
    # It belongs to mode enforce, and is not taken back before the next batch.
    limit.follow("off")
    assert read_decision(decision_path(files)).limit("clicks") is None
    assert limit.take(report(4, 1000, None), decided(400.0), "off", warnings) is None
    assert list(warnings) == []


def test_a_source_that_does_not_read_the_limit_is_told_of(tmp_path: Path) -> None:
    warnings, limit = Warnings("clicks"), SourceLimit(ShedFiles(tmp_path), mean_seconds=3.0)
    for batch in range(4):
        limit.take(report(batch, 5000, 0), decided(600.0), "enforce", warnings)
    assert list(warnings) == [UNSEEN]
    limit.take(report(4, 1200, 0), decided(600.0), "enforce", warnings)
    assert list(warnings) == []


@pytest.mark.parametrize("option", [{"share_by": "id"}, {"utility": "id"}, {"shed_after": "9s"}])
def test_what_would_decide_on_drops_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="lossless= drops nothing, so there is nothing for"):
        floodway.shed("x", target_latency="2s", lossless=True, **option)


@pytest.mark.spark
def test_a_burst_is_processed_to_the_last_tuple_in_batches_that_fit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = create_log(tmp_path / "log", "id bigint", stream="clicks")
    register(spark)
    shed = floodway.shed(
        "clicks", target_latency=TARGET_SECONDS, mode="enforce", lossless=True, state_dir=str(tmp_path / "state")
    )
    seen: list[int] = []
    limits: list[int] = []
    told: list[Status] = []

    def sink(batch: DataFrame, _: int) -> None:
        ids = [row.id for row in batch.select("id").collect()]
        time.sleep(len(ids) / CAPACITY)
        seen.extend(ids)

    def look() -> Status | None:
        status = shed.files.read_status()
        if status is not None and (not told or status.batch_count > told[-1].batch_count):
            told.append(status)
        return status

    take = SourceLimit.take

    def noted(limited: SourceLimit, *arguments: Any) -> BehindPart | None:
        behind = take(limited, *arguments)
        limits.append(limited.limit or 0)
        return behind

    monkeypatch.setattr(SourceLimit, "take", noted)
    frame = spark.readStream.format("floodway").option("path", str(log.path)).option("decision", shed.decision).load()
    query = frame.transform(shed).writeStream.foreachBatch(sink)
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    sent, bursts = 0, list[int]()
    try:
        with LogWriter(log.path) as writer:

            def send(count: int) -> None:
                nonlocal sent
                writer.append(pa.table({"id": pa.array(range(sent, sent + count), pa.int64())}))
                sent += count

            def is_told() -> bool:
                """Whether a status has said when all that waits will have been processed."""
                return any(one.behind and one.behind.tuples and one.behind.catch_up_seconds for one in told)

            for count in (100, 300, 600, 900, 300, 600):
                send(count)
                running.processAllAvailable()
                wait_until(partial(is_counted, Ledger(shed.files.store), sent))
            last_small = max(line.batch for line in Ledger(shed.files.store).lines())
            del limits[:-1]
            while not is_told():  # again, should the machine have become much faster meanwhile
                bursts.append(PIECES * limits[-1])
                send(bursts[-1])
                wait_until(lambda: (status := look()) is not None and status.totals.offered == sent, told=look)
    finally:
        running.stop()
    assert sorted(seen) == list(range(sent))
    lines = [line for line in Ledger(shed.files.store).lines() if line.offered]
    assert all(line.dropped == 0 for line in lines)
    pieces = [line.offered for line in lines if line.batch > last_small]
    assert max(pieces) <= max(limits) and pieces[0] == bursts[0] // PIECES
    assert max(status.behind.tuples for status in told if status.behind is not None) >= bursts[0] - pieces[0]
    assert any("nothing is dropped; " in status.reason and "caught up in about" in status.reason for status in told)
    # As late as what waits makes it: the last ones waited for the sink to take all the others.
    assert max(status.latency.mean or 0.0 for status in told) >= bursts[0] / CAPACITY / 2
    assert told[-1].keep == 1.0 and told[-1].warnings == () and told[-1].errors == 0
    audit = audit_shed("clicks", shed.files, time.time())
    assert audit.differences == () and audit.offered == audit.kept == sent


@pytest.mark.spark
def test_with_max_age_only_what_is_stale_goes_and_it_can_be_found_again(spark: SparkSession, tmp_path: Path) -> None:
    """The source waits by its limit, and what has become too old there is skipped by the time of its append."""
    log = create_log(tmp_path / "log", "id bigint", stream="clicks")
    register(spark)
    shed = floodway.shed(
        *("clicks",), target_latency="2s", mode="enforce", lossless=True, max_age="10m", timestamp="_arrival",
        expires_after="never", state_dir=str(tmp_path / "state"),
    )  # fmt: skip
    kept: dict[int, set[int]] = {}

    def sink(batch: DataFrame, number: int) -> None:
        kept.setdefault(number, set()).update(row.id for row in batch.select("id").collect())

    now_us = time.time_ns() // 1000
    arrived = {id: now_us - (3_600_000_000 if id < 700 else 0) for id in range(1000)}  # a backlog, then fresh ones
    with LogWriter(log.path) as writer:
        ids = pa.array(arrived, pa.int64())
        times = pa.array(arrived.values(), pa.timestamp("us", tz="UTC"))
        writer.append(pa.table({"id": ids}), arrival=times)
    write_decision(
        decision_path(shed.files), JobDecision(mode="enforce", streams={"clicks": StreamDecision(limit=300)})
    )
    frame = spark.readStream.format("floodway").option("path", str(log.path)).option("decision", shed.decision).load()
    query = frame.transform(shed).writeStream.foreachBatch(sink)
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        running.processAllAvailable()
        wait_until(partial(is_counted, Ledger(shed.files.store), 1000))
    finally:
        running.stop()
    assert set().union(*kept.values()) == {id for id in arrived if id >= 700}
    lines = list(Ledger(shed.files.store).lines())
    assert sum(line.dropped for line in lines if line.reason == "stale") == 700
    assert not any(line.dropped for line in lines if line.reason != "stale")
    assert next(line.offered for line in lines if line.reason == "shedder") == 300, "the limit of before"
    gone = floodway.dropped(
        "clicks", source={"path": str(log.path)}, spark=spark, state_dir=str(tmp_path / "state")
    )  # fmt: skip
    assert {row.id for row in gone.select("id").collect()} == set(range(700))
    audit = audit_shed("clicks", shed.files, time.time())
    assert audit.differences == () and (audit.offered, audit.kept) == (1000, 300)


def is_counted(ledger: Ledger, tuples: int) -> bool:
    return ledger.fold().total.offered.total() == tuples


def test_in_observe_the_limit_is_told_and_not_followed(tmp_path: Path) -> None:
    limit = SourceLimit(ShedFiles(tmp_path), mean_seconds=3.0)
    behind = limit.take(report(0, 200, 10_000), decided(600.0), "observe", Warnings("clicks"))
    assert behind is not None and "enforcing would take at most 1,200 per batch" in behind.words
    written = read_decision(decision_path(ShedFiles(tmp_path)))
    assert written.limit("clicks") is None and replace(written, mode="enforce").limit("clicks") == 1200
