"""Kills of the driver without Java at ten points in all with those of the agents; the judge sees what it must."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from floodway.experiments.chaos.kills import kills, move_kills, plane_kills
from floodway.experiments.chaos.kills.feeding import LogFeeding
from floodway.experiments.chaos.kills.kills import points_of
from floodway.experiments.chaos.kills.plain_job import PlainJob
from floodway.experiments.chaos.kills.run_kills import PlainRun, plain_kills
from floodway.experiments.chaos.registry import FAULTS, load
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.network.file import load_network
from floodway.spark.log import LogWriter
from floodway.spark.query.journal import committed_batches
from floodway.spark.query.layout import Layout
from tests.kafka_jars import broker_jars, connector_jars

SEED = 4


def test_points_cover_every_phase_and_target_and_are_the_same_for_a_seed() -> None:
    phases, targets = ["cut", "sink", "commit"], ["driver", "worker"]
    points = points_of(random.Random(SEED), 24, phases, targets)
    assert points == points_of(random.Random(SEED), 24, phases, targets)
    assert {(point.phase, point.target) for point in points} == {(a, b) for a in phases for b in targets}
    assert {point.signal for point in points} == {signal.SIGKILL, signal.SIGSTOP}


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


POINTS = {"plain-kills": 90, "move-kills": 45, "plane-kills": 30}
ON_SPARK = {"run-kills": 8, "shed-kills": 8, "node-kills": 5, "executor-kills": 4, "partner-kills": 2}
ON_KAFKA = {"kafka-kills": 30, "kafka-run-kills": 4, "kafka-shed-kills": 4}


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


@pytest.fixture
def run(tmp_path: Path) -> Iterator[PlainRun]:
    """A folder with some batches in it, all of which are in order."""
    with LogFeeding(tmp_path / "input") as feeding:
        made = PlainRun(tmp_path, feeding)
        job = PlainJob(load_network(tmp_path / "network.yaml"), Layout(tmp_path / "state"))
        for _ in range(3):
            feeding.write(50)
            assert job.batch()
        assert made.look().differences == []
        yield made


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
    PlainJob(load_network(tmp_path / "network.yaml"), Layout(tmp_path / "state")).batch()
    assert committed_batches(checkpoint)[-1] == last
    assert sorted(run.sink_ids().tolist()) == before
    found = run.look()
    assert (found.lost, found.doubled, found.differences) == (0, 0, [])
