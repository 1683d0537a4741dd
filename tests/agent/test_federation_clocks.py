"""Clocks of participants that differ, are set and drift: no fragment is taken from an owner that lives."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from floodway.agent.federation.participant import ParticipantAgent
from floodway.job.clocks import PROCESS_CLOCK
from tests.agent.federation_sides import LEASE, MARGIN, Sides

STEPS = [sign * step for step in (1.0, 60.0, 3600.0, 86_400.0) for sign in (-1, 1)]


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    made = Sides(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("step", STEPS)
def test_an_origin_whose_clock_differs_leaves_a_living_owner_alone(sides: Sides, step: float) -> None:
    sides.give("A/0", "B")
    sides.live(4.0)
    sides.ahead["A"] = step
    sides.live(3 * LEASE)
    lease = sides.store.current("f0")
    assert lease is not None and (lease.owner, lease.epoch) == ("B", 2)
    assert sides.members["B"].engine.running == {"f0"}


@pytest.mark.parametrize("step", STEPS)
def test_an_origin_that_restarts_with_another_clock_leaves_a_living_owner_alone(sides: Sides, step: float) -> None:
    sides.give("A/0", "B")
    sides.ahead["A"] = step
    sides.restart("A")
    sides.live(3 * LEASE)
    lease = sides.store.current("f0")
    assert lease is not None and (lease.owner, lease.epoch) == ("B", 2)


@pytest.mark.parametrize("step", STEPS)
def test_a_silent_owner_is_found_whatever_the_clocks_say(sides: Sides, step: float) -> None:
    sides.give("A/0", "B")
    sides.live(4.0)
    sides.ahead["B"] = step
    sides.live(4.0)
    sides.dead.add("B")
    sides.live(LEASE + MARGIN + 4.0)
    lease = sides.store.current("f0")
    assert lease is not None and lease.owner == "A"
    sides.restart("B")
    sides.live(6.0)
    assert sides.members["B"].engine.running == set()


def test_a_participant_runs_on_the_clock_that_knows_steps() -> None:
    assert inspect.signature(ParticipantAgent).parameters["clock"].default == PROCESS_CLOCK.now
