"""A side killed at every step of all that changes owners or books: moves out, on and home, give-backs, bills and ends.

Each story is told once to find its steps, then again for each of them with a kill there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from floodway.agent.federation.moves import STEPS
from tests.agent.federation_sides import Killed, Sides

Story = tuple[Callable[[Sides], object], Callable[[Sides], object]]
"""What has happened before, and the part in which somebody is killed."""

OTHER_STEPS = (
    "giver:settled",
    "taker:giving-back",
    "taker:gave-back",
    "origin:reclaiming",
    "origin:reclaimed",
    "holder:releasing",
    "holder:released",
    "taker:billing",
    "giver:booked",
    "taker:billed",
)
"""The points of all else that changes owners or books."""


def nothing(sides: Sides) -> None:
    """Everybody is at home."""


def out(sides: Sides) -> None:
    sides.give("A/0", "B", "f0", "f1")
    sides.live(3.0)


def on(sides: Sides) -> None:
    sides.give("B/0", "C", price=3.0)


def home(sides: Sides) -> None:
    sides.give("B/0", "A", "f0", "f1")


def give_back(sides: Sides) -> None:
    sides.members["B"].engine.fails["f1"] = 1
    sides.give("A/0", "B", "f0", "f1")


def serve(sides: Sides) -> None:
    sides.live(25.0)


def silence(sides: Sides) -> None:
    """B does not come back for a long time; A takes back what it gave, and runs it."""
    sides.dead.add("B")
    sides.live(25.0)


def end(sides: Sides) -> None:
    """B stops in good order."""
    try:
        sides.members["B"].moving.close()
    finally:
        sides.dead.add("B")


STORIES: dict[str, Story] = {
    "out": (nothing, out),
    "on": (out, on),
    "home": (out, home),
    "give back": (nothing, give_back),
    "serve": (out, serve),
    "silence": (out, silence),
    "end": (out, end),
}


def told(root: Path, story: Story, kill: int | None) -> list[str]:
    """Tell a story with a kill at its so-manyth step; all the steps that it came to."""
    before, act = story
    sides = Sides(root)
    steps: list[str] = []

    def watched(name: str, step: str) -> None:
        steps.append(f"{name} {step}")
        if kill == len(steps) - 1:
            sides.dead.add(name)
            raise Killed(step)

    try:
        before(sides)
        sides.watched = watched
        with suppress(Killed):
            act(sides)
        sides.watched = lambda name, step: None
        sides.live(4.0)  # the others go on for a while
        for name in sorted(sides.dead):
            sides.restart(name)
        sides.live(26.0)
        sides.check()
    finally:
        sides.close()
    return steps


@pytest.mark.parametrize("name", STORIES)
def test_a_kill_at_any_step_leaves_one_owner_and_books_that_agree(tmp_path: Path, name: str) -> None:
    steps = told(tmp_path / "whole", STORIES[name], None)
    assert steps
    for kill in range(len(steps)):
        assert told(tmp_path / str(kill), STORIES[name], kill)[: kill + 1] == steps[: kill + 1]


def test_every_step_is_in_one_of_the_stories(tmp_path: Path) -> None:
    told_of = {step for name, story in STORIES.items() for step in told(tmp_path / name, story, None)}
    assert {step.partition(" ")[2] for step in told_of} == {*STEPS, *OTHER_STEPS}
