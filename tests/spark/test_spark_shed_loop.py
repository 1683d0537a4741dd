"""The loop of a shed on a simulated job: no Spark, a clock that is told the time, real files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from floodway.control.base import Controller, Decision, Observation, State
from floodway.control.registry import make_controller
from floodway.errors import InputError
from floodway.job.decision import write_mode
from floodway.job.ledger.facts import OffsetRange
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.places import ShedFiles
from floodway.job.store.store import LocalStore
from floodway.planning.windows.window_drop import WindowShape
from floodway.spark.shed.chooser import ShedSettings
from floodway.spark.shed.control_table import Entry
from floodway.spark.shed.loop import ShedLoop
from floodway.spark.shed.report import BatchReport
from floodway.spark.shed.utility import Utilities
from floodway.units import PPM
from tests.job.ledgers import open_segment

SECOND = 1_000_000


@dataclass
class Job:
    """Micro-batches back to back, each of overhead + cost * kept seconds; tuples arrive at a steady rate."""

    folder: Path
    rate: float = 10_000.0
    overhead: float = 0.3
    cost: float = 0.0002
    target: float = 2.0
    own_target: float | None = None
    mode: str = "enforce"
    shed_after: float = 0.0
    now_us: int = 1_700_000_000 * SECOND
    previous_us: int = 0
    batch: int = 0
    latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.previous_us = self.now_us - SECOND
        self.loop = self.start()

    def start(self) -> ShedLoop:
        controller = make_controller("batch", target_seconds=self.own_target or self.target)
        settings = ShedSettings("job", self.target, controller, "enforce", salt=1, shed_after_seconds=self.shed_after)
        return ShedLoop(settings, ShedFiles(self.folder), clock_us=lambda: self.now_us)

    def run(self, batches: int) -> None:
        for report in self.reports(batches):
            self.loop.on_batch(report)

    def reports(self, batches: int, run: str = "r1") -> Iterator[BatchReport]:
        for _ in range(batches):
            # A batch begins before the report of the one before is written: it looks up its own timestamp.
            started, offered = self.now_us, round(self.rate * (self.now_us - self.previous_us) / 1e6)
            entry = self.loop.control.table.at(started)
            keep = entry.keep_at(started) if entry.mode == "enforce" else PPM
            kept = offered * keep // PPM
            seconds = self.overhead + self.cost * kept
            self.latencies.append((started - self.previous_us) / 2e6 + seconds)
            self.previous_us, self.now_us = started, started + round(seconds * 1e6)
            self.batch += 1
            yield BatchReport(
                "q", run, self.batch - 1, started, seconds, offered, kept, started, entry.seq, keep, entry.mode
            )


def test_nothing_is_dropped_before_an_overload_has_lasted(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=8_000.0, shed_after=20.0)
    began = job.now_us
    while job.now_us < began + 20 * SECOND:
        job.run(1)
    status = job.loop.files.read_status()
    assert status is not None and status.totals.offered == status.totals.kept
    assert status.capacity_needed is not None and status.capacity_needed > 1.5
    assert status.reason.startswith("overloaded for ") and "nothing is dropped in the first 20 s" in status.reason
    job.run(40)
    status = job.loop.files.read_status()
    assert status is not None and status.totals.dropped["shedder"] > 0
    assert sum(job.latencies[-15:]) / 15 == pytest.approx(2.0, rel=0.15)
    # When the load has fallen the next overload has its time again.
    job.rate = 1_000.0
    job.run(20)
    job.rate, dropped = 8_000.0, status.totals.dropped["shedder"]
    before = job.loop.files.read_status()
    job.run(4)
    after = job.loop.files.read_status()
    assert before is not None and after is not None and before.keep == 1.0
    assert after.totals.dropped == before.totals.dropped and before.totals.dropped["shedder"] >= dropped


@pytest.mark.parametrize(("waited_us", "keeps"), [(5_000, [PPM, PPM, 250_000]), (200_000, [PPM, PPM, PPM])])
def test_a_start_in_overload_is_shed_from_the_third_batch_on(tmp_path: Path, waited_us: int, keeps: list[int]) -> None:
    """Batches of 2, 5 and (kept whole) 10 s. One that waited for its trigger is offered more, and says nothing."""
    job, journal = Job(tmp_path / "job", rate=10_000.0), LocalStore(tmp_path / "checkpoint")
    job.loop.on_start("q", str(tmp_path / "checkpoint"), "r1")
    found = []
    for report in job.reports(3):
        job.loop.on_batch(report)
        found.append(report.keep_ppm)
        job.now_us += waited_us
        journal.write(f"offsets/{job.batch}", b'v1\n{"batchTimestampMs": %d}\n{}' % (job.now_us // 1000))
        job.loop.follow_second()
    assert found == keeps


@pytest.mark.parametrize(("looked_us", "follows"), [(SECOND, True), (3 * SECOND, False)])
def test_a_second_batch_is_looked_for_in_the_first_seconds_only(tmp_path: Path, looked_us: int, follows: bool) -> None:
    """A query that waits for its trigger would be asked for its journal for as long as that takes."""
    job, journal = Job(tmp_path / "job"), LocalStore(tmp_path / "checkpoint")
    job.loop.on_start("q", str(tmp_path / "checkpoint"), "r1")
    job.run(1)
    ended_us, job.now_us = job.now_us, job.now_us + looked_us
    job.loop.follow_second()
    journal.write("offsets/1", b'v1\n{"batchTimestampMs": %d}\n{}' % (ended_us // 1000))
    job.loop.follow_second()
    assert (job.loop.control.latest.budget is not None) == follows


@pytest.mark.parametrize("back", [3600, 86_400])
def test_a_clock_set_back_makes_no_overload_younger(tmp_path: Path, back: int) -> None:
    job = Job(tmp_path / "job", rate=8_000.0, shed_after=20.0)
    began = job.now_us
    while job.now_us < began + 10 * SECOND:
        job.run(1)
    held = job.now_us - began
    job.now_us, job.previous_us = job.now_us - back * SECOND, job.previous_us - back * SECOND
    began = job.now_us
    while held + job.now_us - began < 300 * SECOND:
        job.run(1)
    status = job.loop.files.read_status()
    assert status is not None and status.totals.dropped["shedder"] > 0


def test_what_a_batch_dropped_can_be_found_when_the_ledger_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path / "job", rate=25_000.0)
    append = Ledger.append
    without: list[int] = []

    def appended(ledger: Ledger, lines: Iterable[LedgerLine]) -> int:
        known = {facts.batch for facts in job.loop.facts.read()}
        wanted = list(lines)
        without.extend(line.batch for line in wanted if line.dropped and line.batch not in known)
        return append(ledger, wanted)

    monkeypatch.setattr(Ledger, "append", appended)
    job.run(10)
    assert any(line.dropped for line in job.loop.ledger.read()) and without == []


def test_latency_settles_at_the_target_under_fivefold_overload(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=25_000.0)
    job.run(60)
    settled = job.latencies[20:]
    assert sum(settled) / len(settled) == pytest.approx(2.0, rel=0.1)
    status = job.loop.files.read_status()
    assert status is not None
    assert status.latency.mean == pytest.approx(2.0, rel=0.15)
    assert status.keep < 0.25
    assert status.totals.offered == status.totals.kept + status.totals.dropped["shedder"]
    ledger = Ledger(job.loop.files.store)
    assert len(ledger.read()) == 60
    assert ledger.fold().differences() == []
    assert ledger.fold().total.dropped.total() == status.totals.dropped["shedder"]


def test_a_law_that_was_made_for_another_target_is_told_this_one(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=25_000.0, own_target=30.0)
    job.run(60)
    settled = job.latencies[20:]
    assert sum(settled) / len(settled) == pytest.approx(2.0, rel=0.1)


def test_a_step_in_load_is_met_three_batches_after_the_one_it_began_in(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=2_000.0)
    job.run(20)
    job.rate = 15_000.0
    job.latencies.clear()
    job.run(12)
    assert max(job.latencies[3:]) < 2.0 * 1.1
    # The same load without a shed: batches grow without end.
    free = Job(tmp_path / "free", rate=15_000.0)
    write_mode(free.loop.files.store, "off")
    free.loop = free.start()
    free.run(8)
    assert free.latencies[-1] > 10 * 2.0


def test_light_load_is_left_alone(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=1_000.0)
    job.run(30)
    assert Ledger(job.loop.files.store).fold().total.dropped.total() == 0


def test_modes_are_followed_while_running(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=15_000.0)
    write_mode(job.loop.files.store, "observe")
    job.loop = job.start()
    job.run(3)
    assert Ledger(job.loop.files.store).fold().total.dropped.total() == 0
    status = job.loop.files.read_status()
    assert status is not None
    assert status.mode == "observe"
    assert status.keep < 1.0
    write_mode(job.loop.files.store, "enforce")
    job.run(6)
    assert Ledger(job.loop.files.store).fold().total.dropped.total() > 0
    write_mode(job.loop.files.store, "off")
    job.run(2)
    before = Ledger(job.loop.files.store).fold().total.dropped.total()
    job.run(2)
    assert Ledger(job.loop.files.store).fold().total.dropped.total() == before
    assert job.loop.control.latest.mode == "off"


def test_the_kill_switch_holds_for_the_next_batch_while_one_runs(tmp_path: Path) -> None:
    """The next one begins before the report of this one is in: a heartbeat looks at the mode in between."""
    job = Job(tmp_path / "job", rate=25_000.0)
    job.loop.on_start("q", None)
    job.run(6)
    began_us = job.now_us
    assert job.loop.control.table.at(began_us).keep_at(began_us) < PPM
    job.now_us += 5 * SECOND
    write_mode(job.loop.files.store, "off")
    job.loop.follow_mode()
    job.now_us += 5 * SECOND
    assert job.loop.control.table.at(began_us).mode == "enforce" and job.loop.control.table.at(job.now_us).mode == "off"
    status = job.loop.files.read_status()
    assert status is not None and status.mode == "off"
    job.loop.on_end("q")
    write_mode(job.loop.files.store, "enforce")
    job.loop.follow_mode()  # no query is left
    assert job.loop.control.latest.mode == "off"


@dataclass(frozen=True)
class Broken(Controller[State]):
    """A user's own law with a fault in it."""

    name: ClassVar[str] = "broken"
    signal: ClassVar[str] = "batch_seconds"

    def initial(self) -> State:
        return State()

    def update(self, state: State, observation: Observation) -> tuple[State, Decision]:
        raise ZeroDivisionError


