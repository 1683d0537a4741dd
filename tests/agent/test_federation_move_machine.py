"""A move as machines: every interleaving of its two sides with kills, faults, delays and messages lost or doubled.

Breadth first over all states that a few faults reach (`simulated_moves.py`). In none of them do two run a fragment; and
from each, once no fault comes any more, one owner runs it, both sides know one end of the move, and the books agree.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from floodway.agent.federation import move_actions as act
from floodway.agent.federation.journal_rows import MoveRow
from floodway.agent.federation.move_machine import MoveState, step
from floodway.agent.federation.moves import ParticipantMoves
from tests.agent.federation_sides import Sides
from tests.agent.simulated_moves import FAULT, Budget, Moves, Step, World

OUT, HOME, ON = Moves("A", "B", "A"), Moves("B", "A", "A"), Moves("B", "C", "A")
ROUTES = {"out": OUT, "home": HOME, "on": ON}
FAULTS = {
    "two kills": Budget(kills=2),
    "a kill and a doubled request": Budget(kills=1, doubles=1),
    "a kill and a side held up": Budget(kills=1, delays=1),
    "a kill and a fault": Budget(kills=1, faults=1),
}


def explore(moves: Moves, budget: Budget) -> int:
    """Visit all states; how many they are. Fails with the way to the first that is wrong."""
    first = moves.first(budget)
    came_from: dict[World, tuple[World | None, str]] = {first: (None, "it begins")}
    calmed: tuple[dict[World, World], dict[World, World]] = ({}, {})
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        calm = moves.calm(world)
        wrong = (
            moves.broken(world)
            or ends_wrong(moves, calm, calmed[True], revive=True)
            or ends_wrong(moves, calm, calmed[False], revive=False)
        )
        assert not wrong, f"{wrong}, after: {way(came_from, world)}"
        for label, after in moves.successors(world):
            count = len(came_from)
            came_from.setdefault(after, (world, label))
            if len(came_from) > count:
                waiting.append(after)
    return len(came_from)


def ends_wrong(moves: Moves, calm: World, seen: dict[World, World], *, revive: bool) -> str:
    """What is wrong where a calm world comes to; `seen` are the worlds on such ways, each with the start of its way."""
    last = calm
    at: World | None = calm
    while at is not None:
        count = len(seen)
        start = seen.setdefault(at, calm)
        if len(seen) == count:
            return "it never ends" if start is calm else ""  # else it comes to where another way has come
        last = at
        if wrong := moves.broken(at):
            return wrong
        at = moves.next_healed(at, revive=revive)
    if wrong := moves.unhealed(last, revive=revive):
        return f"{wrong} ({'all are back' if revive else 'the dead stay away'})"
    return ""


def way(came_from: dict[World, tuple[World | None, str]], world: World) -> str:
    labels: list[str] = []
    at: World | None = world
    while at is not None:
        at, label = came_from[at]
        labels.append(label)
    return "; ".join(reversed(labels))


def is_quick(route: str, faults: str) -> bool:
    return route == "out" or faults == "two kills"


@pytest.mark.parametrize(
    ("route", "faults"),
    [
        pytest.param(route, faults, marks=() if is_quick(route, faults) else pytest.mark.slow)
        for route, faults in product(ROUTES, FAULTS)
    ],
)
def test_one_owner_runs_a_fragment_whatever_happens_on_its_way(
    route: str, faults: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = explore(ROUTES[route], FAULTS[faults])
    with capsys.disabled():
        print(f"\n{route}, {faults}: {count} states")
    assert count > 5000


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_all_kinds_of_faults_together_leave_one_owner(route: str, capsys: pytest.CaptureFixture[str]) -> None:
    count = explore(ROUTES[route], Budget(kills=1, faults=1, doubles=1, delays=1))
    with capsys.disabled():
        print(f"\n{route}, all faults: {count} states")


@pytest.mark.parametrize("faults", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_move_of_two_fragments_leaves_one_owner_of_each(faults: int, capsys: pytest.CaptureFixture[str]) -> None:
    count = explore(replace(OUT, fragments=("f", "g")), Budget(kills=1, faults=faults))
    with capsys.disabled():
        print(f"\ntwo fragments, a kill and {faults} faults: {count} states")


NEVER_FAIL = (act.Ask, act.Resume, act.Wait, act.Report)
"""Actions that report no fault, and the one whose fault is the partner's."""
Ending = tuple[str, str, str | None]
"""Who owns the fragment, and what giver and taker have in their journals."""


