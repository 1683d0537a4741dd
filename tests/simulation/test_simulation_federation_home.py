"""How work comes back after the load at its origin has fallen, and when it does not: by contract alone.

A fragment goes home when a participant that has it finds it dearer to keep than the price of its own contract with the
origin, and the origin finds it no dearer than that price to run. A load that falls at the origin makes the second true,
never the first: by itself it moves nothing (contracts paper, Figure 13).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodway.contracts.contract import Contract
from floodway.contracts.cost import InFlight
from floodway.contracts.load import Load, Task
from floodway.contracts.participant_state import NegotiationTimes, participant
from floodway.simulation.federation import SimulatedFederation
from tests.contracts.made import bilateral, fixed_price
from tests.simulation.rounds import rounds_to_rest

PRICE = 11.0
"""A unit is a CPU: what the next bit of load costs at 70% of one."""


def fragment(name: str, cpu: float, origin: str = "") -> Task:
    """What B runs for its own clients (b0) is of a kind that its contracts do not let go."""
    return Task(name, Load(cpu), units=cpu, kind="own" if name.startswith("b") else "shared", origin=origin)


def both_ways() -> tuple[Contract, ...]:
    return tuple(replace(one, kinds=frozenset({"shared"})) for one in bilateral("A", "B", PRICE, PRICE))


def federation(*contracts: Contract, notifications: bool = True) -> SimulatedFederation:
    """A with 0.9 of a CPU in three fragments; B idle."""
    settings = NegotiationTimes(notifications=notifications)
    own = [fragment("a0", 0.4), fragment("a1", 0.3), fragment("a2", 0.2)]
    return SimulatedFederation.of(
        [participant("A", InFlight(), contracts, own, settings), participant("B", InFlight(), contracts, (), settings)]
    )


def settled(found: SimulatedFederation) -> dict[str, str]:
    rounds_to_rest(found)
    return {task: name for name, one in found.members.items() for task in sorted(one.holdings)}


@pytest.mark.parametrize("notifications", [True, False])
def test_work_goes_home_when_its_taker_needs_the_room_and_the_origin_has_it(notifications: bool) -> None:
    found = federation(*both_ways(), notifications=notifications)
    moved = {task for task, place in settled(found).items() if place == "B"}
    assert moved
    left = sorted({"a0", "a1", "a2"} - moved)

    # B's own load rises while A is as full as before: B offers, A has no room, everything stays.
    found.start("B", fragment("b0", 0.5))
    while found.members["A"].load.cpu < 0.65:
        found.start("A", fragment(f"a{3 + len(found.members['A'].holdings)}", 0.1))
    before = settled(found)
    assert all(before[task] == "B" for task in moved), "with A full, nothing can go home"

    # Then the load at A falls. With notifications A tells B of the room; without, B asks again by itself.
    for task in [task for task, place in before.items() if place == "A"]:
        found.end(task)
    after = settled(found)
    home = {task for task in moved if after[task] == "A"}
    assert home, f"nothing came home: {after}"
    assert after["b0"] == "B" and set(left).isdisjoint(after)
    last = found.moves[-1][1]
    assert (last.giver, last.taker, last.price) == ("B", "A", PRICE)
    # What is home is A's own again.
    assert all(found.members["A"].holdings[task].contract is None for task in home)


def test_a_load_that_falls_at_the_origin_moves_nothing_by_itself() -> None:
    found = federation(*both_ways())
    before = settled(found)
    moves = len(found.moves)
    for task in [task for task, place in before.items() if place == "A"]:
        found.end(task)
    after = settled(found)
    assert len(found.moves) == moves and after == {task: "B" for task, place in before.items() if place == "B"}


def test_without_a_contract_of_the_taker_nothing_comes_home() -> None:
    found = federation(fixed_price("A", "B", PRICE))
    before = settled(found)
    for task in [task for task, place in before.items() if place == "A"]:
        found.end(task)
    found.start("B", fragment("b0", 0.9))
    after = settled(found)
    assert all(place == "B" for place in after.values()) and after.keys() >= {
        task for task, place in before.items() if place == "B"
    }