def test_a_fault_of_the_users_law_costs_no_account_and_no_kill_switch(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=25_000.0)
    job.run(6)
    settings = replace(job.loop.settings, controller=Broken())
    job.loop = ShedLoop(settings, ShedFiles(job.folder), clock_us=lambda: job.now_us)
    job.loop.on_start("q", None)
    job.run(3)
    assert [line.batch for line in Ledger(job.loop.files.store).read()] == list(range(9))
    write_mode(job.loop.files.store, "off")
    job.loop.follow_mode()
    assert job.loop.errors == 2 and job.loop.control.latest.mode == "off"


@pytest.mark.parametrize("damaged", [b'{"mode": "of', b'{"mode": "sometimes"}', b""])
def test_a_kill_switch_holds_when_its_file_is_damaged(tmp_path: Path, damaged: bytes) -> None:
    job = Job(tmp_path / "job", rate=25_000.0)
    job.loop.on_start("q", str(tmp_path / "checkpoint"))
    job.run(6)
    write_mode(job.loop.files.store, "off")
    job.run(2)
    before = Ledger(job.loop.files.store).fold().total.dropped.total()
    (job.folder / "mode.json").write_bytes(damaged)
    job.run(4)
    status = job.loop.files.read_status()
    assert status is not None and (status.mode, status.errors) == ("off", 1)
    assert f"{job.folder}/mode.json is damaged" in status.warnings[0] and "the mode stays off" in status.warnings[0]
    # A new process knows no last mode: it observes.
    job.loop = job.start()
    job.loop.on_start("q", str(tmp_path / "checkpoint"))
    job.run(4)
    status = job.loop.files.read_status()
    assert status is not None and (status.mode, status.errors) == ("observe", 1)
    assert "everything is kept, the mode is observe" in status.warnings[0]
    assert 0 < before == Ledger(job.loop.files.store).fold().total.dropped.total()
    # Nor is the wish lost in the copies: what begins with one observes too.
    (copy,) = (tmp_path / "checkpoint" / "floodway").glob("*/control.json")
    assert json.loads(copy.read_text())["mode"] == "observe"
    write_mode(job.loop.files.store, "enforce")
    job.run(6)
    status = job.loop.files.read_status()
    assert status is not None and status.mode == "enforce" and status.warnings == ()
    assert Ledger(job.loop.files.store).fold().total.dropped.total() > before


