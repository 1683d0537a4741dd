"""The protocol between two or three participants, message by message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from floodway.contracts.contract import Contract, Service
from floodway.contracts.cost import PAPER_TASK, InFlight, Learnt, MeasuredCost, unit_price
from floodway.contracts.load import Load, Task
from floodway.contracts.machine import step
from floodway.contracts.messages import (
    Accept,
    Arrived,
    Cancel,
    Counter,
    Ended,
    Move,
    Moved,
    MoveFailed,
    Offer,
    Reject,
    Remeasured,
    Room,
    Send,
    Started,
    Tick,
)
from floodway.contracts.participant_state import NegotiationTimes, Participant, Reservation, participant
from floodway.errors import ContractError
from tests.contracts.made import bilateral, fixed_price

COSTS = InFlight()
PRICE = {count: unit_price(COSTS, PAPER_TASK, count) for count in range(1, 20)}


def tasks(prefix: str, count: int, kind: str = "task") -> list[Task]:
    return [replace(PAPER_TASK, name=f"{prefix}{place:02}", kind=kind) for place in range(count)]


def member(name: str, count: int, *contracts: Contract, settings: NegotiationTimes | None = None) -> Participant:
    return participant(name, COSTS, contracts, tasks(name, count), settings)


def tick(state: Participant, now: float = 0.0) -> tuple[Participant, list[object]]:
    state, actions = step(state, Tick(), now)
    return state, [action.message if isinstance(action, Send) else action for action in actions]


def hear(state: Participant, message: object, now: float = 0.0) -> tuple[Participant, list[object]]:
    assert isinstance(message, Offer | Accept | Counter | Reject | Cancel | Room)
    state, actions = step(state, message, now)
    return state, [action.message if isinstance(action, Send) else action for action in actions]


def test_nothing_is_offered_within_capacity() -> None:
    _, said = tick(member("A", 14, fixed_price("A", "B", PRICE[14])))
    assert said == []


def test_the_excess_is_offered_to_the_cheapest_partner_and_moves() -> None:
    dear, cheap = fixed_price("A", "B", PRICE[14]), fixed_price("A", "C", PRICE[13])
    a, (offer,) = tick(member("A", 16, dear, cheap))
    assert isinstance(offer, Offer)
    assert (offer.taker, len(offer.tasks)) == ("C", 3)
    c, _ = hear(member("C", 11, cheap), offer)
    c, (accept,) = tick(c)
    assert isinstance(accept, Accept)
    assert len(accept.tasks) == 2
    a, (move,) = hear(a, accept)
    assert isinstance(move, Move)
    assert len(a.holdings) == 16, "tasks run here until the move is complete"
    c, _ = step(c, Arrived(move), 0.5)
    a, _ = step(a, Moved(move.id), 0.5)
    assert (len(a.holdings), len(c.holdings)) == (14, 13)
    assert {holding.price for holding in c.holdings.values() if holding.contract} == {PRICE[13]}


def test_a_refusal_leads_to_the_next_contract_and_then_to_sleep() -> None:
    first, second = fixed_price("A", "B", PRICE[13]), fixed_price("A", "C", PRICE[14])
    a, (offer,) = tick(member("A", 16, first, second))
    b, _ = hear(member("B", 14, first), offer)
    _, (no,) = tick(b)
    assert isinstance(no, Reject)
    a, (offer,) = hear(a, no)
    assert isinstance(offer, Offer)
    assert offer.taker == "C"
    a, said = hear(a, Reject(offer.id, "A", "C"))
    assert said == []
    assert tick(a, now=100.0)[1] == []
    a, _ = hear(a, Room("A", "B"), now=101.0)
    assert len(tick(a, now=102.0)[1]) == 1


def test_without_notifications_it_tries_again_every_period() -> None:
    contract = fixed_price("A", "B", PRICE[14])
    a, (offer,) = tick(member("A", 16, contract, settings=NegotiationTimes(notifications=False, period_seconds=2.0)))
    assert isinstance(offer, Offer)
    a, _ = hear(a, Reject(offer.id, "A", "B"), now=0.1)
    assert tick(a, now=1.9)[1] == []
    assert len(tick(a, now=2.0)[1]) == 1


def test_negotiation_starts_low_and_settles_at_the_taker_s_marginal_cost() -> None:
    contract = Contract("A", "B", PRICE[12], PRICE[14])
    a, (offer,) = tick(member("A", 16, contract))
    assert isinstance(offer, Offer)
    assert (offer.price, len(offer.tasks)) == (PRICE[12], 4)
    b, _ = hear(member("B", 12, contract), offer)
    b, (counter,) = tick(b)
    assert isinstance(counter, Counter)
    assert counter.price == pytest.approx(PRICE[13])
    a, (again,) = hear(a, counter)
    assert isinstance(again, Offer)
    assert (again.price, len(again.tasks)) == (counter.price, 3)
    b, _ = hear(b, again)
    b, (accept,) = tick(b)
    assert isinstance(accept, Accept)
    assert len(accept.tasks) == 1


def test_a_counter_offer_is_set_aside_for_a_cheaper_partner() -> None:
    low, high = Contract("A", "B", PRICE[10], PRICE[14]), fixed_price("A", "C", PRICE[12])
    a, (offer,) = tick(member("A", 16, low, high))
    assert isinstance(offer, Offer)
    assert offer.taker == "B"
    a, (offer,) = hear(a, Counter(offer.id, "A", "B", PRICE[13]))
    assert isinstance(offer, Offer)
    assert offer.taker == "C"
    _, (offer,) = hear(a, Reject(offer.id, "A", "C"))
    assert isinstance(offer, Offer)
    assert (offer.taker, offer.price) == ("B", PRICE[13])


def test_a_full_taker_above_the_range_rejects() -> None:
    contract = Contract("A", "B", PRICE[12], PRICE[14])
    _, (offer,) = tick(member("A", 18, contract))
    b, _ = hear(member("B", 14, contract), offer)
    assert isinstance(tick(b)[1][0], Reject)


def test_the_best_paid_offer_is_served_first_and_room_is_counted_once() -> None:
    poor, rich = fixed_price("A", "C", PRICE[13]), fixed_price("B", "C", PRICE[14])
    c = member("C", 12, poor, rich, settings=NegotiationTimes(gather_seconds=1.0))
    for giver in (member("A", 16, poor), member("B", 16, rich)):
        _, (offer,) = tick(giver)
        c, _ = hear(c, offer)
    assert tick(c, now=0.5)[1] == [], "offers gather first"
    c, said = tick(c, now=1.0)
    assert [(type(answer), getattr(answer, "giver", "")) for answer in said] == [(Accept, "B"), (Reject, "A")]
    assert len(c.reserved) == 1
    assert c.promised.cpu == pytest.approx(14 * PAPER_TASK.load.cpu)


def test_room_is_announced_once_to_those_refused() -> None:
    contract = fixed_price("A", "B", PRICE[14])
    _, (offer,) = tick(member("A", 16, contract))
    b, _ = hear(member("B", 14, contract), offer)
    b, _ = tick(b)
    b, actions = step(b, Ended("B00"), 5.0)
    assert actions == (Send(Room("A", "B")),)
    assert step(b, Ended("B01"), 6.0)[1] == ()


def test_a_room_that_came_during_a_pass_is_not_slept_through() -> None:
    contract = fixed_price("A", "B", PRICE[14])
    a, (offer,) = tick(member("A", 16, contract))
    a, _ = hear(a, Room("A", "B"))
    assert isinstance(offer, Offer)
    a, _ = hear(a, Reject(offer.id, "A", "B"))
    assert len(tick(a, now=2.0)[1]) == 1


def test_migration_cost_is_a_threshold() -> None:
    contract = fixed_price("A", "B", PRICE[14])
    margin = PRICE[16] - PRICE[14]
    shy = NegotiationTimes(migration_cost=margin + 1e-6)
    assert tick(member("A", 16, contract, settings=shy))[1] == []
    bold = NegotiationTimes(migration_cost=margin - 1e-6)
    (offer,) = tick(member("A", 16, contract, settings=bold))[1]
    assert isinstance(offer, Offer)
    assert len(offer.tasks) == 1


def test_tasks_taken_under_a_contract_that_forbids_it_are_not_passed_on() -> None:
    closed = replace(fixed_price("A", "B", PRICE[18]), may_pass_on=False)
    onward, home = fixed_price("B", "C", PRICE[10]), fixed_price("B", "A", PRICE[10])
    taken = tasks("A", 2)
    move = Move("A/0", "A", "B", PRICE[18], tuple(replace(task, origin="A") for task in taken))
    b = member("B", 14, closed, onward, home)
    b, _ = hear(b, Offer("A/0", "A", "B", PRICE[18], move.tasks))
    b, _ = step(b, Tick(), -1e9)
    b, _ = step(b, Tick(), 0.0)
    assert "A/0" in b.reserved
    b, _ = step(b, Arrived(move), 0.0)
    own = {task.name for task in b.movable(onward)}
    assert own == {f"B{place:02}" for place in range(14)}
    assert {task.name for task in b.movable(home)} == own | {"A00", "A01"}


def test_a_task_that_has_come_home_is_its_owners_again() -> None:
    home = replace(fixed_price("B", "A", PRICE[18]), may_pass_on=False, service=Service(1e-9, 1.0))
    onward = fixed_price("A", "C", PRICE[10])
    move = Move("B/0", "B", "A", PRICE[18], tuple(replace(task, origin="A") for task in tasks("A", 1)))
    a = replace(member("A", 0, home, onward), reserved={"B/0": Reservation(move, 0.0)})
    a, _ = step(a, Arrived(move), 0.0)
    (held,) = a.holdings.values()
    assert (held.contract, held.price) == (None, 0.0) and a.movable(onward) == [held.task]


def test_only_allowed_kinds_are_offered() -> None:
    contract = Contract("A", "B", PRICE[12], PRICE[12], kinds=frozenset({"filter"}))
    mixed = [*tasks("m", 15), *tasks("f", 2, kind="filter")]
    _, (offer,) = tick(participant("A", COSTS, [contract], mixed))
    assert isinstance(offer, Offer)
    assert {task.name for task in offer.tasks} == {"f00", "f01"}


def test_queries_move_whole_before_parts_of_the_next() -> None:
    light, heavy = (replace(PAPER_TASK, load=Load(0.03, 0.03)), replace(PAPER_TASK, load=Load(0.05, 0.05), units=1.5))
    own = [replace(light, name=f"l{place}", query="light") for place in range(8)]
    own += [replace(heavy, name=f"h{place}", query="heavy") for place in range(8)]
    _, (offer,) = tick(participant("A", COSTS, [fixed_price("A", "B", 0.1)], own))
    assert isinstance(offer, Offer)
    queries = [task.query for task in offer.tasks]
    assert queries == sorted(queries)
    assert queries.count("heavy") == 8


def test_service_already_promised_limits_what_is_taken() -> None:
    rate = 500.0 * 10
    limit = COSTS.cost(Load(0.25, 0.4)) / rate
    strict = replace(fixed_price("A", "B", PRICE[14]), service=Service(limit * 1.001, penalty=5.0))
    _, (offer,) = tick(member("A", 20, strict))
    b, _ = hear(member("B", 8, strict), offer)
    _, (accept,) = tick(b)
    assert isinstance(accept, Accept)
    assert len(accept.tasks) == 2, "an eleventh task would be worth its price but break the promise"


def test_a_cost_that_turns_out_higher_is_a_reason_to_offer() -> None:
    a = member("A", 10, fixed_price("A", "B", PRICE[14]))
    a, none = tick(a)
    assert none == []
    dear = Learnt(MeasuredCost.fit([(0.2, 0.5), (0.25, 5.0)]), COSTS)
    a, _ = step(a, Remeasured((), dear), 1.0)
    (offer,) = tick(a, now=5.0)[1]
    assert isinstance(offer, Offer) and len(offer.tasks) == 2, "below 0.2 a task costs less than its price"
    a, _ = step(a, Remeasured(()), 6.0)
    assert a.costs == dear


def test_an_unanswered_offer_is_cancelled_and_a_late_answer_frees_its_room() -> None:
    contract = fixed_price("A", "B", PRICE[14])
    a, (offer,) = tick(member("A", 16, contract, settings=NegotiationTimes(answer_seconds=10.0)))
    assert isinstance(offer, Offer)
    b, _ = hear(member("B", 3, contract), offer)
    b, (accept,) = tick(b, now=9.0)
    a, said = tick(a, now=10.0)
    assert said == [Cancel(offer.id, "A", "B")]
    _, said = hear(a, accept, now=11.0)
    assert said == [Cancel(offer.id, "A", "B")]
    b, _ = hear(b, said[0])
    assert not b.reserved


def test_a_failed_move_keeps_the_tasks_and_frees_the_promise() -> None:
    contract = fixed_price("A", "B", PRICE[14])
    a, (offer,) = tick(member("A", 16, contract))
    assert isinstance(offer, Offer)
    a, (move,) = hear(a, Accept(offer.id, "A", "B", offer.price, (offer.tasks[0].name,)))
    assert isinstance(move, Move)
    assert tick(a, now=50.0)[1] == [], "one move at a time"
    a, actions = step(a, MoveFailed(move.id), 60.0)
    assert actions == (Send(Cancel(move.id, "A", "B")),)
    assert len(a.holdings) == 16
    assert step(a, MoveFailed(move.id), 61.0) == (a, ())
    assert step(a, Moved(move.id), 61.0) == (a, ())


def test_promises_lapse_and_the_tasks_that_come_too_late_are_refused() -> None:
    contract = fixed_price("A", "B", PRICE[14])
    _, (offer,) = tick(member("A", 16, contract))
    assert isinstance(offer, Offer)
    b, _ = hear(member("B", 3, contract, settings=NegotiationTimes(arrival_seconds=30.0)), offer)
    b, _ = tick(b)
    b, _ = tick(b, now=30.0)
    assert not b.reserved
    with pytest.raises(ContractError, match="did not accept"):
        step(b, Arrived(Move(offer.id, "A", "B", offer.price, offer.tasks)), 31.0)


def test_messages_that_break_the_contract_are_refused_and_change_nothing() -> None:
    contract = Contract("A", "B", PRICE[12], PRICE[14], kinds=frozenset({"task"}))
    b = member("B", 3, contract)
    good = Offer("A/0", "A", "B", PRICE[13], tuple(tasks("A", 2)))
    for bad, says in (
        (replace(good, giver="Z"), "no contract with 'Z'"),
        (replace(good, price=PRICE[15]), "outside"),
        (replace(good, price=0.0), "outside"),
        (replace(good, tasks=()), "no task"),
        (replace(good, taker="C"), "is for C"),
        (replace(good, tasks=(replace(PAPER_TASK, kind="secret"),)), "may not move"),
        (replace(good, tasks=tuple(tasks("B", 1))), "already run"),
        (replace(good, tasks=(*good.tasks, good.tasks[0])), "come twice"),
    ):
        with pytest.raises(ContractError, match=says):
            step(b, bad, 0.0)
    b, _ = step(b, good, 0.0)
    assert step(b, good, 0.0) == (b, ()), "the same offer again changes nothing"


def test_answers_that_were_not_asked_for_are_refused() -> None:
    contract, other = Contract("A", "B", PRICE[12], PRICE[14]), fixed_price("A", "C", PRICE[18])
    a, (offer,) = tick(member("A", 16, contract, other))
    assert isinstance(offer, Offer)
    name = offer.tasks[0].name
    for bad, says in (
        (Accept(offer.id, "A", "B", offer.price, ("mine",)), "does not hold"),
        (Accept(offer.id, "A", "B", offer.price, ()), "does not hold"),
        (Accept(offer.id, "A", "B", PRICE[14], (name,)), "does not hold"),
        (Accept(offer.id, "A", "C", offer.price, (name,)), "went to B"),
        (Counter(offer.id, "A", "B", PRICE[15]), "outside"),
        (Reject(offer.id, "A", "Z"), "no contract with 'Z'"),
    ):
        with pytest.raises(ContractError, match=says):
            step(a, bad, 0.0)
    assert step(a, Counter("A/9", "A", "B", PRICE[13]), 0.0) == (a, ())


def test_tasks_start_and_end_where_they_run() -> None:
    a = member("A", 2, fixed_price("A", "B", PRICE[14]))
    a, _ = step(a, Started(replace(PAPER_TASK, name="new")), 0.0)
    assert a.holdings["new"].task.origin == "A"
    with pytest.raises(ContractError, match="already runs"):
        step(a, Started(replace(PAPER_TASK, name="new")), 0.0)
    a, _ = step(a, Ended("new"), 0.0)
    with pytest.raises(ContractError, match="runs no task"):
        step(a, Ended("new"), 0.0)
    with pytest.raises(ContractError, match="two tasks"):
        participant("A", COSTS, [], [PAPER_TASK, PAPER_TASK])


def test_a_counter_that_does_not_raise_the_price_ends_the_talk_with_that_partner() -> None:
    contract = Contract("A", "B", PRICE[12], PRICE[14])
    a, (offer,) = tick(member("A", 16, contract))
    assert isinstance(offer, Offer)
    a, said = hear(a, Counter(offer.id, "A", "B", offer.price))
    assert said == []
    assert a.search is None


@pytest.mark.parametrize(
    "name", ["period_seconds", "answer_seconds", "arrival_seconds", "gather_seconds", "migration_cost", "wake_seconds"]
)
def test_settings_refuse_times_that_make_no_sense(name: str) -> None:
    wrong: dict[str, Any] = {name: -1.0}
    with pytest.raises(ContractError, match=name):
        NegotiationTimes(**wrong)


def test_both_directions_can_be_agreed_at_once() -> None:
    a = member("A", 0, *bilateral("A", "B", PRICE[12], PRICE[14]))
    assert a.gives_to["B"].taker == "B"
    assert a.takes_from["B"].giver == "B"


def test_measured_tasks_replace_what_they_were_thought_to_need() -> None:
    state = participant("A", InFlight(), [fixed_price("A", "B", 4.0)], [Task("t", Load(0.1)), Task("u", Load(0.1))])
    state = replace(state, asleep_until=1e9)
    risen, _ = step(state, Remeasured((Task("t", Load(0.7, rate=7.0), units=0.7), Task("gone", Load(9.0)))), now=0.0)
    assert risen.load.cpu == pytest.approx(0.8) and risen.load.rate == 7.0 and set(risen.holdings) == {"t", "u"}
    assert risen.holdings["t"].task.units == 0.7 and risen.holdings["t"].task.origin == "A"
    assert risen.asleep_until < 0, "a risen load is a reason to look for partners"
    fallen, _ = step(replace(risen, asleep_until=1e9), Remeasured((Task("t", Load(0.2)),)), now=0.0)
    assert fallen.load.cpu == pytest.approx(0.3) and fallen.asleep_until == 1e9
