"""Either side killed at each step of a move, on real Spark: two applications, windows that live through it all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from floodway.agent.federation.moves import STEPS
from floodway.experiments.chaos.kills.spark_partners import SparkWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SparkWorld]:
    made = SparkWorld.make(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_leaves_one_owner_and_whole_windows(world: SparkWorld, step: str) -> None:
    world.survives_a_kill(step, patience_seconds=SparkWorld.step_seconds)
