"""Either side killed at each step of a move: one owner of each fragment, nothing lost or doubled, books that agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from floodway.agent.federation.moving import STEPS
from tests.agent.federation_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_leaves_one_owner(world: World, step: str) -> None:
    victim = "A" if step.startswith("giver") else "B"
    survivor = "B" if victim == "A" else "A"
    with world.feeding():
        process = world.start(victim, kill_at=step)
        world.start(survivor)
        process.join(timeout=40.0)
        assert process.exitcode == 9, f"{victim} never came to {step}: {world.statuses()}"
        world.start(victim)
        world.wait("one fragment at each", world.settled, alive=("A", "B"))
        world.wait("a payment in both books", world.agreed, alive=("A", "B"))
    world.wait("all results", world.caught_up, alive=("A", "B"))
    world.end()
    world.check_results()
    world.check_books()
