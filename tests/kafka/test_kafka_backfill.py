"""What a shed dropped comes back to the tuple: kept and recovered together are what an unshed job would have had."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import floodway
from floodway.errors import InputError
from floodway.job.ledger.backfill import Live
from floodway.job.ledger.facts import FactsLog
from floodway.job.ledger.ledger import Ledger
from floodway.spark.audit.shed import audit_shed
from floodway.spark.shed.recovery.backfill import Backfill, BackfillError
from floodway.spark.shed.recovery.recover import Recovery
from floodway.spark.shed.shed import Shedder
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.spark.shedding import Scripted

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RECORDS = 400
PARTITIONS = 2
BATCHES = 4
"""A run's first batch decides nothing, and its second keeps all: two that drop."""
SCHEMA = "id int, user int, value double, ts timestamp"


def parsed(df: DataFrame) -> DataFrame:
    """What the job does between its source and the shed."""
    return df.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS r", "topic", "partition", "offset").select(
        "r.*", "topic", "partition", "offset"
    )


class Job:
    """A Kafka job that parses, sheds half of what it reads and remembers the ids that it kept."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path, options: dict[str, Any]) -> None:
        self.kept: list[int] = []
        self.kafka = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "startingOffsets": "earliest"}
        self.shed: Shedder = floodway.shed(
            "clicks", target_latency="2s", mode="enforce", controller=Scripted([0.5]),
            state_dir=str(folder / "state"), **options,
        )  # fmt: skip
        stream = spark.readStream.format("kafka").options(**self.kafka).load()
        shed = parsed(stream).withWatermark("ts", "1 hour").transform(self.shed)
        self.query = self._writer(shed).option("checkpointLocation", str(folder / "checkpoint")).start()
        self.producer = Producer(ordered(broker.address))
        self.topic = topic
        self.sent = 0

    def _writer(self, shed: DataFrame) -> DataStreamWriter:
        return shed.writeStream.foreachBatch(self._keep)

    def _keep(self, batch: DataFrame, _: int) -> None:
        self.kept += [row.id for row in batch.select("id").collect()]

    def send(self) -> None:
        """Records, processed and accounted for: one batch, or two if one is cut while they are still being sent."""
        self.produce()
        self.settle()

    def produce(self) -> None:
        """The next records."""
        for number in range(self.sent, self.sent + RECORDS):
            hour = number // RECORDS
            body = {"id": number, "user": number % 20, "value": number % 10, "ts": f"2026-01-01T{hour:02d}:00:00Z"}
            self.producer.produce(self.topic, value=json.dumps(body).encode(), partition=number % PARTITIONS)
        self.sent += RECORDS
        assert self.producer.flush(PATIENCE_SECONDS) == 0

    def settle(self) -> None:
        """Wait until all that was sent is processed and accounted for, and the next decision is in force."""
        self.query.processAllAvailable()
        wait_until(lambda: Ledger(self.shed.files.store).fold().total.offered.total() >= self.sent)
        valid = self.shed.loop.control.latest.valid_from_us
        wait_until(lambda: time.time_ns() // 1000 > valid, "the decision")


@pytest.fixture
def make(spark: SparkSession, broker: Broker, tmp_path: Path) -> Any:
    """Jobs that have dropped something and, if they have `ended`, were stopped."""
    jobs: list[Job] = []

    def made(name: str, *, ended: bool = True, **options: Any) -> Job:
        job = Job(spark, broker, broker.create_topic(name, PARTITIONS), tmp_path, options)
        jobs.append(job)
        for _ in range(BATCHES):
            job.send()
        if ended:
            job.query.stop()
        assert 0 < len(job.kept) < job.sent
        return job

    yield made
    for job in jobs:
        job.query.stop()


def on_files(name: str, **options: Any) -> Any:
    """Options whose drops are also found again to the tuple by a test of tests/spark, which needs no broker."""
    return pytest.param(options, id=name, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"identity": "id"}, id="hash"),
        on_files("utility", utility="value", identity="id"),
        on_files("key", key="user"),
        pytest.param({"window": floodway.WindowDrop("ts", "1 hour")}, id="window"),
        on_files("shares", share_by="least(user, 3)", identity="id", weights={"0": 2}),
        on_files("rare", keep_rare=2, rare_by="user", identity="id"),
        on_files("shares-rare", keep_rare=1, share_by="least(user, 3)"),
        on_files(
            "accuracy", accuracy=floodway.Accuracy("sum(value)", by="user % 2", within=0.2, share=0.9), identity="id"
        ),
    ],
)
def test_kept_and_dropped_are_all(make: Callable[..., Job], request: Any, options: dict[str, Any]) -> None:
    job = make(f"dropped-{request.node.callspec.id}", **options)
    gone = floodway.dropped("clicks", kafka=job.kafka, through=parsed, state_dir=str(job.shed.files.folder.parent))
    ids = [row.id for row in gone.select("id").collect()]
    assert sorted([*ids, *job.kept]) == list(range(job.sent))
    audit = audit_shed("clicks", job.shed.files, time.time())
    assert audit.differences == () and (audit.offered, audit.dropped) == (job.sent, len(ids))


def filled(spark: SparkSession, job: Job, run: Any, live: Any = lambda: Live(False)) -> Backfill:
    return Backfill("clicks", Recovery(spark, job.shed.files, job.kafka, parsed), run, live, sleep=lambda _: None)


def test_a_backfill_cut_short_goes_on_and_the_books_agree(make: Callable[..., Job], spark: SparkSession) -> None:
    job = make("backfill", identity="id")
    written: dict[str, list[int]] = {}

    class Killed(BaseException):
        """As a kill: nothing of ours sees it."""

    def dies(frame: DataFrame, step: str) -> None:
        written[step] = [row.id for row in frame.select("id").collect()]
        raise Killed

    with pytest.raises(Killed):
        list(filled(spark, job, dies).steps())
    audit = audit_shed("clicks", job.shed.files, time.time())
    assert audit.recovered == 0 and audit.remaining == audit.dropped == job.sent - len(job.kept)

    def run(frame: DataFrame, step: str) -> None:
        written[step] = [row.id for row in frame.select("id").collect()]

    work = filled(spark, job, run)
    *_, last = work.steps()
    recovered = [number for ids in written.values() for number in ids]
    assert sorted([*recovered, *job.kept]) == list(range(job.sent))
    audit = audit_shed("clicks", job.shed.files, time.time())
    assert audit.kept + audit.recovered == audit.offered == job.sent
    assert (audit.lost, audit.remaining, audit.differences) == (0, 0, ())
    assert (last.remaining, last.lost, work.differences()) == (0, 0, [])
    assert list(filled(spark, job, dies).steps()) == []  # nothing is left to do
    # Killed between the ledger and the removal of the note: another time that is asked for does not repeat the step.
    batches = [[one.query, one.batch] for one in FactsLog(job.shed.files.store).read()]
    job.shed.files.store.write("backfill/clicks.json", json.dumps({"version": 1, "batches": batches}).encode())
    assert list(replace(filled(spark, job, dies), since_us=time.time_ns() // 1000).steps()) == []


def test_what_the_live_job_drops_meanwhile_is_recovered_too(make: Callable[..., Job], spark: SparkSession) -> None:
    job = make("meanwhile", ended=False, identity="id")
    written: list[int] = []

    def run(frame: DataFrame, step: str) -> None:
        if not written:
            job.send()
        written.extend(row.id for row in frame.select("id").collect())

    before = job.sent
    work = filled(spark, job, run)
    *_, last = work.steps()
    assert job.sent > before and (last.remaining, last.recovered) == (0, job.sent - len(job.kept))
    assert sorted([*written, *job.kept]) == list(range(job.sent)) and work.differences() == []


def test_it_waits_for_a_quiet_live_job_and_the_breaker_ends_it(
    make: Callable[..., Job], spark: SparkSession, broker: Broker
) -> None:
    job = make("breaker", identity="id")
    live = iter([Live(True, 1.0, 2.0, keep=0.4), Live(True, 3.0, 2.0), *[Live(True, 1.0, 2.0)] * 100])

    def fails(_: DataFrame, step: str) -> None:
        raise RuntimeError("the warehouse is full")

    work = filled(spark, job, fails, lambda: next(live))
    told = []
    with pytest.raises(BackfillError, match="the warehouse is full"):
        told += [one.waiting for one in work.steps()]
    assert work.progress().recovered == 0
    # What retention takes before the cause is mended is counted as lost.
    admin, dropped = AdminClient({"bootstrap.servers": broker.address}), work.progress().dropped
    for future in admin.delete_records([TopicPartition(job.topic, 0, OFFSET_END)]).values():
        future.result()
    written: list[int] = []
    work = filled(spark, job, lambda frame, _: written.extend(row.id for row in frame.collect()))
    *_, last = work.steps()
    assert (last.recovered, last.recovered + last.lost, last.remaining) == (len(written), dropped, 0)
    assert 0 < last.recovered < dropped and work.differences() == []
    audit = audit_shed("clicks", job.shed.files, time.time())
    assert audit.kept + audit.recovered + audit.lost == audit.offered and audit.remaining == 0
    assert (audit.lost, audit.differences) == (last.lost, ())


class FileJob(Job):
    """The same with Spark's file sink, which knows batches again that it has committed."""

    def _writer(self, shed: DataFrame) -> DataStreamWriter:
        return shed.writeStream.format("parquet").option("path", str(self.shed.files.folder.parents[1] / "kept"))


