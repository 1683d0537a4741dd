"""Kills of the driver without Java at ten points in all with those of the agents; the judge sees what it must."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from floodway.experiments.chaos.kills import kills, move_kills, plane_kills
from floodway.experiments.chaos.kills.input_feed import LogFeeding
from floodway.experiments.chaos.kills.kills import KillPhase, points_of
from floodway.experiments.chaos.kills.plain_job import PlainJob
from floodway.experiments.chaos.kills.processes import ForkedJob, Job
from floodway.experiments.chaos.kills.run_kills import PlainRun, plain_kills
from floodway.experiments.chaos.kills.shed_kills import ShedJob
from floodway.experiments.chaos.registry import FAULTS, load
from floodway.experiments.chaos.result import FaultResult, JobFindings, Trial
from floodway.network.file import load_network
from floodway.spark.log import LogWriter
from floodway.spark.query.journal import committed_batches
from floodway.spark.query.layout import RunLayout
from tests.kafka_jars import broker_jars, connector_jars
from tests.patience import wait_until

SEED = 4


def test_points_cover_every_phase_and_target_by_both_signals_and_are_the_same_for_a_seed() -> None:
    phases, targets = ["cut", "sink", "commit"], ["driver", "worker"]
    points = points_of(random.Random(SEED), 24, phases, targets)
    assert points == points_of(random.Random(SEED), 24, phases, targets)
    for one in (signal.SIGKILL, signal.SIGSTOP):
        struck = {(point.phase, point.target) for point in points if point.signal == one}
        assert struck == {(a, b) for a in phases for b in targets}


@pytest.mark.parametrize("targets", [3, 4, 5])
def test_few_points_send_both_signals_to_every_target(targets: int) -> None:
    """As many as the campaign has on Spark, where a point costs much."""
    names = [f"target {number}" for number in range(targets)]
    points = points_of(random.Random(SEED), 2 * targets, ["cut", "sink"], names, stop_every=2)
    assert {(point.target, point.signal) for point in points} == {
        (name, one) for name in names for one in (signal.SIGKILL, signal.SIGSTOP)
    }


def test_kills_in_every_phase_lose_and_double_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "HOLD_SECONDS", 0.5)
    result = plain_kills(Trial(6, SEED, tmp_path))
    print(f"6 points, seed {SEED}: {result.detail['points']}")
    assert (result.tried, result.lost, result.doubled, result.differences) == (6, 0, 0, [])
    assert all(point.endswith("hit 1") for point in result.detail["points"])


def test_partners_that_are_killed_or_held_up_leave_one_owner(tmp_path: Path) -> None:
    result = move_kills.kills(Trial(2, SEED, tmp_path))
    print(f"2 points, seed {SEED}: {result.detail['points']}")
    assert (result.tried, result.differences) == (2, [])


def test_agents_that_are_killed_come_to_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_kills, "HOLD_SECONDS", 1.0)
    result = plane_kills.kills(Trial(2, SEED, tmp_path))
    print(f"2 points, seed {SEED}: {result.detail['points']}")
    assert (result.tried, result.differences) == (2, [])


def test_an_agent_that_was_forgotten_is_heard_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_kills, "HOLD_SECONDS", 4.0)
    with plane_kills.LocalAgents("dfit", tmp_path / "agents") as agents:
        agents.change(6.0)
        # At one look: on a busy machine A may forget B, and hear it again, at any moment.
        wait_until(lambda: agents.shed_well(6.0, other=plane_kills.CONFIGURED_COST))
        assert agents.hold("B"), "A did not forget B"
        wait_until(lambda: agents.shed_well(6.0, other=plane_kills.CONFIGURED_COST))


POINTS = {"plain-kills": 90, "move-kills": 45, "plane-kills": 30}
ON_SPARK = {"run-kills": 8, "shed-kills": 6, "node-kills": 10, "executor-kills": 6, "partner-kills": 2}
ON_KAFKA = {"kafka-kills": 24, "kafka-run-kills": 8, "kafka-shed-kills": 6}


def test_the_campaign_has_two_hundred_points() -> None:
    campaign = POINTS | ON_SPARK | ON_KAFKA
    assert set(campaign) == {fault.id for fault in FAULTS.values() if fault.kind == "kills"}
    assert sum(campaign.values()) >= 200


@pytest.mark.slow
@pytest.mark.parametrize(("name", "points"), POINTS.items())
def test_kills_at_many_points(name: str, points: int, tmp_path: Path) -> None:
    holds(load(FAULTS[name])(Trial(points, SEED, tmp_path)), points)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("name", "points"), ON_SPARK.items())
def test_kills_on_spark(name: str, points: int, tmp_path: Path) -> None:
    holds(load(FAULTS[name])(Trial(points, SEED, tmp_path)), points)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("name", "points"), ON_KAFKA.items())
def test_kills_on_kafka(name: str, points: int, tmp_path: Path) -> None:
    libs, connector = broker_jars()[0].parent, connector_jars()[0].parent
    holds(load(FAULTS[name])(Trial(points, SEED, tmp_path, kafka_libs=libs, kafka_connector=connector)), points)


def holds(result: FaultResult, points: int) -> None:
    print(f"{result.id}: {points} points, seed {SEED}: {result.detail['points']}")
    assert (result.tried, result.lost, result.doubled, result.differences) == (points, 0, 0, [])


class LateLedger:
    """A job whose ledger comes some time after its first batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self) -> Job:
        return ForkedJob(write_late, [str(self._folder)], self._folder / "errors.txt")

    def phases(self) -> dict[str, KillPhase]:
        return {"ledger": KillPhase(self._folder / "ledger")}

    def progress(self) -> int:
        return len(list(self._folder.glob("batch-*")))

    def look(self) -> JobFindings:
        return JobFindings()

    finish = look


