"""The Floodway source on real Spark: rows are what the offsets say, through failures and restarts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from floodway.job.decision import JobDecision, StreamDecision, write_decision
from floodway.spark.log import LogWriter, create_log
from floodway.units import PPM
from tests.patience import PATIENCE_SECONDS
from tests.spark.source_job import DDL, Job, source_job

pytestmark = pytest.mark.spark


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Iterator[Job]:
    yield from source_job(spark, tmp_path)


def test_keep_changes_while_the_query_runs_and_counts_agree_with_the_rows(job: Job) -> None:
    query = job.start()
    steps: list[tuple[int, Callable[[], None]]] = [
        (PPM, lambda: None),
        (250_000, lambda: job.decide(250_000)),
        (PPM, lambda: job.decide(250_000, mode="observe")),
        (500_000, lambda: job.decide(500_000, drop="range")),
        (PPM, lambda: job.decide(0, mode="off")),
        (0, lambda: job.decide(0)),
        (PPM, lambda: job.decide(PPM)),
    ]
    for keep_ppm, change in steps:
        change()
        before, sum_before = len(job.batches), len(job.ids())
        job.append(40_000)
        query.processAllAvailable()
        kept, keep = len(job.ids()) - sum_before, keep_ppm / PPM
        assert len(job.batches) > before
        slack = 5 * math.sqrt(40_000 * keep * (1 - keep)) + 4 * 256 * (0 < keep < 1)
        assert abs(kept - 40_000 * keep) <= slack, (keep_ppm, kept)
    query.stop()
    assert [kept for _, kept in job.counts()] == [len(ids) for _, ids in job.batches]
    assert sum(offered for offered, _ in job.counts()) == 7 * 40_000
    assert len(set(job.ids())) == len(job.ids())
    assert {o.plan for o in job.offsets()} == {"", "p250000", "p500000", "p0", "p1000000"}


def test_a_changed_decision_makes_no_batch(job: Job) -> None:
    job.append(100)
    query = job.start()
    query.processAllAvailable()
    for keep_ppm in (1, 2, 3):
        job.decide(keep_ppm)
        query.processAllAvailable()
    query.stop()
    assert len(job.offsets()) == 1


def test_uncommitted_batch_is_replayed_with_the_same_tuples_although_the_decision_changed(job: Job) -> None:
    job.decide(300_000)
    job.append(10_000)
    job.fail_at = 0
    with pytest.raises(StreamingQueryException):
        job.start(startingOffsets="earliest").processAllAvailable()
    job.fail_at = None
    job.decide(900_000, drop="range", salt=99)
    job.append(10_000)
    query = job.start(startingOffsets="earliest")
    query.processAllAvailable()
    query.stop()
    (first, ids), (second, again), *rest = job.batches
    assert (first, second) == (0, 0) and ids == again and 2_700 < len(ids) < 3_300
    assert sum(len(more) for _, more in rest) == sum(k for _, k in job.counts()[1:]) > 8_000


def test_latest_starts_at_the_end_and_a_restart_does_not_move_it(job: Job) -> None:
    job.append(1_000)
    query = job.start(startingOffsets="latest")
    query.processAllAvailable()
    query.stop()
    job.append(500)
    query = job.start(startingOffsets="latest")
    query.processAllAvailable()
    query.stop()
    assert job.ids() == [i + (p << 48) for p in (0, 1) for i in range(500, 750)]


def test_available_now_with_a_limit_reads_what_was_there_in_batches_of_that_size(job: Job) -> None:
    job.append(2_000, segments=10)
    query = job.start(available_now=True, maxTuplesPerBatch="700")
    assert query.awaitTermination(PATIENCE_SECONDS)
    assert job.ids() == job.everything()
    assert [len(ids) for _, ids in job.batches] == [700, 700, 600]
    assert [offset.waiting for offset in job.offsets()] == [2_000, 1_300, 600]


def test_columns_carry_identity_arrival_weight_and_arc_keeps(job: Job) -> None:
    job.decide(250_000)
    job.append(4_000)
    frame = job.frame(arcs="a->b,c->d", schema="id bigint")
    assert frame.columns == ["id", "_id", "_arrival", "_weight", "_keep:a->b", "_keep:c->d"]
    rows: list[tuple[object, ...]] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: rows.extend(tuple(row) for row in batch.collect()))
        .option("checkpointLocation", str(job.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_SECONDS)
    assert 800 < len(rows) < 1_200
    assert all(row[0] == row[1] for row in rows)
    assert {row[3:] for row in rows} == {(4.0, 77, PPM)}
    assert all(row[2] is not None for row in rows)


def test_batch_read_of_a_journaled_offset_gives_the_same_tuples(job: Job) -> None:
    job.decide(400_000, drop="range")
    job.append(60_000)
    assert job.start(available_now=True).awaitTermination(PATIENCE_SECONDS)
    [offset] = job.offsets()
    reader = job.spark.read.format("floodway").option("path", str(job.log))
    again = reader.option("endingOffsets", json.dumps(offset.to_json())).load()
    assert sorted(row[0] for row in again.select("_id").collect()) == job.ids()
    assert job.spark.read.format("floodway").load(str(job.log)).count() == 60_000
    tail = reader.option("startingOffsets", '{"0": 29990, "1": 30000}').option("endingOffsets", "")
    with pytest.raises(Exception, match="offset is damaged"):
        tail.load().count()


def test_two_streams_in_one_query_have_their_own_keeps(job: Job, tmp_path: Path) -> None:
    create_log(tmp_path / "other", DDL, stream="t")
    with LogWriter(tmp_path / "other") as writer:
        ids = np.arange(6_000) + (1 << 60)
        writer.append(pa.record_batch({"id": ids, "value": ids / 2}))
    job.append(6_000)
    write_decision(
        job.decision,
        JobDecision(mode="enforce", streams={"s": StreamDecision(budget=600), "t": StreamDecision(PPM)}),
    )
    other = job.spark.readStream.format("floodway").options(
        path=str(tmp_path / "other"), decision=str(job.decision), stream="t"
    )
    seen: list[int] = []
    query = (
        job.frame()
        .unionByName(other.load())
        .writeStream.foreachBatch(lambda batch, _: seen.extend(row.id for row in batch.collect()))
        .option("checkpointLocation", str(job.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_SECONDS)
    assert sum(i >= 1 << 60 for i in seen) == 6_000
    assert 480 < sum(i < 1 << 60 for i in seen) < 720