def test_a_damaged_wish_is_said_while_nothing_arrives(tmp_path: Path) -> None:
    job = Job(tmp_path / "job")
    job.loop.on_start("q", None)
    job.run(1)
    (job.folder / "mode.json").write_bytes(b"of")
    job.loop.on_idle("q", job.now_us)
    job.loop.renew()
    status = job.loop.files.read_status()
    assert status is not None and "is damaged" in status.warnings[0]


@pytest.mark.parametrize("status", ["as it was", "older", "empty"])
def test_a_restart_resumes_the_decision_and_the_model(tmp_path: Path, status: str) -> None:
    """A power loss may bring back a status of before, or none: it is not flushed where there are no windows."""
    job = Job(tmp_path / "job", rate=15_000.0)
    job.run(10)
    older = (job.folder / "status.json").read_bytes()
    job.run(10)
    if status != "as it was":
        (job.folder / "status.json").write_bytes(older if status == "older" else b"")
    learned = job.loop.control.latest
    job.loop = job.start()
    assert job.loop.control.latest == learned
    assert job.loop.figures.fold.total.offered.total() == Ledger(job.loop.files.store).fold().total.offered.total()
    job.latencies.clear()
    for report in job.reports(10, run="r2"):
        job.loop.on_batch(report)
    assert sum(job.latencies) / 10 == pytest.approx(2.0, rel=0.2)
    assert Ledger(job.loop.files.store).fold().differences() == []


