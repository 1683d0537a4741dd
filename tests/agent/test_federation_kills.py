"""Either side killed at each step of a move: one owner of each fragment, nothing lost or doubled, books that agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from floodway.agent.federation.moves import STEPS
from tests.agent.federation_world import FederationWorld
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FederationWorld]:
    made = FederationWorld(tmp_path)
    yield made
    made.end()


# The others with --run-slow: test_federation_all_kills.py kills at every step, without processes.
QUICK = ("giver:intended", "giver:stopped", "giver:answered", "taker:noted", "taker:leased", "taker:done")


@pytest.mark.parametrize("step", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in STEPS])
def test_a_kill_at_any_step_leaves_one_owner(world: FederationWorld, step: str) -> None:
    world.survives_a_kill(step, PATIENCE_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["giver:settled", "taker:billing", "giver:booked", "taker:billed"])
def test_a_kill_while_it_is_settled_or_paid_leaves_books_that_agree(world: FederationWorld, step: str) -> None:
    world.survives_a_kill(step, PATIENCE_SECONDS)
