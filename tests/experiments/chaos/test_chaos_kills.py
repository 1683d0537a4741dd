"""Kills of the driver without Java at ten points in all with those of the agents; the judge sees what it must."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from floodway.experiments.chaos import kills
from floodway.experiments.chaos.kills import points_of
from floodway.experiments.chaos.plain_job import PlainJob
from floodway.experiments.chaos.result import Trial
from floodway.experiments.chaos.run_kills import LogFeeding, PlainRun, plain_kills
from floodway.network.file import load_network
from floodway.spark.log import LogWriter
from floodway.spark.query.journal import committed_batches
from floodway.spark.query.layout import Layout

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