def test_slow_first_batches_of_a_run_are_followed_by_less_and_not_by_the_last_runs_keep(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=25_000.0)
    job.run(30)
    (steady,) = job.reports(1)
    job.loop.on_batch(steady)
    job.overhead = 4.0
    for report in job.reports(2, run="r2"):
        job.loop.on_batch(report)
    job.overhead = 0.3
    (third,) = job.reports(1, run="r2")
    assert third.offered > 2 * steady.offered
    assert third.kept == pytest.approx(steady.kept, rel=0.2)


def test_after_downtime_results_are_in_time_from_the_third_batch_on(tmp_path: Path) -> None:
    """A job that keeps up, down for half an hour, and a process whose first two batches are slow."""
    law, now_us = make_controller("batch", target_seconds=5.0), [1_700_000_000 * SECOND]
    settings = ShedSettings("job", 5.0, law, "enforce", salt=1, max_age_us=10 * SECOND)
    loop = ShedLoop(settings, ShedFiles(tmp_path), clock_us=lambda: now_us[0])
    gap, rate, latencies, kept = 1800.0, 200, list[float](), list[float]()
    for batch, overhead in enumerate((10.0, 1.5, *[0.5] * 10)):
        started, offered, fresh = now_us[0], round(rate * gap), round(rate * min(gap, 10.0))
        entry = loop.control.table.at(started)
        keep = entry.keep_at(started)
        seconds = overhead + 0.002 * (fresh * keep // PPM)
        latencies.append(min(gap, 10.0) / 2 + seconds)
        kept.append(keep / PPM)
        now_us[0] += round(seconds * 1e6)
        report = BatchReport(
            "q", "r", batch, started, seconds, offered, fresh * keep // PPM, started, entry.seq, keep, entry.mode,
            stale=offered - fresh, skipped=offered - fresh,
        )  # fmt: skip
        loop.on_batch(report)
        gap = seconds
    assert max(latencies[:2]) > 10.0 and max(latencies[2:]) <= 5.0
    assert min(kept) > 0.5 and kept[5:] == [1.0] * 7  # nothing goes for a cost that only the start had


def test_a_lost_report_becomes_a_gap_and_a_replayed_one_is_counted_once(tmp_path: Path) -> None:
    job = Job(tmp_path / "job")
    reports = list(job.reports(6))
    for report in (*reports[:3], reports[2], *reports[4:]):
        job.loop.on_batch(report)
    ledger = Ledger(job.loop.files.store)
    assert [(line.batch, line.reason) for line in ledger.read()] == [
        (0, "shedder"), (1, "shedder"), (2, "shedder"), (3, "gap"), (4, "shedder"), (5, "shedder"),
    ]  # fmt: skip
    assert any("no counts for batches 3 to 3" in difference for difference in ledger.fold().differences())


@pytest.mark.parametrize(
    ("offered", "read", "uncertain"),
    [
        (1000, None, False),  # a filter before the shed: what was read says nothing
        (1000, 1000, False),
        (1000, 1007, False),  # isEmpty, then write
        (1000, 3000, False),  # three whole actions
        (21, 1021, True),  # write, then show
        (1, 1001, True),  # write, then isEmpty
        (0, 1000, True),
        (0, 0, False),
    ],
)
def test_counts_of_a_part_of_a_batch_are_known_as_such(offered: int, read: int | None, uncertain: bool) -> None:
    report = BatchReport("q", "r", 3, 0, 1.0, offered, offered // 2, read=read)
    assert report.uncertain is uncertain
    assert report.finished().offered == (1000 if uncertain and offered else offered)


@pytest.mark.parametrize(
    ("offered", "read", "uncertain"),
    [
        (100, 300, False),  # three whole actions
        (20, 120, True),  # write, then limit(20): as much as six whole actions of twenty tuples
        (50, 150, True),
        (100, 200, False),
    ],
)
def test_positions_tell_whole_actions_from_parts_of_a_batch(offered: int, read: int, uncertain: bool) -> None:
    positions = (OffsetRange("clicks", 0, 10, 70), OffsetRange("clicks", 1, 0, 40))
    report = BatchReport("q", "r", 3, 0, 1.0, offered, offered // 2, read=read, ranges=positions)
    assert report.uncertain is uncertain
    assert report.finished().offered == 100


def test_executors_that_do_not_see_the_decisions_are_known_within_three_batches(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=15_000.0)
    job.run(3)
    assert job.loop._watch.seen is True and not job.loop.warnings
    for report in job.reports(3):
        job.loop.on_batch(replace(report, seq=None, batch_time_us=None, keep_ppm=None, mode=None, kept=report.offered))
    status = job.loop.files.read_status()
    assert status is not None and status.decision_seen is False
    assert "do not find the decisions in file:" in status.warnings[0]
    job.run(1)
    status = job.loop.files.read_status()
    assert status is not None and status.decision_seen is True and status.warnings == ()


def test_a_decision_is_for_batches_that_begin_after_it_was_written(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=20_000.0)
    used: dict[int, Entry] = {}
    for report in job.reports(30):
        used[report.started_us] = job.loop.control.table.at(report.started_us)
        job.loop.on_batch(report)
    assert all(entry.valid_from_us <= started for started, entry in used.items())
    assert len({entry.seq for entry in used.values()}) > 10


def test_a_shed_that_another_process_runs_is_refused(tmp_path: Path) -> None:
    hold = "import sys; from floodway.job.store import lease, store; lease.hold(store.LocalStore(sys.argv[1]))"
    command = [sys.executable, "-c", f"{hold}; print('held', flush=True); sys.stdin.read()", str(tmp_path / "job")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"in use by process {other.pid}"):
            Job(tmp_path / "job")
        other.kill()
    Job(tmp_path / "job").start()  # the lock went with the process, and one process may start twice


@pytest.mark.parametrize("name", ["ledger", "facts"])
def test_a_disk_that_fails_for_a_while_costs_nothing(tmp_path: Path, name: str) -> None:
    job = Job(tmp_path / "job", rate=15_000.0)
    job.run(6)
    segment = next((job.loop.files.folder / name).glob("*.jsonl"))
    saved = segment.read_bytes()
    segment.unlink()
    segment.mkdir()
    job.run(2)
    assert job.loop.errors == 2
    segment.rmdir()
    segment.write_bytes(saved)
    job.run(2)
    assert job.loop.errors == 2
    lines = Ledger(job.loop.files.store).read()
    assert [line.batch for line in lines] == list(range(10)) and Ledger(job.loop.files.store).fold().differences() == []
    dropped = {line.batch: line.dropped for line in lines if line.dropped}
    assert {facts.batch: facts.dropped for facts in job.loop.facts.read()} == dropped and {6, 7} <= dropped.keys()


def test_what_a_dead_driver_could_not_write_is_a_gap(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", rate=15_000.0)
    job.run(3)
    segment = open_segment(LocalStore(job.loop.files.folder))
    saved = segment.read_bytes()
    segment.unlink()
    segment.mkdir()
    job.run(2)
    segment.rmdir()
    segment.write_bytes(saved)
    job.loop = job.start()
    job.run(2)
    assert Ledger(job.loop.files.store).fold().differences() == ["query q, job: no counts for batches 3 to 4"]


def test_a_batch_without_counts_is_a_gap_and_its_query_stays_known(tmp_path: Path) -> None:
    """Spark leaves a shed out of a plan that needs nothing of it: a join with a table that is empty just then."""
    job, checkpoint = Job(tmp_path / "job", rate=15_000.0), tmp_path / "checkpoint"
    for restarts in (False, True):
        if restarts:
            job.loop = job.start()
        job.loop.on_start("q", str(checkpoint))
        for report in job.reports(4):
            if report.batch % 4 == (0 if restarts else 2):
                job.loop.on_foreign("q")
            else:
                job.loop.on_batch(report)
        assert job.loop.control.open_batches.journal("q") is not None
    assert Ledger(job.loop.files.store).fold().differences() == [
        "query q, job: no counts for batches 2 to 2",
        "query q, job: no counts for batches 4 to 4",
    ]


def test_window_epochs_follow_in_two_steps(tmp_path: Path) -> None:
    clock = [100 * SECOND]
    settings = ShedSettings(
        "w", 2.0, make_controller("batch", target_seconds=2.0), "enforce", 1,
        window=WindowShape(10 * SECOND, 10 * SECOND),
    )  # fmt: skip
    loop = ShedLoop(settings, ShedFiles(tmp_path / "w"), clock_us=lambda: clock[0])
    windows = loop.windows
    assert windows is not None
    windows.saw(25 * SECOND)
    windows.steer(400_000)
    assert (windows.epochs.latest.start_us, windows.epochs.latest.emit_ppm) == (30 * SECOND, 400_000)
    clock[0] += SECOND
    loop.control.open_batches.reported("q", 0, clock[0])
    windows.saw(31 * SECOND)
    windows.steer(900_000)
    pending = [windows.epochs.pending]
    windows.saw(47 * SECOND)
    windows.steer(900_000)
    pending.append(windows.epochs.pending)
    clock[0] += SECOND
    loop.control.open_batches.reported("q", 1, clock[0])  # it began after the raise was written
    windows.saw(44 * SECOND)
    windows.steer(900_000)
    pending.append(windows.epochs.pending)
    assert pending == [True, True, False]
    assert (windows.epochs.latest.start_us, windows.epochs.latest.emit_ppm) == (50 * SECOND, 900_000)


def test_a_window_of_many_batches_keeps_its_epoch_while_the_keep_varies(tmp_path: Path) -> None:
    clock, shape = [1_000_000 * SECOND], WindowShape(400 * SECOND, 400 * SECOND)
    settings = ShedSettings(
        "w", 2.0, make_controller("batch", target_seconds=2.0), "enforce", 1, window=shape
    )  # fmt: skip
    loop = ShedLoop(settings, ShedFiles(tmp_path / "w"), clock_us=lambda: clock[0])
    windows = loop.windows
    assert windows is not None
    fates: dict[int, set[int | None]] = {}
    for number in range(1000):
        clock[0] += 2 * SECOND
        event = clock[0] - SECOND
        epoch = windows.epochs.at(event, loop.control.table.at(clock[0]).seq)
        fates.setdefault(shape.batch_start(event), set()).add(epoch.emit_ppm if epoch else None)
        loop.control.open_batches.reported("q", number, clock[0])
        windows.saw(event)
        windows.steer(400_000 if number % 2 else 600_000)
    assert len(fates) > 2 and not any(None in keeps for keeps in fates.values())
    assert len(windows.epochs.history) < 20


def test_the_share_of_ties_follows_the_batch_as_the_keep_does() -> None:
    entry = Entry(1, 0, keep_ppm=500_000, threshold=1.0, tie_ppm=400_000, budget=300.0, rate=1000.0, base_us=0)
    assert [entry.tie_at(time) for time in (200_000, SECOND, 60 * SECOND)] == [500_000, 240_000, 100_000]
    assert replace(entry, budget=None).tie_at(SECOND) == 400_000


def test_thresholds_by_utility_reach_the_keep_also_with_ties() -> None:
    seen = Utilities()
    assert seen.threshold(0.3) is None
    seen.add([float(i) for i in range(101)], offered=1000)
    threshold = seen.threshold(0.25)
    assert threshold is not None
    assert threshold.value == pytest.approx(75.0, abs=1.0)
    tied = Utilities()
    tied.add([1.0] * 90 + [5.0] * 10, offered=500)
    assert tied.threshold(0.05) is not None
    low = tied.threshold(0.05)
    assert low is not None
    assert (low.value, low.tie_ppm) == (5.0, 500_000)
    floored = tied.threshold(0.24, floor=0.05)
    assert floored is not None
    share = (0.19 / 0.95 - 0.1) / 0.9
    assert (floored.value, floored.tie_ppm) == (1.0, round((0.05 + 0.95 * share) * PPM))
    starved = tied.threshold(0.01, floor=0.05)
    assert starved is not None
    assert (starved.value, starved.tie_ppm) == (5.0, 50_000)
    everything = tied.threshold(1.0)
    assert everything is not None
    assert (everything.value, everything.tie_ppm) == (1.0, PPM)
