"""Whatever fits at a partner and pays is offered, in one pass, however much does not fit beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.contracts.contract import Contract, Service
from floodway.contracts.cost import InFlight, added_cost, saved_cost
from floodway.contracts.load import Load, Task
from floodway.contracts.machine import step
from floodway.contracts.messages import Move, Offer, Reject, Send, Tick
from floodway.contracts.participant_state import NegotiationTimes, Participant, participant
from floodway.simulation.federation import SimulatedFederation
from tests.contracts.made import fixed_price
from tests.effort import tries

NAMES = "ABCD"
TRY_ALWAYS = NegotiationTimes(notifications=False)
SLACK = 1e-6


@st.composite
def uneven(draw: st.DrawFn) -> SimulatedFederation:
    """Fragments from light to heavier than any partner could take; contracts with ranges, kinds and service."""
    names = NAMES[: draw(st.integers(2, 4))]
    contracts = [
        Contract(
            giver,
            taker,
            low := draw(st.sampled_from([0.5, 2.0, 4.0])),
            low + draw(st.sampled_from([0.0, 0.0, 3.0])),
            kinds=draw(st.sampled_from([None, None, frozenset({"filter"})])),
            may_pass_on=draw(st.booleans()),
            service=draw(st.sampled_from([None, None, Service(0.05, 1.0)])),
        )
        for giver in names
        for taker in names
        if giver != taker and draw(st.booleans())
    ]
    members = []
    for name in names:
        own = []
        for place in range(draw(st.integers(0, 6))):
            cpu = draw(st.sampled_from([0.02, 0.05, 0.1, 0.35, 0.6, 0.9]))
            load = Load(cpu, draw(st.sampled_from([0.0, 0.0, 0.2])), draw(st.sampled_from([5.0, 50.0])))
            units = draw(st.sampled_from([cpu, cpu, 1.0]))
            kind, query = draw(st.sampled_from(["filter", "join"])), draw(st.sampled_from(["", "q"]))
            own.append(Task(f"{name}{place}", load, units, kind, query))
        members.append(
            participant(name, InFlight(cpu=draw(st.sampled_from([0.5, 1.0, 2.0]))), contracts, own, TRY_ALWAYS)
        )
    return SimulatedFederation.of(members)


def chances(federation: SimulatedFederation) -> Iterator[str]:
    """Every task that some partner would take at a price that its holder would rather pay than keep it."""
    for giver in federation.members.values():
        for contract in giver.gives_to.values():
            taker = federation.members[contract.taker]
            for task in giver.movable(contract):
                worth = saved_cost(giver.costs, giver.load, task) / task.units
                asked = max(contract.min_price, added_cost(taker.costs, taker.load, task) / task.units)
                kept = taker.bearable(taker.load) and taker.bearable(taker.load + task.load, also=contract)
                if kept and asked <= contract.max_price and worth > asked * (1 + SLACK):
                    yield f"{task.name}: {contract} at {asked}"


@settings(max_examples=tries(80), deadline=None, derandomize=True)
@given(uneven())
def test_a_round_moves_something_whenever_something_acceptable_pays(federation: SimulatedFederation) -> None:
    for _ in range(200):
        open_chances = list(chances(federation))
        if federation.round() == 0:
            assert not open_chances, f"nobody offered {open_chances[0]}"
            return
    raise AssertionError("moves must end")


def pair(*tasks: Task, price: float = 4.0, kinds: frozenset[str] | None = None) -> tuple[Participant, Participant]:
    contract = replace(fixed_price("A", "B", price), kinds=kinds)
    busy = Task("own", Load(0.35), units=0.35)
    return (
        participant("A", InFlight(), [contract], tasks, TRY_ALWAYS),
        participant("B", InFlight(), [contract], [busy], TRY_ALWAYS),
    )


def test_the_light_one_is_offered_when_the_heavy_one_does_not_fit() -> None:
    a, b = pair(Task("heavy", Load(0.7), units=0.7), Task("light", Load(0.1), units=0.1))
    said = []
    a, actions = step(a, Tick(), now=0.0)
    for _ in range(2):
        (send,) = actions
        assert isinstance(send, Send) and isinstance(send.message, Offer)
        said.append([task.name for task in send.message.tasks])
        b, _ = step(b, send.message, now=0.0)
        b, (answer,) = step(b, Tick(), now=0.0)
        assert isinstance(answer, Send)
        a, actions = step(a, answer.message, now=0.0)
    assert said == [["heavy"], ["light"]]
    (move,) = actions
    assert isinstance(move, Move) and [task.name for task in move.tasks] == ["light"]


def test_of_equals_one_refusal_is_enough() -> None:
    a, _ = pair(*(Task(f"t{place}", Load(0.6, 0.1, 10.0), units=0.6) for place in range(3)))
    a, (send,) = step(a, Tick(), now=0.0)
    assert isinstance(send, Send) and isinstance(send.message, Offer)
    a, actions = step(a, Reject(send.message.id, "A", "B"), now=0.0)
    assert actions == () and a.search is None


def test_what_the_contract_forbids_does_not_stand_in_the_way() -> None:
    heavy, light = Task("heavy", Load(0.6), units=0.6), Task("light", Load(0.1), units=0.1, kind="filter")
    a, _ = pair(heavy, light, kinds=frozenset({"filter"}))
    _, (send,) = step(a, Tick(), now=0.0)
    assert isinstance(send, Send) and isinstance(send.message, Offer)
    assert [task.name for task in send.message.tasks] == ["light"]
