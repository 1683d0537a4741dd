"""Faults that pass: a disk that is full for a moment, an engine that does not start; nothing stays stopped for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from floodway.agent.federation import leases as leases_module
from floodway.agent.federation.errors import MoveError, StorageError
from floodway.agent.federation.journal_rows import MoveRow
from floodway.agent.federation.participant import ParticipantAgent
from floodway.agent.federation.participant_figures import SHOWN_FAILURES
from floodway.agent.federation.partners import Reach
from floodway.agent.wire.client import Client, PeerError
from floodway.contracts.federation_file import FragmentSpec
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Accept, Move
from tests.agent.federation_sides import LEASE, UNITS, Sides
from tests.agent.federation_world import FederationWorld, agent, part_of
from tests.patience import PATIENCE_SECONDS, wait_until

FULL = OSError(28, "No space left on device")


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    made = Sides(tmp_path)
    yield made
    made.close()


class Faulty:
    """A function that raises the first so many times it is called, and then works."""

    def __init__(self, real: Callable[..., Any], times: int = 1) -> None:
        self._real = real
        self.left = times

    def fail(self, times: int) -> None:
        self.left = times

    def __call__(self, *values: Any, **named: Any) -> Any:
        if self.left > 0:
            self.left -= 1
            raise FULL
        return self._real(*values, **named)


def test_one_that_cannot_be_resumed_does_not_keep_the_others_stopped(sides: Sides) -> None:
    a, b = sides.members["A"], sides.members["B"]
    b.engine.fails["f0"] = a.engine.fails["f0"] = 1  # it fails at B, comes back, and fails at A
    assert sides.give("A/0", "B", "f0", "f1").keys() == {"f0", "f1"}
    assert a.engine.running == {"f1"} and a.moving.stalled == {"f0": "its log is gone"}
    sides.live(2.0)
    sides.check()
    row = a.journal.move("A/0")
    assert row is not None and row.state == "failed"


def test_fragments_that_move_together_stand_still_only_for_themselves(sides: Sides) -> None:
    """None is stopped, nor started, after another one: all are at it before the first is done."""
    a, b = sides.members["A"], sides.members["B"]
    a.engine.on_stop = _together(2)
    b.engine.on_start = _together(2)
    assert sides.give("A/0", "B", "f0", "f1") == {}
    assert b.engine.running == {"f0", "f1"}
    sides.check()


def _together(count: int) -> Callable[[str], None]:
    """So many calls return at the same time; each fragment is waited for once, for it is let go of afterwards."""
    barrier = Barrier(count)
    seen: set[str] = set()

    def arrive(fragment: str) -> None:
        if fragment not in seen:
            seen.add(fragment)
            barrier.wait(PATIENCE_SECONDS)

    return arrive


@pytest.mark.parametrize("taken", [False, True])
def test_a_move_that_cannot_be_settled_is_settled_later(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    a, b = sides.members["A"], sides.members["B"]
    follow = Faulty(sides.store.follow, 0)
    monkeypatch.setattr(sides.store, "follow", follow)
    if taken:  # the fault comes when B has decided the move and follows it
        b.engine.on_start = lambda fragment: follow.fail(1)
    else:
        monkeypatch.setattr(b.engine, "check", Faulty(b.engine.check, 2))
        monkeypatch.setattr(sides.store, "decide", Faulty(sides.store.decide))
    with pytest.raises(OSError, match="No space"):
        sides.give("A/0", "B", "f0")
    assert a.engine.running == {"f1"} and "not settled" in a.moving.stalled["f0"]
    sides.live(2.0)
    sides.check()
    assert sides.members["B" if taken else "A"].engine.running >= {"f0"}
    row = a.journal.move("A/0")
    assert row is not None and row.state == ("done" if taken else "failed")


def test_any_exception_on_the_way_leaves_the_fragments_free_to_run(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = sides.members["A"]
    monkeypatch.setattr(a.engine, "stop", Faulty(a.engine.stop))
    assert sides.give("A/0", "B", "f0").keys() == {"f0"}
    a.engine.running.discard("f0")
    a.moving.holdings.stall("f0", "it ended by itself")
    sides.live(2.0)
    sides.check()
    assert a.moving.stalled == {}


def test_a_stalled_fragment_is_not_started_in_the_middle_of_its_move(sides: Sides) -> None:
    a, b = sides.members["A"], sides.members["B"]
    a.engine.running.discard("f0")
    a.moving.holdings.stall("f0", "OutOfMemoryError")
    seen: list[set[str]] = []

    def meanwhile(fragment: str) -> None:
        a.moving.retry()  # the loop's tick, while the move waits for the partner
        seen.append(set(a.engine.running))

    b.engine.on_start = meanwhile
    sides.give("A/0", "B", "f0")
    assert seen == [{"f1"}] and a.moving.held.keys() == {"f1"}
    sides.check()


def test_what_runs_here_after_all_is_stopped_when_it_has_gone(sides: Sides) -> None:
    sides.members["B"].engine.on_start = lambda fragment: sides.members["A"].engine.running.add("f0")
    sides.give("A/0", "B", "f0")
    sides.check()


def test_all_leases_of_a_move_are_renewed_while_its_first_fragment_starts(sides: Sides) -> None:
    b = sides.members["B"]

    def slowly(fragment: str) -> None:
        for _ in range(4):
            sides.now += LEASE / 3
            b.moving.renew()
            sides.members["A"].moving.renew()
        leases = [sides.store.current(name) for name in ("f0", "f1")]
        assert all(lease is not None and lease.owner == "B" and lease.until > sides.now for lease in leases)

    b.engine.on_start = slowly
    sides.give("A/0", "B", "f0", "f1")
    assert b.engine.running == {"f0", "f1"}
    sides.check()


def test_a_move_that_the_origin_has_overtaken_is_none(sides: Sides) -> None:
    sides.give("A/0", "B", "f0")

    def overtaken(name: str, step: str) -> None:
        if step == "taker:decided":
            lease = sides.store.current("f0")
            assert lease is not None
            sides.store.claim("f0", "A", after=lease.epoch, now=sides.now, lost=lease)

    sides.watched = overtaken
    assert sides.give("B/0", "C", "f0", price=3.0) == {}
    assert sides.members["C"].engine.running == set()
    for name in "BC":
        row = sides.members[name].journal.move("B/0")
        assert row is not None and row.state == "failed", name
    sides.watched = lambda name, step: None
    sides.live(30.0)
    sides.check()


@pytest.mark.parametrize("step", ["taker:leased", "taker:decided"])
def test_a_taker_that_lost_a_move_before_it_ran_books_what_its_giver_books(sides: Sides, step: str) -> None:
    def too_late(name: str, reached: str) -> None:
        """B is held up so long that its lease is made, by whichever side, and runs out; A takes the fragment back."""
        if reached == step:
            found = sides.store.decision("A/0")
            assert found is not None
            lease = sides.store.follow(found)["f0"][-1]
            sides.now += 3 * LEASE
            sides.store.claim("f0", "A", after=lease.epoch, now=sides.now, lost=lease)

    sides.watched = too_late
    sides.give("A/0", "B", "f0")
    sides.watched = lambda name, reached: None
    sides.live(30.0)
    sides.check()
    row = sides.members["B"].journal.move("A/0")
    assert row is not None and row.state == "done"
    assert [one.entry.reason for one in sides.members["B"].journal.entries()] == ["penalty"]


def test_a_participant_does_not_begin_again_where_its_storage_is_missing(sides: Sides) -> None:
    """Not mounted after a restart: all leases seem free, and what B runs would run at A too, from the start."""
    sides.give("A/0", "B", "f0")
    real = sides.store.root.rename(sides.store.root.with_name("unmounted"))
    sides.store.root.mkdir()
    with pytest.raises(StorageError, match="holds no lease of f0, f1, which A has run before"):
        sides.restart("A")
    assert list(sides.store.root.iterdir()) == []
    sides.store.root.rmdir()
    real.rename(sides.store.root)
    sides.restart("A")
    sides.check()


def test_a_request_that_comes_twice_at_once_is_carried_out_once(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    b = sides.members["B"]
    check = b.engine.check
    refused: list[str] = []

    def twice(spec: FragmentSpec) -> None:
        check(spec)
        if spec.name == "f0" and b.journal.move("A/0") is None and "f0" not in b.engine.prepared:
            try:
                b.moving.take(move, {"f0": 1})
            except MoveError as error:
                refused.append(error.message)

    move = Move("A/0", "A", "B", 4.0, (Task("f0", Load(UNITS), units=UNITS),))
    monkeypatch.setattr(b.engine, "check", twice)
    sides.members["A"].moving.give(move, b.moving.take)
    assert refused == ["move A/0 is under way already"] and b.engine.running == {"f0"}
    sides.check()


def test_a_lease_that_cannot_be_renewed_costs_no_other_its_own(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    a = sides.members["A"]
    monkeypatch.setattr(leases_module, "_replace", Faulty(leases_module._replace))
    before = {name: lease.until for name, lease in a.moving.held.items()}
    sides.now += 3.0
    assert a.moving.renew() == []
    after = {name: lease.until for name, lease in a.moving.held.items()}
    assert after == {"f0": before["f0"], "f1": sides.now + LEASE}
    assert a.figures.failures == {"lease of f0": str(FULL)}
    assert a.moving.renew() == [] and a.moving.held["f0"].until == sides.now + LEASE


def test_an_engine_that_does_not_stop_ends_no_renewal(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    sides.give("A/0", "B", "f0", "f1")
    b = sides.members["B"]
    lease = sides.store.current("f0")
    assert lease is not None
    sides.store.claim("f0", "A", after=lease.epoch, now=sides.now, lost=lease)
    monkeypatch.setattr(b.engine, "stop", Faulty(b.engine.stop))
    sides.now += 3.0
    assert b.moving.renew() == ["f0"]
    assert b.figures.failures.keys() == {"stop of f0"} and b.moving.held["f1"].until == sides.now + LEASE


def test_one_lease_that_cannot_be_reclaimed_keeps_no_other_away(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    sides.give("A/0", "B", "f0", "f1")
    sides.dead.add("B")
    a = sides.members["A"]
    assert a.moving.reclaim(margin_seconds=0.0) == []  # how long a lease stays as it is, A must have seen itself
    sides.now += 60.0
    monkeypatch.setattr(sides.store, "claim", Faulty(sides.store.claim))
    assert a.moving.reclaim(margin_seconds=0.0) == ["f1"]
    assert a.engine.running == {"f1"} and a.figures.failures == {"lease of f0": str(FULL)}
    assert a.moving.reclaim(margin_seconds=0.0) == ["f0"] and a.engine.running == {"f0", "f1"}


def test_a_move_that_could_not_be_taken_to_its_end_is_taken_later(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = sides.members["B"]
    follow = Faulty(sides.store.follow)
    monkeypatch.setattr(sides.store, "follow", follow)  # B decides the move and cannot claim the leases; A does
    assert sides.give("A/0", "B", "f0") == {}
    assert b.engine.running == set()
    sides.live(2.0)
    sides.check()
    assert b.engine.running == {"f0"}


def test_a_move_that_is_being_carried_out_is_nobody_elses_to_settle(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = sides.members["A"], sides.members["B"]
    looked: list[int] = []
    real = a.journal.open_moves

    def late() -> list[MoveRow]:
        """The loop looks for open moves; in this moment the move begins and comes as far as its taker's start."""
        found = real()
        if not looked:
            looked.append(1)
            sides.give("A/0", "B", "f0")
        return [*found, *real(), *begun]

    begun: list[MoveRow] = []
    b.engine.on_start = lambda fragment: begun.extend(real())
    monkeypatch.setattr(a.journal, "open_moves", late)
    assert a.moving.settle_open() == {} and begun
    row = a.journal.move("A/0")
    assert row is not None and row.state == "done"
    monkeypatch.undo()

    def meanwhile(fragment: str) -> None:
        assert a.moving.settle_open() == {}

    b.engine.on_start = meanwhile
    sides.give("A/1", "B", "f1")
    sides.check()
    assert b.engine.running == {"f0", "f1"}


