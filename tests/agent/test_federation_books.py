"""Payments: what a taker bills is what its giver can verify, once, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.agent.federation.books import Books, ServiceSample, ServiceWatch, due_periods
from floodway.agent.federation.errors import MoveError, StorageError
from floodway.agent.federation.journal_rows import BookedEntry, MoveRow, Role
from floodway.agent.federation.leases import LeaseStore, MoveDecision
from floodway.agent.federation.participant_journal import Journal, read_journal
from floodway.agent.federation.settlement import MOMENT
from floodway.contracts.contract import Contract, Service
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Offer
from floodway.contracts.payment import Payment, PaymentReason

CONTRACT = Contract("A", "B", 4.0, 4.0, service=Service(max_delay_seconds=1.0, penalty=0.5))


@dataclass
class Sides:
    """Giver A and taker B of the move A/0, which was decided at 100 s."""

    store: LeaseStore
    giver: Books
    taker: Books
    journals: dict[str, Journal]

    def alive(self, now: float) -> None:
        """Whoever has the fragment renews its lease."""
        lease = self.store.current("f")
        assert lease is not None
        self.store.renew(lease, now=now)

    def lose(self, now: float) -> None:
        """The owner takes the fragment back, because the lease has run out."""
        lease = self.store.current("f")
        assert lease is not None
        self.store.claim("f", "A", after=lease.epoch, now=now, lost=lease)

    def exchange(self, delay: float, now: float) -> list[str]:
        watch = ServiceWatch()
        watch.note("f", now, ServiceSample(delay))
        for start in range(100, int(now), 10):
            watch.note("f", float(start), ServiceSample(delay))
        entries = self.taker.bill(watch).get("A", [])
        for entry in entries:
            self.giver.check(entry, "B", now)
        self.journals["B"].agree(one.entry.id for one in entries)
        return [one.entry.id for one in entries]


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    store = LeaseStore(tmp_path, seconds=10.0)
    store.claim("f", "A", after=0, now=0.0)
    store.follow(store.decide(MoveDecision("A/0", "A", "B", True, 100.0, 4.0, {"f": 1}, {"f": 0.5})))
    journals: dict[str, Journal] = {}
    roles: dict[str, Role] = {"A": "giver", "B": "taker"}
    for name, role in roles.items():
        journals[name] = Journal(tmp_path / name / "federation.sqlite", name)
        row = MoveRow("A/0", role, "A", "B", 4.0, {"f": 0.5}, {"f": 1}, "taking" if role == "taker" else "asked", 90.0)
        journals[name].begin(row)
        journals[name].reach("A/0", "done", at=100.0)
    books = [Books(name, journals[name], store, [CONTRACT], period_seconds=10.0) for name in "AB"]
    return Sides(store, books[0], books[1], journals)


def test_whole_periods_are_billed_and_the_rest_at_the_end(sides: Sides) -> None:
    sides.alive(125.0)
    assert sides.exchange(0.1, 125.0) == ["A/0/f/load/0.000", "A/0/f/load/10.000"]
    assert sides.exchange(0.1, 126.0) == []
    lease = sides.store.current("f")
    assert lease is not None
    sides.store.release(lease, now=128.0)  # B ends in good order, and A takes its fragment back
    sides.lose(131.0)
    assert sides.exchange(0.1, 132.0) == ["A/0/f/load/20.000"]
    assert sides.exchange(0.1, 150.0) == []
    sides.giver.close_moves(150.0)
    row = sides.journals["A"].move("A/0")
    assert row is not None and (row.ended, row.note) == (131.0, "to A")
    assert sides.journals["A"].balances() == sides.journals["B"].balances() == {"A": -56.0, "B": 56.0}


def test_a_service_that_was_broken_costs_the_taker(sides: Sides) -> None:
    sides.alive(110.0)
    assert sides.exchange(2.0, 110.0) == ["A/0/f/load/0.000", "A/0/f/penalty/0.000"]
    penalty = sides.journals["A"].entry("A/0/f/penalty/0.000")
    assert penalty is not None and (penalty.entry.payer, penalty.entry.amount) == ("B", 2.5)


def forged(change: Callable[[BookedEntry], BookedEntry]) -> Callable[[BookedEntry], BookedEntry]:
    return change


@pytest.mark.parametrize(
    "change",
    [
        forged(lambda one: replace(one, entry=replace(one.entry, amount=one.entry.amount * 1.01))),
        forged(lambda one: replace(one, entry=replace(one.entry, payee="C"))),
        forged(lambda one: replace(one, entry=replace(one.entry, at=one.entry.at + 60.0))),
        forged(lambda one: replace(one, start=one.start + 3.0)),
        forged(lambda one: replace(one, move="A/1")),
        forged(lambda one: replace(one, entry=replace(one.entry, id="A/0/f/load/30.000"))),
        forged(lambda one: replace(one, entry=replace(one.entry, reason=PaymentReason.PENALTY))),
    ],
    ids=["amount", "payee", "future", "between", "move", "id", "reason"],
)
def test_what_does_not_follow_from_the_move_is_not_booked(
    sides: Sides, change: Callable[[BookedEntry], BookedEntry]
) -> None:
    sides.alive(111.0)
    (entry,) = sides.taker.bill()["A"]
    with pytest.raises(MoveError):
        sides.giver.check(change(entry), "B", 111.0)
    with pytest.raises(MoveError):
        sides.giver.check(entry, "C", 111.0)
    assert sides.journals["A"].entries() == []
    sides.giver.check(entry, "B", 111.0)
    sides.giver.check(entry, "B", 111.0)
    assert len(sides.journals["A"].entries()) == 1


@given(st.lists(st.floats(0, 200), min_size=1, max_size=8), st.floats(1, 30))
def test_periods_cover_the_time_served_once(times: list[float], period: float) -> None:
    booked: list[tuple[float, float]] = []
    for served, over in [*((one, False) for one in sorted(times)), (max(times), True), (max(times), True)]:
        billed = booked[-1][1] if booked else 0.0
        booked += due_periods(billed, served, period=period, over=over)
    ends = [0.0, *(end for _, end in booked)]
    assert all(abs(start - end) < 1e-6 for (start, _), end in zip(booked, ends, strict=False))
    assert abs(ends[-1] - max(times)) <= MOMENT


def book_all(journal: Journal, entries: list[BookedEntry]) -> None:
    with journal.transaction():
        for entry in entries:
            journal.book(entry)


def test_a_journal_is_one_participants_and_repeats_nothing(tmp_path: Path) -> None:
    path = tmp_path / "federation.sqlite"
    journal = Journal(path, "A")
    assert journal.next_serial() == 0
    offer = Offer("A/7", "A", "B", 4.0, (Task("f", Load(0.5)),))
    journal.offer(offer, "giver", 1.0)
    journal.offer(offer, "giver", 2.0)
    journal.answered("A/7", "accept", "B")
    row = MoveRow("A/7", "giver", "A", "B", 4.0, {"f": 0.5}, {"f": 1}, "intended", 3.0)
    journal.begin(row)
    journal.reach("A/7", "stopped", seconds={"stop": 0.5})
    journal.begin(row)
    journal.reach("A/7", "done", seconds={"start": 0.2})
    journal.reach("A/7", "failed")
    journal.close()

    again = read_journal(tmp_path)
    assert again.participant == "A" and again.next_serial() == 8
    assert [(one["id"], one["answer"], one["at"]) for one in again.offers()] == [("A/7", "accept", 1.0)]
    (found,) = again.moves()
    assert (found.state, found.seconds, found.partner) == ("done", {"stop": 0.5, "start": 0.2}, "B")
    entry = BookedEntry(Payment("x", "A", "B", 1.0, PaymentReason.LOAD, 5.0), "A/7", 4.0)
    again.book(entry)
    again.book(entry)
    with pytest.raises(StorageError, match="other content"):
        again.book(replace(entry, entry=replace(entry.entry, amount=2.0)))
    assert len(again.entries()) == 1
    other, wrong = replace(entry.entry, id="y"), replace(entry.entry, amount=2.0)
    with pytest.raises(StorageError):
        book_all(again, [replace(entry, entry=other), replace(entry, entry=wrong)])
    assert len(again.entries()) == 1
    again.close()
    with pytest.raises(StorageError, match="of participant 'A'"):
        Journal(path, "B")
    with pytest.raises(StorageError, match="no journal"):
        read_journal(tmp_path / "elsewhere")