def simulated(failing: int) -> tuple[int, Ending]:
    """A move in which the so-manyth action fails and nothing else happens; how many there were, and the end."""
    world, count = OUT.first(Budget(faults=1)), 0
    while (giver := world.side("A")).work is not None:
        taker = world.side("B")
        side = giver if taker.work is None else taker
        assert side.work is not None
        label = f"{side.name} {type(side.work.action).__name__}"
        if side.asking:
            answer = "the answer arrives" if world.answers else "A waits no longer"
            label = "the request arrives" if world.asks else answer
        elif isinstance(side.work.action, act.Ask):
            label = f"{side.name} asks"
        elif not isinstance(side.work.action, NEVER_FAIL):
            label += " fails" if count == failing else ""
            count += 1
        world = dict(OUT.successors(world))[label]
    at: World | None = OUT.calm(world)
    while at is not None:
        world, at = at, OUT.next_healed(at, revive=True)
    giver_row, taker_row = world.side("A").row, world.side("B").row
    states = "" if giver_row is None else giver_row.state, None if taker_row is None else taker_row.state
    return count, (world.current("f").owner, *states)


def real(root: Path, failing: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Ending]:
    """The same on real journals and leases."""
    sides, count = Sides(root), 0
    outcome = ParticipantMoves._outcome

    def faulty(moving: ParticipantMoves, row: MoveRow, action: Any, *posts: Any) -> act.MoveEvent:
        nonlocal count
        if isinstance(action, NEVER_FAIL):
            return outcome(moving, row, action, *posts)
        count += 1
        return act.Failed(FAULT) if count == failing + 1 else outcome(moving, row, action, *posts)

    try:
        with monkeypatch.context() as patch, suppress(OSError):
            patch.setattr(ParticipantMoves, "_outcome", faulty)
            sides.give("A/1", "B", "f0")
        sides.live(30.0)
        lease = sides.store.current("f0")
        assert lease is not None
        rows = [sides.members[name].journal.move("A/1") for name in "AB"]
        states = "" if rows[0] is None else rows[0].state, None if rows[1] is None else rows[1].state
        return count, (lease.owner, *states)
    finally:
        sides.close()


def test_the_simulated_world_is_like_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, _ = simulated(-1)
    assert most > 15
    for failing in range(-1, most):
        assert simulated(failing) == real(tmp_path / str(failing), failing, monkeypatch), failing


def releases_before_it_knows(state: MoveState, event: act.MoveEvent) -> MoveState:
    """The giver lets go of what it asked for, and does not look how the move was decided."""
    if isinstance(state.action, act.Ask):
        return state.then(act.LetGo("f"), act.NoteState("done"), act.MoveOver())
    return step(state, event)


def resumes_without_withdrawing(state: MoveState, event: act.MoveEvent) -> MoveState:
    if isinstance(state.action, act.Ask) and isinstance(event, act.Failed):
        return state.then(act.NoteState("failed"), act.Resume(("f",)), act.MoveOver())
    return step(state, event)


def asks_before_it_stops(state: MoveState, event: act.MoveEvent) -> MoveState:
    after = step(state, event)
    return after.then(act.Ask()) if after.action == act.HaltAll() else after


def keeps_what_it_could_not_start(state: MoveState, event: act.MoveEvent) -> MoveState:
    after = step(state, event)
    if isinstance(state.action, act.RunAll) and isinstance(event, act.Failed):
        return after.then(act.NoteState("failed"), after.rest[-1])
    return after


def gives_back_before_it_stops(state: MoveState, event: act.MoveEvent) -> MoveState:
    after = step(state, event)
    if isinstance(state.action, act.RunAll) and isinstance(after.action, act.LetGo):
        return after.then(after.rest[0], after.action, *after.rest[1:])
    return after


def forgets_what_it_decided(state: MoveState, event: act.MoveEvent) -> MoveState:
    """A taker that was cut short holds the move for failed, and does not look."""
    return step(state, act.MoveDecided(None) if isinstance(state.action, act.ReadDecision) else event)


def calls_a_lost_move_failed(state: MoveState, event: act.MoveEvent) -> MoveState:
    """The taker says of a move whose leases it lost before it ran them that it never was."""
    after = step(state, event)
    if isinstance(state.action, act.RunAll) and isinstance(event, act.Failed):
        return after.then(after.action, *after.rest[:-2], act.NoteState("failed"), after.rest[-1])
    return after


@pytest.mark.parametrize(
    ("broken", "wrong"),
    [
        (releases_before_it_knows, "A and B run f"),
        (resumes_without_withdrawing, "books"),
        (asks_before_it_stops, "A and B run f"),
        (keeps_what_it_could_not_start, "books"),
        (gives_back_before_it_stops, "A and B run f"),
        (forgets_what_it_decided, "books"),
        (calls_a_lost_move_failed, "books"),
    ],
)
def test_a_machine_that_breaks_the_protocol_is_found(broken: Step, wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        explore(replace(OUT, step=broken), Budget(kills=1, faults=1))
