"""A state folder that was lost while the checkpoint was kept, as in a new pod: what begins again, and what is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from pyspark.sql import SparkSession

from floodway.job.decision import write_mode
from floodway.job.ledger.ledger import Ledger
from floodway.job.places import ShedFiles
from floodway.job.store.store import InTime, LocalStore, always
from floodway.planning.windows.window_drop import WindowShape
from floodway.spark.audit.shed import audit_shed
from floodway.spark.shed.control_file import LATE
from floodway.spark.shed.control_table import EVER_US
from floodway.spark.shed.loop import ShedLoop
from floodway.units import PPM
from tests.patience import wait_until
from tests.spark.shedding import Stream
from tests.spark.test_spark_shed_loop import SECOND, Job

LOST = "is not here: batches 0 to 5 of query q are not accounted for; the mode is {mode}"


def ran(tmp_path: Path, mode: str | None = None) -> Job:
    """Six batches in overload, and a seventh that began."""
    job = Job(tmp_path / "state", rate=15_000.0)
    job.loop.on_start("q", str(tmp_path / "checkpoint"))
    job.run(3)
    if mode is not None:
        write_mode(job.loop.files.store, mode)
    job.run(3)
    assert not job.loop.warnings
    begun(tmp_path, 6, job.now_us)
    return job


def begun(tmp_path: Path, batch: int, time_us: int) -> None:
    """A batch that is journaled and not committed, as Spark has it."""
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch)).write_text("v1\n" + json.dumps({"batchTimestampMs": time_us // 1000}) + "\n{}")


def copy_of(job: Job, tmp_path: Path) -> Path:
    return tmp_path / "checkpoint" / "floodway" / job.loop.files.key("job") / "control.json"


def restarted(job: Job, tmp_path: Path, *, lost: bool = True) -> ShedLoop:
    if lost:
        rmtree(job.folder)
    job.now_us += SECOND
    job.loop = job.start()
    job.loop.on_start("q", str(tmp_path / "checkpoint"))
    return job.loop


@pytest.mark.parametrize("mode", [None, "off", "observe"])
def test_the_decision_of_a_replay_and_the_mode_come_from_the_checkpoint(tmp_path: Path, mode: str | None) -> None:
    job = ran(tmp_path, mode)
    time_us = job.now_us // 1000 * 1000
    first = job.loop.control.table.at(time_us)
    assert (first.keep_ppm < PPM) == (mode != "off") and first.mode == (mode or "enforce")
    again = next(job.reports(1, run="r2"))
    loop = restarted(job, tmp_path)
    assert replace(loop.control.table.at(time_us), until_us=None) == replace(first, until_us=None)
    loop.on_batch(again)
    assert loop.control.table.at(EVER_US - 1).mode == (mode or "enforce")
    status = loop.files.read_status()
    assert status is not None and len(status.warnings) == 1
    assert LOST.format(mode=mode or "enforce") in status.warnings[0]
    ledger = Ledger(loop.files.store)
    assert ledger.fold().differences() == ["query q, job: no counts for batches 0 to 5"]
    job.run(3)
    assert len(ledger.fold().differences()) == 1
    # What is lost once more begins with what was decided last.
    last = loop.control.latest
    assert restarted(job, tmp_path).control.latest.seq >= last.seq > 0


@pytest.mark.parametrize("first", [0, 7])
def test_a_new_state_in_an_old_query_without_a_checkpoint_to_read_is_said(tmp_path: Path, first: int) -> None:
    """Spark Connect does not tell where it is."""
    job = Job(tmp_path / "job", batch=first)
    job.loop.on_start("q", None)
    job.run(2)
    said = list(job.loop.warnings)
    assert len(said) == (1 if first else 0)
    assert not first or ("batches 0 to 6 of query q are not accounted" in said[0] and "the mode is enforce" in said[0])
    job.loop = job.start()  # what is on record needs no words
    job.run(2)
    assert not job.loop.warnings


def test_without_a_copy_the_first_decision_of_a_replay_is_not_known(tmp_path: Path) -> None:
    job = ran(tmp_path)
    again = next(job.reports(1, run="r2"))
    copy = copy_of(job, tmp_path)
    copy.write_text(copy.read_text()[:50])
    loop = restarted(job, tmp_path)
    loop.on_batch(again)
    status = loop.files.read_status()
    assert status is not None and LOST.format(mode="observe") in status.warnings[0] and status.errors == 1
    assert (status.mode, loop.files.read_mode()) == ("observe", "observe"), "the operator may have asked for anything"
    assert status.warnings[1] == "batch 6 of query q is a replay; its first decision is not known"


def test_reports_that_were_lost_are_no_lost_state(tmp_path: Path) -> None:
    """The driver died between the commits of its first batches and their reports; the state is where it was."""
    job = ran(tmp_path)
    rmtree(job.folder / "ledger")
    loop = restarted(job, tmp_path, lost=False)
    job.run(1)
    status = loop.files.read_status()
    assert status is not None and status.warnings == (
        "batches 0 to 5 of query q are not accounted for: the driver ended before it had their reports",
    )


def test_a_damaged_record_in_a_checkpoint_is_said(tmp_path: Path) -> None:
    job = ran(tmp_path)
    record = tmp_path / "checkpoint" / "floodway" / "job.json"
    record.write_text("null")
    loop = restarted(job, tmp_path)
    job.run(1)
    status = loop.files.read_status()
    assert status is not None and status.errors == 1 and record.read_text() == "null"


def test_a_state_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    job = ran(tmp_path, "off")
    older = copy_of(job, tmp_path).read_bytes()
    write_mode(job.loop.files.store, "enforce")
    job.run(2)
    copy_of(job, tmp_path).write_bytes(older)
    latest = job.loop.control.latest
    loop = restarted(job, tmp_path, lost=False)
    assert loop.control.latest.seq == latest.seq and loop.control.latest.mode == "enforce"
    assert loop.files.read_mode() == "enforce"


def test_a_shed_that_is_new_in_an_old_query_has_lost_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path / "other")
    LocalStore(tmp_path / "old").write("commits/499", b"v1\n{}")
    job.loop.on_start("q", str(tmp_path / "old"))
    job.loop.on_start("foreign", str(tmp_path / "foreign"))
    job.batch = 500
    job.run(1)
    job.loop.on_foreign("foreign")
    job.run(2)
    assert not job.loop.warnings and Ledger(job.loop.files.store).fold().differences() == []
    assert not (tmp_path / "foreign").exists()  # nothing is written into what is not ours


def test_another_shed_of_the_same_name_leaves_the_copy_alone(tmp_path: Path) -> None:
    job = ran(tmp_path, "off")
    copied = copy_of(job, tmp_path).read_bytes()
    other = Job(tmp_path / "elsewhere")  # it hears of all queries of the process
    other.loop.on_start("q", str(tmp_path / "checkpoint"))
    other.loop.on_foreign("q")
    other.loop.control.put(replace(other.loop.control.latest, mode="observe"))
    assert other.loop.files.read_mode() is None
    assert copy_of(job, tmp_path).read_bytes() == copied
    assert restarted(job, tmp_path).control.latest.mode == "off"


def test_windows_that_are_open_keep_their_epochs(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=15_000.0)
    settings = replace(job.loop.settings, window=WindowShape(10 * SECOND, 10 * SECOND))

    def started() -> ShedLoop:
        loop = ShedLoop(settings, ShedFiles(tmp_path / "state"), clock_us=lambda: job.now_us)
        loop.on_start("q", str(tmp_path / "checkpoint"))
        return loop

    job.loop = started()
    for report in job.reports(8):
        job.loop.on_batch(replace(report, event_us=report.started_us))
    epochs = job.loop.control.table.epochs
    assert len(epochs) > 1
    rmtree(tmp_path / "state")
    again = started()
    assert again.control.table.epochs == epochs
    assert again.windows is not None and again.windows.epochs.history == epochs
    assert again.windows.unsure_until_us == job.now_us


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    made = Stream(
        spark, tmp_path, "id bigint", lambda df, shed: df.transform(shed), {"identity": "id", "mode": "observe"}
    )
    yield made
    made.stop()


@pytest.mark.spark
def test_a_batch_is_repeated_on_spark_with_the_decision_of_its_first_try(stream: Stream) -> None:
    stream.start()
    write_mode(stream.shed.files.store, "enforce")
    stream.keeps.append(0.5)
    for batch in range(4):
        stream.feed(json.dumps({"id": number}) for number in range(1000 * batch, 1000 * (batch + 1)))
    first = {row.id for row in stream.results[3]}
    assert 0 < len(first) < 1000
    stream.stop()
    wait_until(lambda: stream.shed.loop.finished, "the end of the query")
    for name in ("3", ".3.crc"):
        (stream.folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    (stream.folder / "state").rename(stream.folder / "gone")
    stream.results.clear()
    stream.start()
    stream.query.processAllAvailable()
    assert {row.id for row in stream.results[3]} == first
    stream.settle()
    status = stream.shed.files.read_status()
    assert status is not None and status.mode == "enforce"
    assert "batches 0 to 2" in status.warnings[0] and len(status.warnings) == 1


@pytest.mark.parametrize("left", [b"", bytes(4096), b'{"na'])
def test_a_power_loss_takes_what_was_learnt_and_neither_decision_nor_account(tmp_path: Path, left: bytes) -> None:
    """Status and batches are not flushed: then they may be old, empty or full of zeros."""
    job = Job(tmp_path / "state", rate=15_000.0)
    job.run(10)
    decided, offered = job.loop.control.latest, job.loop.ledger.fold().total.offered
    for path in (job.folder / "status.json", *(job.folder / "batches").iterdir()):
        path.write_bytes(left)
    job.loop = job.start()
    assert job.loop.control.latest.keep_ppm == decided.keep_ppm < PPM
    job.run(3)
    status = job.loop.files.read_status()
    assert status is not None and status.totals.offered > offered["job"]
    assert job.loop.ledger.fold().differences() == [] and job.loop.errors == 0
    assert job.loop.control.latest.keep_ppm < PPM


def test_decisions_that_came_too_late_are_said_also_after_a_restart_and_by_an_audit(tmp_path: Path) -> None:
    job = Job(tmp_path / "state", rate=15_000.0)
    store = job.loop.control._store
    fast = store.write

    def slow(name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        job.now_us += 61 * SECOND if name == "control.json" else 0
        return fast(name, data, durable=durable, in_time=in_time)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "write", slow)
        job.run(3)
    job.run(1)
    said = LATE.format(count=job.loop.control.late_writes)
    assert job.loop.control.late_writes > 0
    job.loop = job.start()
    job.run(1)
    status = job.loop.files.read_status()
    assert status is not None and said in status.warnings
    assert f"job: {said}" in audit_shed("job", job.loop.files, job.now_us / 1e6).unchecked