def end_of(job: Job) -> None:
    job.query.stop()
    wait_until(lambda: job.shed.loop.finished, "the end of the query")


def test_a_batch_that_only_the_sink_had_committed_is_counted_by_the_backfill(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """The driver dies between the commit of the sink and that of Spark: the next one runs nothing."""
    topic = broker.create_topic("sink-first", PARTITIONS)
    job = FileJob(spark, broker, topic, tmp_path, {"identity": "id"})
    for _ in range(BATCHES):
        job.send()
    end_of(job)  # files that nobody writes any more can be copied
    shutil.copytree(tmp_path / "state", tmp_path / "before")
    shutil.copytree(tmp_path / "checkpoint" / "floodway", tmp_path / "copies")  # a driver that dies writes neither
    job.produce()  # before the query starts again: one batch takes all of it
    sent, job = job.sent, FileJob(spark, broker, topic, tmp_path, {"identity": "id"})
    job.sent = sent
    job.settle()
    end_of(job)
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "before", tmp_path / "state")
    shutil.rmtree(tmp_path / "checkpoint" / "floodway")
    shutil.copytree(tmp_path / "copies", tmp_path / "checkpoint" / "floodway")
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink()

    again = FileJob(spark, broker, topic, tmp_path, {"identity": "id"})
    try:
        wait_until(lambda: Ledger(again.shed.files.store).fold().lost_batches == 1, "the gap")
    finally:
        again.query.stop()
    written: list[int] = []
    work = filled(spark, again, lambda frame, _: written.extend(row.id for row in frame.collect()))
    *_, end = work.steps()
    assert end.remaining == 0 and work.differences() == []
    kept = [row.id for row in spark.read.parquet(str(tmp_path / "kept")).collect()]
    assert sorted([*written, *kept]) == list(range(sent))
    audit = audit_shed("clicks", again.shed.files, time.time())
    assert audit.kept + audit.recovered == audit.offered == sent and audit.kept == len(kept)


def test_what_never_ran_or_cannot_be_read_again_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nobody holds no shed that has run"):
        floodway.dropped("nobody", kafka={}, state_dir=str(tmp_path), spark=spark)
    assert list(FactsLog(floodway.shed("x", target_latency=1, state_dir=str(tmp_path)).files.store).read()) == []
