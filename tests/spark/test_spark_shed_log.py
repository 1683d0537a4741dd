"""A shed on an embedded log: what it dropped comes back to the tuple, by `dropped` and by a backfill that is killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import floodway
from floodway.errors import InputError
from floodway.job.ledger.backfill import Live
from floodway.job.ledger.facts import OffsetRange
from floodway.job.ledger.ledger import Ledger
from floodway.job.places import ShedFiles
from floodway.job.store.store import LocalStore
from floodway.spark.audit.shed import audit_shed
from floodway.spark.log import LogWriter, Retention, create_log
from floodway.spark.shed.checkpoints import journaled_ranges, positions
from floodway.spark.shed.recovery.backfill import Backfill, BackfillError
from floodway.spark.shed.recovery.recover import Recovery
from floodway.spark.source import register
from floodway.spark.source.offsets import BatchOffset
from tests.patience import wait_until
from tests.spark.shedding import Scripted

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
TUPLES, PARTITIONS, BATCHES = 400, 2, 4
"""A run's first batch decides nothing, and its second keeps all: two that drop."""


def doubled(df: DataFrame) -> DataFrame:
    """What the job does between its source and the shed."""
    return df.withColumn("twice", df["id"] * 2)


def fill(dropped: DataFrame, step: str) -> None:
    """For `floodway backfill`."""
    (Path(os.environ["OUT"]) / step).write_text("\n".join(str(row.twice // 2) for row in dropped.collect()))


@dataclass(frozen=True)
class Job:
    """A job on a log that shed half of what it read and has ended: its folder, and the ids that it kept of `sent`."""

    spark: SparkSession
    folder: Path
    kept: list[int]
    sent: int

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def source(self) -> dict[str, str]:
        return {"path": str(self.log)}

    @property
    def files(self) -> ShedFiles:
        return ShedFiles(self.folder / "state" / "clicks")

    def dropped(self, **options: Any) -> DataFrame:
        state = str(self.folder / "state")
        return floodway.dropped("clicks", spark=self.spark, state_dir=state, through=doubled, **options)

    def backfill(self, run: Callable[[DataFrame, str], None], since_us: int | None = None) -> Backfill:
        recovery = Recovery(self.spark, self.files, {}, doubled, self.source)
        return Backfill("clicks", recovery, run, lambda: Live(False), since_us, sleep=lambda _: None)


def ended(spark: SparkSession, folder: Path, **options: Any) -> Job:
    """Run it, and stop it once it has dropped something."""
    create_log(folder / "log", "id bigint, user bigint", partitions=PARTITIONS, stream="clicks")
    job = ran_on(Job(spark, folder, [], 0), BATCHES, **options)
    assert 0 < len(job.kept) < job.sent
    return job


def ran_on(job: Job, batches: int, keep: float = 0.5, **options: Any) -> Job:
    """The job after so many batches more, in a run of their own."""
    register(job.spark)
    kept, sent = list(job.kept), job.sent
    shed = floodway.shed(
        "clicks", target_latency="2s", mode="enforce", controller=Scripted([keep]), expires_after="never",
        state_dir=str(job.folder / "state"), **options,
    )  # fmt: skip

    def collect(batch: DataFrame, _: int) -> None:
        kept.extend(row.id for row in batch.select("id").collect())

    frame = doubled(job.spark.readStream.format("floodway").option("path", str(job.log)).load()).transform(shed)
    writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(job.folder / "checkpoint"))
    query = writer.start()
    try:
        with LogWriter(job.log, sync=False, compact_every=0) as log:
            for _ in range(batches):
                before = Ledger(shed.files.store).fold().total.offered.total()
                ids = np.arange(sent, sent + TUPLES)
                for partition in range(PARTITIONS):
                    own = ids[ids % PARTITIONS == partition]
                    log.append(pa.record_batch({"id": own, "user": own % 20}), partition)
                sent += TUPLES
                query.processAllAvailable()
                wait_until(partial(is_accounted, Ledger(shed.files.store), before + TUPLES))
                valid = shed.loop.control.latest.valid_from_us
                wait_until(partial(has_passed, valid), "the decision")
    finally:
        query.stop()
    wait_until(lambda: shed.loop.finished, "the end of the query")
    return replace(job, kept=kept, sent=sent)


def is_accounted(ledger: Ledger, tuples: int) -> bool:
    return ledger.fold().total.offered.total() >= tuples


def has_passed(time_us: int) -> bool:
    return time.time_ns() // 1000 > time_us


@pytest.fixture(scope="module")
def by_hash(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The job of all tests but one, which have copies of its folder."""
    return ended(spark, tmp_path_factory.mktemp("by-hash"))


@pytest.fixture
def job(by_hash: Job, tmp_path: Path) -> Job:
    """A copy for one test."""
    folder = tmp_path / "job"
    shutil.copytree(by_hash.folder, folder)
    return replace(by_hash, folder=folder)


@pytest.mark.parametrize("share_by", [None, "least(user, 3)"], ids=["hash", "shares"])
def test_kept_and_dropped_are_all(spark: SparkSession, by_hash: Job, tmp_path: Path, share_by: str | None) -> None:
    job = by_hash if share_by is None else ended(spark, tmp_path, share_by=share_by)
    ids = [row.id for row in job.dropped(source={**job.source, "startingOffsets": "latest"}).select("id").collect()]
    assert sorted([*ids, *job.kept]) == list(range(job.sent))
    with pytest.raises(InputError, match="source= does not say where the dropped tuples are read again"):
        job.dropped(kafka={"kafka.bootstrap.servers": "localhost:9092"})


def test_a_backfill_cut_short_goes_on_and_what_is_gone_is_lost(job: Job) -> None:
    written = dict[str, list[int]]()

    class Killed(BaseException):
        """As a kill: nothing of ours sees it."""

    def dies(frame: DataFrame, step: str) -> None:
        written[step] = [row.id for row in frame.select("id", "twice").collect()]
        raise Killed

    with pytest.raises(Killed):
        list(job.backfill(dies).steps())
    assert audit_shed("clicks", job.files, time.time()).remaining == job.sent - len(job.kept)

    def run(frame: DataFrame, step: str) -> None:
        written[step] = [row.id for row in frame.select("id", "twice").collect()]

    *_, last = job.backfill(run).steps()
    recovered = [number for ids in written.values() for number in ids]
    assert sorted([*recovered, *job.kept]) == list(range(job.sent)) and (last.lost, last.remaining) == (0, 0)
    audit = audit_shed("clicks", job.files, time.time())
    assert audit.kept + audit.recovered == audit.offered == job.sent and audit.differences == ()


def test_the_command_recovers_from_the_log(job: Job, tmp_path: Path) -> None:
    out, here = tmp_path / "recovered", "tests.spark.test_spark_shed_log"
    out.mkdir()
    command = [
        sys.executable, "-m", "floodway.cli.main", "backfill", "clicks", "--state", str(job.folder / "state"), "--json",
        "--run", f"{here}:fill", "--through", f"{here}:doubled", "--source", f"path={job.log}", "--now",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OUT": str(out)})
    told = {"dropped": job.sent - len(job.kept), "recovered": job.sent - len(job.kept), "remaining": 0, "lost": {}}
    assert done.returncode == 0 and json.loads(done.stdout) == {**told, "reconciled": True}, done.stderr[-3000:]
    assert "log level" not in done.stderr, "Spark speaks of its log at the start"
    recovered = [int(line) for path in out.iterdir() for line in path.read_text().splitlines()]
    assert sorted([*recovered, *job.kept]) == list(range(job.sent))


def test_what_retention_has_taken_is_lost_and_the_books_agree(job: Job) -> None:
    written = list[int]()
    retiring = LogWriter(job.log, sync=False, retention=Retention(max_bytes=1))
    retiring.append(pa.record_batch({"id": [0], "user": [0]}), 0)
    retiring.close()
    work = job.backfill(lambda frame, _: written.extend(row.id for row in frame.select("id").collect()))
    *_, last = work.steps()
    assert 0 < last.recovered == len(written) < last.dropped == last.recovered + last.lost
    audit = audit_shed("clicks", job.files, time.time())
    assert audit.kept + audit.recovered + audit.lost == audit.offered and work.differences() == []


def test_a_log_that_is_gone_is_named(job: Job) -> None:
    shutil.rmtree(job.log)
    with pytest.raises(BackfillError, match=rf"stopped after 3 failures in a row.*no log at .*{job.log.name}"):
        list(job.backfill(lambda frame, _: None).steps())


def test_the_positions_of_a_floodway_source(tmp_path: Path) -> None:
    start, end = BatchOffset("clicks", {0: 0}, {0: 5}), BatchOffset("clicks", {0: 5, 1: 0}, {0: 9, 1: 0})
    source = {"description": "PythonMicroBatchStream", "startOffset": start.to_json(), "endOffset": end.to_json()}
    ranges = (OffsetRange("clicks", 0, 5, 9, floodway=True),)
    assert positions([source]) == positions([{**source, "endOffset": json.dumps(end.to_json())}]) == (ranges, "")
    assert positions([{**source, "startOffset": None}]) == (ranges, "")  # the first batch of a query
    assert positions([{**source, "endOffset": start.to_json()}]) == ((), "")  # one without data
    assert positions([source, source]) == ((), "PythonMicroBatchStream is one of 2 sources")
    own = BatchOffset("clicks", {0: 5}, {0: 9}, keep_ppm=1, mode="enforce").to_json()
    assert positions([{**source, "endOffset": own}]) == (
        (),
        "the source of clicks drops tuples by a decision of its own",
    )
    for batch, offset in enumerate((start, end)):
        LocalStore(tmp_path).write(f"offsets/{batch}", f"v1\n{{}}\n{json.dumps(offset.to_json())}".encode())
    assert journaled_ranges(LocalStore(tmp_path), 1) == ranges
    assert journaled_ranges(LocalStore(tmp_path), 0) == (OffsetRange("clicks", 0, 0, 5, floodway=True),)