def write_late(folder: str) -> None:
    """The body of its process."""
    for number in range(1000):
        Path(folder, f"batch-{number}").touch()
        time.sleep(0.3)
        Path(folder, "ledger").mkdir(exist_ok=True)
        Path(folder, "ledger", str(number)).touch()


def test_a_phase_whose_folder_comes_late_is_awaited(tmp_path: Path) -> None:
    result = kills.campaign("late", LateLedger(tmp_path), ("group",), Trial(1, SEED, tmp_path))
    assert (result.tried, result.differences) == (1, [])
    assert result.detail["points"][0].endswith("hit 1")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[PlainRun]:
    """A folder with some batches in it, all of which are in order."""
    with LogFeeding(tmp_path / "input") as feeding:
        made = PlainRun(tmp_path, feeding)
        job = PlainJob(load_network(tmp_path / "network.yaml"), RunLayout(tmp_path / "state"))
        for _ in range(3):
            feeding.write(50)
            assert job.batch()
        assert made.look().differences == []
        yield made


@pytest.mark.parametrize(
    ("tries", "doubled", "said"),
    [
        ({"0/a": [1, 2], "0/b": [2, 1], "1/a": [3]}, 0, None),
        ({"0/a": [1, 2], "0/b": [1, 2, 3]}, 0, "batch 0 did not keep the same tuples in every try, but 2, 3"),
        ({"0/a": [1, 2], "0/b": [1, 3]}, 0, "batch 0 did not keep the same tuples in every try, but 2, 2"),
        ({"0/a": [1, 2], "1/a": [2]}, 1, None),
    ],
)
def test_a_replay_that_keeps_other_tuples_is_found(
    tries: dict[str, list[int]], doubled: int, said: str | None, tmp_path: Path
) -> None:
    for name, ids in tries.items():
        batch, _, mark = name.partition("/")
        folder = tmp_path / "output" / f"batch={batch}" / f"try={mark}"
        folder.mkdir(parents=True)
        parquet.write_table(pa.table({"id": ids}), folder / "part-0.parquet")
        (folder / "_SUCCESS").touch()
    with LogFeeding(tmp_path / "input") as feeding:
        found = ShedJob(tmp_path, feeding).look()
    assert found.doubled == doubled
    assert found.differences == ([] if said is None else [said])
    assert found.repeated == sum(name.endswith("b") for name in tries)


def test_a_tuple_that_is_written_twice_is_found(run: PlainRun, tmp_path: Path) -> None:
    with LogWriter(tmp_path / "output") as writer:
        held = run.sink_ids()[:1].tolist()
        writer.append(pa.table({"value": [0], "origin_id": held, "weight": [1.0]}))
    assert run.look().doubled == 1


def test_a_batch_that_was_cut_again_otherwise_is_found(run: PlainRun, tmp_path: Path) -> None:
    run.look()
    path = tmp_path / "state" / "checkpoints" / "A.main" / "offsets" / "2"
    path.write_text(path.read_text().replace('"batchTimestampMs": 1', '"batchTimestampMs": 2'))
    assert any("cut a second time" in text for text in run.look().differences)


def test_a_sink_without_a_ledger_line_is_found(run: PlainRun, tmp_path: Path) -> None:
    for path in (tmp_path / "state" / "ledger").iterdir():
        path.unlink()
    assert run.look().differences


def test_a_repeated_batch_admits_the_same_tuples_and_changes_nothing(run: PlainRun, tmp_path: Path) -> None:
    before = sorted(run.sink_ids().tolist())
    checkpoint = tmp_path / "state" / "checkpoints" / "A.main"
    last = committed_batches(checkpoint)[-1]
    (checkpoint / "commits" / str(last)).unlink()
    PlainJob(load_network(tmp_path / "network.yaml"), RunLayout(tmp_path / "state")).batch()
    assert committed_batches(checkpoint)[-1] == last
    assert sorted(run.sink_ids().tolist()) == before
    found = run.look()
    assert (found.lost, found.doubled, found.differences) == (0, 0, [])
