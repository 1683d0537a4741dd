"""Any federation: load is conserved, nobody loses by a move, prices stay in range, moves end and do not circle."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.contracts.contract import Contract, Service
from floodway.contracts.cost import CostFunction, InFlight, Learnt, MeasuredCost
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Move
from floodway.contracts.participant_state import NegotiationTimes, participant
from floodway.contracts.payment import Payment, payment, penalty
from floodway.simulation.federation import SimulatedFederation
from tests.effort import tries
from tests.simulation.rounds import rounds_to_rest

NAMES = "ABCDE"
KINDS = ("filter", "join")
COSTS: tuple[CostFunction, ...] = (
    InFlight(),
    InFlight(cpu=0.5),
    MeasuredCost.fit([(0.3, 0.2), (0.6, 0.9), (1.0, 5.0)]),
    Learnt(MeasuredCost.fit([(0.3, 0.5), (0.6, 1.2)]), InFlight(cpu=0.8, link=0.5)),
)
SLACK = 1e-7


@dataclass
class World:
    """A federation, its contracts by pair, and its tasks by name."""

    federation: SimulatedFederation
    contracts: dict[tuple[str, str], Contract]
    tasks: dict[str, Task]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two to five participants with different costs, tasks of different sizes, some contracts with restrictions."""
    names = NAMES[: draw(st.integers(2, 5))]
    contracts: dict[tuple[str, str], Contract] = {}
    for giver in names:
        for taker in names:
            if giver != taker and draw(st.booleans()):
                low = draw(st.floats(0.0, 2.0))
                contracts[giver, taker] = Contract(
                    giver,
                    taker,
                    low,
                    low + draw(st.sampled_from([0.0, 0.1, 1.0])),
                    kinds=draw(st.sampled_from([None, frozenset({"filter"})])),
                    may_pass_on=draw(st.booleans()),
                )
    chosen = NegotiationTimes(
        wake_seconds=inf,
        notifications=draw(st.booleans()),
        migration_cost=draw(st.sampled_from([0.0, 0.05])),
    )
    tasks: dict[str, Task] = {}
    members = []
    for name in names:
        own = [
            Task(
                f"{name}{place}",
                Load(draw(st.sampled_from([0.02, 0.05, 0.13])), draw(st.sampled_from([0.0, 0.04, 0.1])), 10.0),
                units=draw(st.sampled_from([0.5, 1.0, 2.0])),
                kind=draw(st.sampled_from(KINDS)),
                query=draw(st.sampled_from(["", "q1", "q2"])),
            )
            for place in range(draw(st.integers(0, 9)))
        ]
        tasks |= {task.name: task for task in own}
        costs = draw(st.sampled_from(COSTS))
        members.append(participant(name, costs, contracts.values(), own, chosen))
    return World(SimulatedFederation.of(members), contracts, tasks)


def run_checked(world: World) -> int:
    """Run to rest, checking every round; returns how many rounds moved something."""
    federation = world.federation
    federation.watch = lambda _, move: check_move(world, move)
    seen = {allocation(federation)}
    rounds = 0
    while True:
        costs = {name: one.cost() for name, one in federation.members.items()}
        before = len(federation.moves)
        if federation.round() == 0:
            return rounds
        rounds += 1
        assert rounds < 500, "moves must end"
        earned = dict.fromkeys(costs, 0.0)
        for _, move in federation.moves[before:]:
            earned[move.giver] -= move.price * move.units
            earned[move.taker] += move.price * move.units
        for name, one in federation.members.items():
            assert one.cost() - costs[name] <= earned[name] + SLACK, f"{name} lost by its moves"
        assert federation.cost() < sum(costs.values()) + SLACK, "a round of moves must not raise the total cost"
        now = allocation(federation)
        assert now not in seen, "an allocation came back"
        seen.add(now)


def check_move(world: World, move: Move) -> None:
    """Called before a move is carried out: price, kinds and passing on are as the contracts say."""
    contract = world.contracts[move.giver, move.taker]
    assert contract.covers(move.price)
    assert move.tasks
    holdings = world.federation.members[move.giver].holdings
    for task in move.tasks:
        assert contract.allows(task)
        under = holdings[task.name].contract
        assert under is None or under.may_pass_on or task.origin == move.taker


def allocation(federation: SimulatedFederation) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(sorted(one.holdings)) for one in federation.members.values())


@settings(max_examples=tries(60), deadline=None, derandomize=True)
@given(worlds())
def test_moves_conserve_load_hurt_nobody_and_end(world: World) -> None:
    run_checked(world)
    held = [name for one in world.federation.members.values() for name in one.holdings]
    assert sorted(held) == sorted(world.tasks)
    for one in world.federation.members.values():
        assert not one.reserved
        assert not one.moving
        assert one.search is None
        for name, holding in one.holdings.items():
            assert holding.task.load == world.tasks[name].load


@settings(max_examples=tries(30), deadline=None, derandomize=True)
@given(worlds(), st.floats(0.0, 1.0), st.floats(0.1, 5.0), st.floats(0.0, 100.0))
def test_the_giver_pays_for_load_and_gets_the_penalties(
    world: World, delay: float, price: float, seconds: float
) -> None:
    rounds_to_rest(world.federation, max_rounds=50)
    service = Service(max_delay_seconds=0.5, penalty=price)
    for _, move in world.federation.moves:
        paid = payment(move, start=0.0, end=seconds)
        assert (paid.payer, paid.payee, paid.amount) == (move.giver, move.taker, move.price * move.units * seconds)
        contract = Contract(move.giver, move.taker, 0.0, 10.0, service=service)
        owed: Payment | None = penalty(contract, move, delay_seconds=delay, start=0.0, end=seconds)
        assert (owed is not None) == (delay > 0.5 and seconds > 0)
        if owed is not None:
            assert (owed.payer, owed.payee) == (move.taker, move.giver)
            assert owed.amount == pytest.approx(price * move.units * seconds)
