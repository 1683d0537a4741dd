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
    world.survives_a_kill(step, patience_seconds=40.0)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["giver:settled", "taker:billing", "giver:booked", "taker:billed"])
def test_a_kill_while_it_is_settled_or_paid_leaves_books_that_agree(world: World, step: str) -> None:
    world.survives_a_kill(step, patience_seconds=40.0)