def test_a_status_shows_the_latest_failures(sides: Sides) -> None:
    figures = sides.members["A"].figures
    for number in range(200):
        figures.fail(f"move A/{number}", FULL)
        figures.fail("leases", FULL)
    assert len(figures.failures) == SHOWN_FAILURES and figures.failures["leases"] == f"{FULL} (200 times)"


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[ParticipantAgent]:
    """A without its partner."""
    world = FederationWorld(tmp_path)
    made = agent(world.federation, "A", tmp_path, lambda step: None)
    made.start()
    yield made
    made.close()


def wait(condition: Callable[[], bool], member: ParticipantAgent) -> None:
    wait_until(condition, meanwhile=member.tick, told=member.status)


def test_a_full_disk_ends_neither_renewal_nor_loop(alone: ParticipantAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    renew = Faulty(alone.moving.renew, 2)
    monkeypatch.setattr(alone.moving, "renew", renew)
    faulty = Faulty(alone.engine.measure, 2)
    monkeypatch.setattr(alone.engine, "measure", faulty)
    monkeypatch.setattr(alone.journal, "offer", Faulty(alone.journal.offer))
    lease = alone.moving.held["f0"]
    wait(lambda: renew.left == 0 and faulty.left == 0, alone)
    wait(lambda: alone.moving.held["f0"].until > lease.until, alone)
    failures = part_of(alone).failures
    assert failures["leases"] == f"{FULL} (2 times)" and failures["measure"] == f"{FULL} (2 times)"
    wait(lambda: alone.journal.offers() != [], alone)  # the first was not journaled, so it was not made


def test_a_partner_that_does_not_answer_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    member = agent(FederationWorld(tmp_path).federation, "A", tmp_path, lambda step: None, clock=lambda: now[0])
    tries: list[float] = []

    def unreachable(self: Client, path: str, obj: object) -> None:
        tries.append(now[0])
        raise PeerError("unreachable", "no route")

    monkeypatch.setattr(Client, "post_json", unreachable)
    member.start()
    try:
        for _ in range(150):  # half a minute in which there is always something to say
            now[0] += 0.2
            member.tick()
        assert sum(part_of(member).silent.values()) > 1.5 * len(tries)
        waits = [after - before for before, after in pairwise(tries)]
        assert waits[-1] > 2 * waits[0]
        offer = member.journal.offers()[-1]
        assert not member.partners.reach.worth_trying("B", tries[-1])
        member.receive(Accept(offer["id"], "A", "B", offer["price"], tuple(offer["tasks"])))
        assert member.partners.reach.worth_trying("B", tries[-1])
    finally:
        member.close()


def test_the_wait_grows_to_a_bound() -> None:
    reach = Reach(first_seconds=1.0, longest_seconds=30.0)
    assert [reach.missed("B", 0.0) for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert reach.worth_trying("C", 0.0)
