"""Taking back: an origin whose load has fallen asks for its own, where that is cheaper; and never to and fro."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodway.contracts.contract import Contract
from floodway.contracts.cost import InFlight
from floodway.contracts.federation_file import parse_federation
from floodway.contracts.load import Load, Task
from floodway.contracts.machine import step
from floodway.contracts.messages import (
    Accept,
    Arrived,
    Gave,
    Held,
    Move,
    Moved,
    MoveFailed,
    Offer,
    Recall,
    Reject,
    Remeasured,
    Send,
    Tick,
    recipient,
    sender,
)
from floodway.contracts.participant_state import Holding, NegotiationTimes, Participant, participant
from floodway.contracts.taking_back import AGAIN_PERIODS, CALM_PERIODS
from floodway.errors import ContractError, NetworkError
from tests.contracts.made import bilateral, fixed_price

TEXT = """
version: 1
participants: {{A: {{url: "http://127.0.0.1:1"{}}}, B: {{url: "http://127.0.0.1:2"}}}}
contracts: {{A<->B: {{price: 4.0}}}}
"""
BOTH = bilateral("A", "B", 4.0, 4.0)
PERIOD = NegotiationTimes().period_seconds
BACK = NegotiationTimes(take_back=True)


def task(name: str, cpu: float, origin: str = "A") -> Task:
    return Task(name, Load(cpu, rate=10.0), units=cpu, origin=origin)


class Two:
    """A and B, who hear each other at once; moves are carried out as they come."""

    def __init__(
        self, loads: dict[str, float], *, settings: NegotiationTimes = BACK, contracts: tuple[Contract, ...] = BOTH
    ):
        tasks = [task(name, cpu) for name, cpu in loads.items()]
        self.members = {
            "A": participant("A", InFlight(), contracts, tasks, settings),
            "B": participant("B", InFlight(), contracts),
        }
        self.now = 0.0
        self.moves: list[tuple[str, str]] = []
        self.said: list[object] = []

    def live(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for name in "AB":
                self._do(name, Tick())

    def _do(self, name: str, event: object) -> None:
        assert isinstance(event, Tick | Offer | Accept | Reject | Recall | Remeasured)
        self.members[name], actions = step(self.members[name], event, self.now)
        for action in actions:
            if isinstance(action, Send):
                self.said.append(action.message)
                if isinstance(action.message, Offer | Accept | Reject | Recall):
                    self._do(recipient(action.message), action.message)
            else:
                self.moves.append((action.giver, action.taker))
                for one, event_of in ((action.taker, Arrived(action)), (action.giver, Moved(action.id))):
                    self.members[one], _ = step(self.members[one], event_of, self.now)

    def load(self, **loads: float) -> None:
        for name in "AB":
            self._do(name, Remeasured(tuple(task(one, cpu) for one, cpu in loads.items())))

    def where(self) -> dict[str, list[str]]:
        return {name: sorted(state.holdings) for name, state in self.members.items()}

    def recalls(self) -> list[Recall]:
        return [message for message in self.said if isinstance(message, Recall)]


def overloaded(settings: NegotiationTimes = BACK) -> Two:
    two = Two({"f": 0.45, "g": 0.45}, settings=settings)
    two.live(PERIOD)
    assert two.moves == [("A", "B")] and len(two.where()["B"]) == 1
    return two


def test_work_comes_home_when_it_costs_less_there_than_is_paid() -> None:
    two = overloaded()
    (away,) = two.where()["B"]
    two.live(20 * PERIOD)
    assert two.moves == [("A", "B")], "not while the load is what it was"
    (left,) = two.where()["A"]
    two.load(**{left: 0.02})
    two.live(20 * PERIOD)
    assert two.moves == [("A", "B"), ("B", "A")] and two.where() == {"A": ["f", "g"], "B": []}
    assert two.members["A"].holdings[away].contract is None and two.members["A"].away == {}
    two.live(100 * PERIOD)
    assert len(two.moves) == 2 and len(two.recalls()) == 1, "nothing goes to and fro"


def test_nothing_is_asked_back_by_default() -> None:
    two = overloaded(NegotiationTimes())
    two.load(f=0.01, g=0.01)
    two.live(100 * PERIOD)
    assert two.moves == [("A", "B")] and two.recalls() == []


def test_a_dip_is_no_reason() -> None:
    two = overloaded()
    (left,) = two.where()["A"]
    for _ in range(5):
        two.load(**{left: 0.02})
        two.live((CALM_PERIODS - 1) * PERIOD)
        two.load(**{left: 0.45})
        two.live(PERIOD)
    assert two.recalls() == [] and two.moves == [("A", "B")]


@pytest.mark.parametrize("load", [0.004 * k * k + 0.005 for k in range(10)])
def test_at_no_load_does_a_fragment_go_to_and_fro(load: float) -> None:
    two = overloaded()
    (left,) = two.where()["A"]
    two.load(**{left: load})
    two.live(100 * PERIOD)
    assert len(two.moves) <= 2


def test_the_holder_says_what_it_needs_now_and_the_origin_judges_by_that() -> None:
    two = overloaded()
    (left,), (away,) = two.where()["A"], two.where()["B"]
    two.load(**{left: 0.02, away: 0.9})  # only B can measure that it has become heavy
    two.live(20 * PERIOD)
    assert len(two.recalls()) == 1 and any(isinstance(one, Reject) for one in two.said)
    assert two.moves == [("A", "B")]
    two.live(AGAIN_PERIODS * PERIOD)
    assert len(two.recalls()) == 2, "asked for again, but not all the time"


def recall(state: Participant, *names: str) -> Participant:
    return step(state, Recall("A", "B", names), 0.0)[0]


def test_only_what_came_from_the_asker_is_offered_home() -> None:
    b = participant("B", InFlight(), BOTH, [task("own", 0.1, "B")])
    b, _ = step(b, Held(task("f", 0.2), "A", 4.0), 0.0)
    assert recall(b, "own", "nothing").recalled == frozenset()
    b = recall(b, "own", "f")
    b, actions = step(b, Tick(), 1.0)
    (offer,) = (action.message for action in actions if isinstance(action, Send))
    assert isinstance(offer, Offer) and (offer.taker, [one.name for one in offer.tasks]) == ("A", ["f"])
    assert b.recalled == frozenset() and sender(offer) == "B"
    b, _ = step(b, Reject(offer.id, "B", "A"), 2.0)
    assert b.search is None and b.asleep_until <= 2.0


def test_without_a_contract_in_that_direction_nothing_is_asked_back() -> None:
    b = participant("B", InFlight(), [fixed_price("A", "B", 4.0)])
    with pytest.raises(ContractError, match="no contract"):
        recall(b, "f")


def test_what_is_found_after_a_restart_is_told_by_events() -> None:
    a = participant("A", InFlight(), BOTH, settings=BACK, serial=7)
    a, _ = step(a, Gave(task("f", 0.45), "B", 4.0), 0.0)
    assert a.away["f"].taker == "B" and a.serial == 7
    a, _ = step(a, Held(task("f", 0.45)), 1.0)
    assert a.away == {} and a.holdings["f"] == Holding(task("f", 0.45))
    b, _ = step(participant("B", InFlight(), BOTH), Held(task("f", 0.45), "A", 4.0), 0.0)
    assert b.holdings["f"].contract == BOTH[0]
    gone, _ = step(b, Held(task("g", 0.45), "C", 4.0), 0.0)
    assert gone.holdings["g"].contract is None, "the file may have changed"


@pytest.mark.parametrize(
    ("written", "meant"), [("", False), (", take_back: true", True), (", take_back: false", False)]
)
def test_a_member_says_so_in_the_federation_file(written: str, meant: bool) -> None:
    assert parse_federation(TEXT.format(written)).members["A"].take_back is meant
    with pytest.raises(NetworkError, match="must be true or false"):
        parse_federation(TEXT.format(", take_back: 2"))


def test_a_move_ends_by_events_alone() -> None:
    tasks = (task("f", 0.45), task("g", 0.45))
    move = Move("A/0", "A", "B", 4.0, tasks)
    a = replace(participant("A", InFlight(), BOTH, tasks), moving={"A/0": move})
    failed, _ = step(a, MoveFailed("A/0", wait_seconds=20.0), 100.0)
    assert failed.next_try == 120.0 and failed.holdings.keys() == {"f", "g"} and not failed.moving
    moved, _ = step(a, Moved("A/0", stayed=frozenset({"g"})), 100.0)
    assert moved.holdings.keys() == {"g"} and moved.away.keys() == {"f"} and not moved.moving
