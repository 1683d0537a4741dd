"""A state folder that was restored from a copy while the checkpoint went on: what is known of the batches since."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from floodway.errors import InputError
from floodway.job.decision import write_mode
from floodway.job.ledger.facts import BatchFacts
from floodway.job.ledger.ledger import Ledger
from floodway.job.places import ShedFiles
from floodway.job.store.store import LocalStore
from floodway.planning.windows.window_drop import WindowShape
from floodway.spark.audit.shed import audit_shed
from floodway.spark.shed.control_table import Entry
from floodway.spark.shed.loop import ShedLoop
from floodway.spark.shed.report import BatchReport
from floodway.spark.shed.state_copies import RESTORED
from floodway.units import PPM
from tests.spark.test_spark_shed_log import ended, ran_on
from tests.spark.test_spark_shed_loop import SECOND, Job
from tests.spark.test_spark_shed_unreported import facts_of, journal, ranges

OLDER = "is older than the checkpoint of query q"


class Restored:
    """A job whose state is copied after some batches and put back after more, with what each batch really found."""

    def __init__(self, folder: Path) -> None:
        self.job = Job(folder / "job", rate=15_000.0)
        self.checkpoint = folder / "checkpoint"
        self.found: dict[int, Entry] = {}
        self.times: dict[int, int] = {}
        self.start(self.job.start)

    def start(self, make: Callable[[], ShedLoop]) -> None:
        self.make, self.job.loop = make, make()
        self.job.loop.on_start("q", str(self.checkpoint))

    def run(self, batches: int) -> None:
        for report in self.job.reports(batches):
            self.begin(report.batch, report.started_us)
            self.job.loop.on_batch(replace(report, ranges=ranges(report.batch)))
            LocalStore(self.checkpoint).write(f"commits/{report.batch}", b"v1\n{}")

    def begin(self, batch: int, started_us: int) -> None:
        self.times[batch] = started_us // 1000 * 1000
        journal(self.checkpoint, batch, started_us)
        self.found[batch] = self.job.loop.control.table.at(started_us)

    def copy(self) -> None:
        shutil.copytree(self.job.folder, self.job.folder.with_name("copy"))

    def restore(self) -> ShedLoop:
        shutil.rmtree(self.job.folder)
        shutil.copytree(self.job.folder.with_name("copy"), self.job.folder)
        self.job.now_us += SECOND
        self.start(self.make)
        return self.job.loop

    def keep(self, batch: int) -> tuple[int, int]:
        """What a batch really kept by."""
        return self.found[batch].keep_at(self.times[batch]), self.found[batch].salt


@pytest.fixture
def restored(tmp_path: Path) -> Restored:
    """Copied after six batches, put back after twelve and while a thirteenth is under way."""
    made = Restored(tmp_path)
    made.run(6)
    made.copy()
    made.run(6)
    made.begin(12, made.job.now_us)
    return made


def told_right(restored: Restored, facts: dict[int, BatchFacts], batches: range) -> list[int]:
    """Of which of these batches a decision is told; each has to be the real one."""
    told = [batch for batch in batches if batch in facts]
    for batch in told:
        assert (facts[batch].keep_ppm, facts[batch].salt) == restored.keep(batch), f"batch {batch}"
    return told


def test_batches_after_the_copy_are_a_gap_and_none_has_a_decision_of_another(restored: Restored) -> None:
    assert restored.keep(5) != restored.keep(7) and restored.keep(7)[0] < PPM
    restored.restore()
    restored.run(2)
    ledger = Ledger(restored.job.loop.files.store)
    assert ledger.fold().differences() == ["query q, job: no counts for batches 6 to 11"]
    # Of the last one the table in the checkpoint still has the decision; whether it was made good nobody knows.
    assert told_right(restored, facts_of(restored.job), range(6, 12)) == []
    status = restored.job.loop.files.read_status()
    assert status is not None and OLDER in status.warnings[0] and status.errors == 0


def test_a_batch_under_way_is_repeated_with_its_own_decision(restored: Restored) -> None:
    last = restored.job.loop.control.latest
    table = restored.restore().control.table
    assert replace(table.at(restored.times[12]), until_us=None) == replace(restored.found[12], until_us=None)
    assert table.latest.seq >= last.seq and table.latest.keep_ppm == last.keep_ppm


@pytest.mark.parametrize("gone", ["removed", "damaged"])
def test_without_the_copy_in_the_checkpoint_no_decision_is_told(restored: Restored, gone: str) -> None:
    copy = restored.checkpoint / "floodway" / restored.job.loop.files.key("job") / "control.json"
    copy.unlink() if gone == "removed" else copy.write_bytes(b"{")
    restored.restore()
    restored.run(2)
    assert told_right(restored, facts_of(restored.job), range(6, 12)) == []
    assert Ledger(restored.job.loop.files.store).fold().differences() == ["query q, job: no counts for batches 6 to 11"]


def test_an_older_ledger_beside_the_newest_decisions_is_a_gap_too(restored: Restored) -> None:
    now = (restored.job.folder / "control.json").read_bytes()
    (restored.job.folder.with_name("copy") / "control.json").write_bytes(now)
    restored.restore()
    restored.run(2)
    assert told_right(restored, facts_of(restored.job), range(6, 12)) == [11]


def test_a_copy_is_older_too_if_its_decision_was_only_renewed_since(tmp_path: Path) -> None:
    """By the copy it had expired, and the batches since would have kept everything."""
    made = Restored(tmp_path)
    settings = replace(made.job.loop.settings, expires_seconds=30.0)
    made.start(lambda: ShedLoop(settings, ShedFiles(made.job.folder), clock_us=lambda: made.job.now_us))
    made.run(6)
    made.copy()
    for batch in range(6, 46):
        made.job.now_us += 2 * SECOND
        made.job.loop.renew()
        made.begin(batch, made.job.now_us)
        LocalStore(made.checkpoint).write(f"commits/{batch}", b"v1\n{}")
    assert made.keep(45)[0] < PPM
    made.restore()
    made.job.batch = 46
    made.run(1)
    assert told_right(made, facts_of(made.job), range(6, 46)) == []
    assert OLDER in made.job.loop.warnings[0]


@pytest.mark.parametrize(
    ("before", "since", "now"),
    [("enforce", "off", "off"), ("off", "enforce", "off"), ("observe", "off", "observe"), (None, "off", "off")],
)
def test_of_two_modes_of_the_operator_the_one_that_drops_less_holds(
    tmp_path: Path, before: str | None, since: str, now: str
) -> None:
    made = Restored(tmp_path)
    if before is not None:
        write_mode(made.job.loop.files.store, before)
    made.run(6)
    made.copy()
    write_mode(made.job.loop.files.store, since)
    made.run(6)
    loop = made.restore()
    made.run(1)
    assert (loop.control.latest.mode, loop.files.read_mode()) == (now, now)


def test_windows_wait_for_the_clock(tmp_path: Path) -> None:
    """The restored status may be older than event times that were seen."""
    made = Restored(tmp_path)
    settings = replace(made.job.loop.settings, window=WindowShape(10 * SECOND, 10 * SECOND))
    made.start(lambda: ShedLoop(settings, ShedFiles(made.job.folder), clock_us=lambda: made.job.now_us))

    def run(reports: Iterator[BatchReport]) -> None:
        for report in reports:
            made.begin(report.batch, report.started_us)
            made.job.loop.on_batch(replace(report, event_us=report.started_us))

    run(made.job.reports(4))
    made.copy()
    run(made.job.reports(8))
    epochs = made.job.loop.control.table.epochs
    windows = made.restore().windows
    assert windows is not None and windows.epochs.history == epochs
    assert windows.unsure_until_us == made.job.now_us


@pytest.mark.spark
def test_a_backfill_on_spark_recovers_nothing_that_was_kept_or_made_good(spark: SparkSession, tmp_path: Path) -> None:
    job = ended(spark, tmp_path, keep=0.2)
    shutil.copytree(job.folder / "state", job.folder / "copy")
    copied, first = job.sent, max(line.batch for line in Ledger(job.files.store).read()) + 1
    job = ran_on(job, 5, keep=0.9)
    recovered = list[int]()

    def backfill(since_us: int | None = None) -> None:
        def run(frame: DataFrame, _: str) -> None:
            recovered.extend(row.id for row in frame.select("id").collect())

        list(job.backfill(run, since_us).steps())

    backfill()
    assert sorted([*recovered, *job.kept]) == list(range(job.sent))
    gone = job.sent
    shutil.rmtree(job.folder / "state")
    (job.folder / "copy").rename(job.folder / "state")
    with pytest.raises(InputError, match="is older than the checkpoint of query"):
        backfill()
    job = ran_on(job, 2, keep=0.5)
    with pytest.raises(InputError, match=r"what a backfill processed since, up to .* is not known"):
        backfill()
    backfill(json.loads((job.folder / "state" / "clicks" / RESTORED).read_text())["time_us"])
    assert sorted([*recovered, *job.kept]) == list(range(job.sent)), "neither what was kept nor what was made good"
    # What cannot be told is a gap by its batches, in the audit; the status says why.
    audit = audit_shed("clicks", job.files, time.time())
    assert len(audit.differences) == 1 and f"no counts for batches {first} to" in audit.differences[0]
    assert audit.offered == job.sent - (gone - copied)
    status = job.files.read_status()
    assert status is not None and "is older than the checkpoint of query" in status.warnings[0]
