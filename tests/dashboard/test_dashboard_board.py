"""The board: every job under a name of its own, no node silent unnoticed, no count falsified by a switch, no hole."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from floodway.agent.federation.participant_figures import MemberRecord
from floodway.agent.watch.metrics import metrics_text
from floodway.dashboard.board import STALE_SECONDS, Board
from floodway.dashboard.job_sources import Reading, Sources, StateSource
from floodway.errors import InputError
from floodway.job.decision import write_mode
from floodway.job.places import ShedFiles
from floodway.job.status.parts import FragmentPart, ParticipantPart
from floodway.job.status.status import ProcessPart, write_status
from floodway.job.store.store import LocalStore
from tests.dashboard.made_state import CLICKS, MadeJob
from tests.job.ledgers import open_segment


def made_job(
    root: Path, *, ago: int = 3, batches: int = 3, name: str = "demo", network: bool = True, node: str = ""
) -> MadeJob:
    job = MadeJob(root, int(time.time()) - ago - batches, name=name, node=node)
    job.start(network=network)
    job.run(batches)
    return job


class OneAtATime:
    """A source that notices two readers at once."""

    def __init__(self, source: StateSource) -> None:
        self._source = source
        self._inside = threading.Lock()
        self.together = 0

    def read(self) -> Sequence[Reading]:
        if not self._inside.acquire(blocking=False):
            self.together += 1
            return self._source.read()
        try:
            time.sleep(0.02)
            return self._source.read()
        finally:
            self._inside.release()

    def switch(self, reading: Reading, mode: str) -> None:
        self._source.switch(reading, mode)


def test_a_switch_never_reads_beside_a_poll(tmp_path: Path) -> None:
    job = made_job(tmp_path / "demo")
    source = OneAtATime(StateSource([job.root]))
    ticks = iter(range(10_000))
    board = Board(source, clock=lambda: float(job.now + next(ticks)))  # every look reads anew
    begin = threading.Barrier(3)

    def poll() -> None:
        begin.wait()
        for _ in range(5):
            board.snapshot(history=False)

    def switch() -> None:
        begin.wait()
        for _ in range(5):
            board.set_mode("demo", "observe")

    def scrape() -> None:
        begin.wait()
        for _ in range(5):
            metrics_text(board.watched())

    threads = [threading.Thread(target=work) for work in (poll, switch, scrape)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.together == 0
    assert board.snapshot()["jobs"][0]["places"]["clicks"]["offered"] == 3 * CLICKS
    assert ShedFiles(job.root).read_mode() == "observe"


def test_metrics_are_copies_that_nobody_goes_on_counting_in(tmp_path: Path) -> None:
    job = made_job(tmp_path / "demo")
    ticks = iter(range(1000))
    board = Board(StateSource([job.root]), clock=lambda: float(job.now + next(ticks)))
    (before,) = board.watched()
    job.run(2)
    board.snapshot()
    assert before.status is not None and before.status.places["clicks"].offered == 3 * CLICKS
    assert before.latencies.count == 3 * 1_000


def test_folders_of_one_name_are_told_apart_and_switched_apart(tmp_path: Path) -> None:
    jobs = [made_job(tmp_path / name / "run") for name in "abc"]
    board = Board(Sources([StateSource([job.root]) for job in jobs]))
    names = [job["name"] for job in board.snapshot()["jobs"]]
    assert names == ["demo, a/run", "demo, b/run", "demo, c/run"]
    board.set_mode("demo, b/run", "off")
    assert [ShedFiles(job.root).read_mode() for job in jobs] == [None, "off", None]
    with pytest.raises(InputError, match="no job is called 'demo'"):
        board.set_mode("demo", "off")
    assert [watched.job for watched in board.watched()] == names


def test_a_folder_given_twice_is_one_job(tmp_path: Path) -> None:
    job = made_job(tmp_path / "demo")
    assert [one.name for one in StateSource([job.root, tmp_path]).read()] == ["demo"]


def test_a_node_that_is_silent_is_named(tmp_path: Path) -> None:
    alive = made_job(tmp_path / "net" / "nodes" / "A", ago=1, name="net", network=False, node="A")
    dead = made_job(tmp_path / "net" / "nodes" / "B", ago=3600, name="net", network=False, node="B")
    board = Board(StateSource([tmp_path / "net"]), clock=lambda: alive.now + 1.0)
    (job,) = board.snapshot()["jobs"]
    assert job["stale"] and list(job["silent"]) == ["B"]
    assert job["age_seconds"] == alive.now + 1.0 - dead.now
    told = {
        (sample.name, sample.labels.get("node")): sample.value
        for family in text_string_to_metric_families(metrics_text(board.watched()).decode())
        for sample in family.samples
        if sample.name.endswith("status_timestamp_seconds")
    }
    assert told["floodway_status_timestamp_seconds", None] == dead.now
    assert told["floodway_node_status_timestamp_seconds", "B"] == dead.now
    assert told["floodway_node_status_timestamp_seconds", "A"] > dead.now


def test_what_nobody_watched_is_filled_in_when_somebody_looks_again(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "demo", 1_700_000_000)
    job.start()
    job.run(15)
    clock = float(job.now)
    board = Board(StateSource([job.root]), clock=lambda: clock)
    board.snapshot()
    job.run(40, latency=4.0)
    clock = float(job.now)
    history = board.snapshot()["jobs"][0]["history"]
    times = [sample["time"] for sample in history]
    assert max(later - earlier for earlier, later in pairwise(times)) <= 2
    assert times == sorted(times) and len(times) >= 53
    assert [sample["latency"] for sample in history[-30:]] == pytest.approx([4.0] * 30)


def test_a_new_run_in_the_folder_has_its_own_counts_and_its_own_past(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "demo", 1_700_000_000)
    job.start()
    job.run(15)
    clock = float(job.now)
    board = Board(StateSource([job.root]), clock=lambda: clock)
    board.snapshot()
    shutil.rmtree(job.root)
    again = MadeJob(job.root, job.now + 5)
    again.start()
    again.run(3)
    clock = float(again.now)
    (shown,) = board.snapshot()["jobs"]
    assert shown["places"]["clicks"]["offered"] == 3 * CLICKS
    assert min(sample["time"] for sample in shown["history"]) > job.now
    assert shown["ledger"]["differences"] == []


def test_a_damaged_network_or_ledger_is_told(tmp_path: Path) -> None:
    job = made_job(tmp_path / "demo")
    ticks = iter(range(1000))
    board = Board(StateSource([job.root]), clock=lambda: float(job.now + next(ticks)))
    (shown,) = board.snapshot()["jobs"]
    assert shown["has_picture"] and shown["notes"] == []
    (job.root / "network.json").write_text("{", encoding="utf-8")
    with open_segment(LocalStore(job.root)).open("ab") as file:
        file.write(b'{"at": "clicks", "bat####\n')
    (shown,) = board.snapshot()["jobs"]
    assert not shown["has_picture"] and "network.json cannot be read" in shown["notes"][0]
    assert shown["ledger"]["differences"] == ["lines of the ledger that cannot be read: 1"]


def test_a_participant_is_shown_and_switched(tmp_path: Path) -> None:
    part = ParticipantPart(cpu=2.0, load=1.2, fragments={"utah": FragmentPart("A", cpu=1.2, rate=10.0, keep=0.4)})
    record = MemberRecord("A", tmp_path, target_seconds=10.0)
    now = time.time()
    write_status(LocalStore(tmp_path), record.status(part, now=now, process=ProcessPart(1), mode="enforce"))
    board = Board(StateSource([tmp_path]), clock=lambda: now)
    (job,) = board.snapshot()["jobs"]
    assert (job["stale"], job["participant"]["fragments"]["utah"]["keep"]) == (False, 0.4)
    assert job["load"] == {"A": 0.6}
    board.set_mode("A", "off")
    assert ShedFiles(tmp_path).read_mode() == "off"


def test_what_enforcing_would_drop_is_told_in_observe(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "demo", int(time.time()) - 3)
    job.start()
    write_mode(ShedFiles(job.root).store, "observe")
    job.run(3)
    board = Board(StateSource([job.root]))
    (shown,) = board.snapshot()["jobs"]
    assert shown["would_drop"] == pytest.approx(0.2 * 400 / 900)
    text = metrics_text(board.watched()).decode()
    assert 'floodway_would_drop_ratio{job_name="demo"} 0.0888' in text
    assert 'floodway_capacity_needed_ratio{job_name="demo"} 1.8' in text
    assert 'floodway_executors_needed{job_name="demo"} 4.0' in text


def test_what_is_dropped_now_is_what_the_chart_shows(tmp_path: Path) -> None:
    job = made_job(tmp_path / "demo", ago=0, batches=20)
    (shown,) = Board(StateSource([job.root]), clock=lambda: float(job.now)).snapshot()["jobs"]
    assert shown["loss"] == pytest.approx(shown["sample"]["dropped"]["shedder"] / shown["sample"]["offered"])
    assert shown["loss"] == pytest.approx(0.2 * 400 / 900)


@pytest.mark.parametrize("back", [60.0, 3600.0, 86_400.0])
def test_a_clock_set_back_neither_stops_the_page_nor_keeps_a_dead_job_alive(tmp_path: Path, back: float) -> None:
    job = made_job(tmp_path / "demo")
    now = [float(job.now)]
    board = Board(StateSource([job.root]), clock=lambda: now[0])
    (shown,) = board.snapshot()["jobs"]
    assert not shown["stale"] and shown["mode"] != "off"
    now[0] -= back
    (status,) = (reading.status for reading in StateSource([job.root]).read())
    assert status is not None
    write_status(LocalStore(job.root), replace(status, mode="off"))
    (shown,) = board.snapshot()["jobs"]
    assert shown["mode"] == "off", "it is read again"
    assert not shown["stale"], "it may be that the job has only just been heard"
    now[0] += STALE_SECONDS + 1.0
    (shown,) = board.snapshot()["jobs"]
    assert shown["stale"] and shown["age_seconds"] == STALE_SECONDS + 1.0


def test_a_job_whose_clock_is_ahead_keeps_its_chart_and_a_page_whose_clock_is_set_back_begins_again(
    tmp_path: Path,
) -> None:
    job = made_job(tmp_path / "demo")
    now = [float(job.now) - 12.0]
    board = Board(StateSource([job.root]), clock=lambda: now[0])
    (before,) = board.snapshot()["jobs"]
    now[0] += 1.0
    (after,) = board.snapshot()["jobs"]
    assert len(before["history"]) > 1 and after["history"][: len(before["history"])] == before["history"]
    now[0] -= 60.0
    times = [sample["time"] for sample in board.snapshot()["jobs"][0]["history"]]
    now[0] += 1.0
    later = [sample["time"] for sample in board.snapshot()["jobs"][0]["history"]]
    assert later[: len(times)] == times
