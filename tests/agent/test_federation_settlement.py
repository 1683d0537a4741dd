"""Old entries become sums: no balance changes, nothing is booked twice, and what a partner may still send is taken."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path

import pytest

from floodway.agent.federation.books import Books, ServiceSample, ServiceWatch
from floodway.agent.federation.errors import MoveError
from floodway.agent.federation.journal_rows import BookedEntry, MoveRow, Role
from floodway.agent.federation.leases import LeaseStore, MoveDecision
from floodway.agent.federation.participant_journal import FILE, Journal
from floodway.agent.federation.settlement import settled_sums
from floodway.contracts.contract import Contract, Service
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Offer

CONTRACT = Contract("A", "B", 4.0, 4.0, service=Service(max_delay_seconds=1.0, penalty=0.5))
KEPT_SECONDS = 100.0


@dataclass
class Pair:
    """Giver A and taker B of the move A/0, decided at 100 s; periods of 10 s, every third one late."""

    store: LeaseStore
    books: dict[str, Books]
    journals: dict[str, Journal]

    def bill(self, now: float) -> list[BookedEntry]:
        """What B sends, having served until now."""
        lease = self.store.current("f")
        assert lease is not None
        if lease.owner == "B":
            self.store.renew(lease, now=now)
        watch = ServiceWatch()
        for start in range(100, int(now), 10):
            watch.note("f", float(start), ServiceSample(2.0 if start % 30 == 0 else 0.1))
        return self.books["B"].bill(watch).get("A", [])

    def exchange(self, now: float) -> list[BookedEntry]:
        """Serve, bill, book and agree."""
        sent = self.bill(now)
        booked, refused = self.books["A"].book(sent, "B", now)
        assert refused == {}
        self.journals["B"].agree(one.entry.id for one in booked)
        return sent

    def settle(self, now: float) -> None:
        for books in self.books.values():
            books.settle(now)

    def take_back(self, now: float) -> None:
        """B ends in good order, and A takes its fragment back."""
        lease = self.store.current("f")
        assert lease is not None
        self.store.release(lease, now=now)
        self.store.claim("f", "A", after=lease.epoch, now=now, lost=self.store.current("f"))
        for books in self.books.values():
            books.close_moves(now)

    def balances(self) -> list[dict[str, float]]:
        """Of both; each journal's own rows must come to the same."""
        for journal in self.journals.values():
            sums = dict.fromkeys("AB", 0.0)
            rows = [(one["payer"], one["payee"], one["amount"]) for one in settled_sums(journal)]
            entries = [one.entry for one in journal.entries() if not one.disputed]
            for payer, payee, amount in [*rows, *((one.payer, one.payee, one.amount) for one in entries)]:
                sums[payer] -= amount
                sums[payee] += amount
            assert all(isclose(sums[name], amount) for name, amount in journal.balances().items())
        return [journal.balances() for journal in self.journals.values()]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    store = LeaseStore(tmp_path, seconds=10_000.0)
    store.claim("f", "A", after=0, now=0.0)
    store.follow(store.decide(MoveDecision("A/0", "A", "B", True, 100.0, 4.0, {"f": 1}, {"f": 0.5})))
    journals = {name: Journal(tmp_path / name / FILE, name) for name in "AB"}
    roles: dict[str, Role] = {"A": "giver", "B": "taker"}
    for name, role in roles.items():
        row = MoveRow("A/0", role, "A", "B", 4.0, {"f": 0.5}, {"f": 1}, "taking" if role == "taker" else "asked", 90.0)
        journals[name].offer(Offer("A/0", "A", "B", 4.0, (Task("f", Load(0.5), units=0.5),)), role, 90.0)
        journals[name].begin(row)
        journals[name].reach("A/0", "done", at=100.0)
    books = {
        name: Books(name, journals[name], store, [CONTRACT], period_seconds=10.0, kept_seconds=KEPT_SECONDS)
        for name in "AB"
    }
    return Pair(store, books, journals)


def test_old_periods_become_sums_and_no_balance_changes(pair: Pair) -> None:
    sent = pair.exchange(400.0)
    before = pair.balances()
    pair.settle(400.0)
    assert pair.balances() == before
    for journal in pair.journals.values():
        assert {one.entry.at for one in journal.entries()} == {float(at) for at in range(300, 410, 10)}
        assert sum(one["entries"] for one in settled_sums(journal)) + len(journal.entries()) == len(sent)
    assert pair.exchange(410.0)[0].start == 400.0


def test_a_bill_that_comes_again_after_its_periods_were_settled_is_booked_once(pair: Pair) -> None:
    sent = pair.exchange(400.0)
    before = pair.balances()
    pair.settle(400.0)
    booked, refused = pair.books["A"].book(sent, "B", 400.0)
    assert (booked, refused) == (sent, {})
    assert pair.balances() == before


def test_an_amount_that_the_contract_does_not_say_is_refused_also_of_a_settled_period(pair: Pair) -> None:
    sent = pair.exchange(400.0)
    pair.settle(400.0)
    with pytest.raises(MoveError, match="not what the contract says"):
        pair.books["A"].check(replace(sent[0], entry=replace(sent[0].entry, amount=1e6)), "B", 400.0)


def test_what_the_giver_has_not_agreed_to_stays_and_is_sent_again(pair: Pair) -> None:
    sent = pair.bill(400.0)
    pair.settle(400.0)
    assert pair.journals["B"].entries() == sent and pair.exchange(400.0) == sent
    pair.books["B"].settle(5000.0)
    assert {one.start for one in pair.journals["B"].entries()} == {390.0}


def test_a_penalty_that_was_refused_can_come_after_its_neighbours_were_settled(pair: Pair) -> None:
    sent = pair.bill(400.0)
    late = next(one for one in sent if "penalty" in one.entry.id)
    others = [one for one in sent if one is not late]
    assert pair.books["A"].book(others, "B", 400.0)[1] == {}
    pair.journals["B"].agree(one.entry.id for one in others)
    pair.journals["B"].dispute({late.entry.id: "not now"})
    pair.settle(400.0)
    assert pair.books["A"].book([late], "B", 400.0) == ([late], {})
    assert pair.books["A"].book([late], "B", 400.0) == ([late], {})
    pair.journals["B"].agree([late.entry.id])
    first, second = pair.balances()
    assert all(isclose(first[name], second[name]) for name in "AB")


def test_a_period_that_never_came_can_come_after_its_neighbours_were_settled(pair: Pair) -> None:
    sent = pair.bill(400.0)
    missing = [one for one in sent if one.start == 150.0]
    assert pair.books["A"].book([one for one in sent if one not in missing], "B", 400.0)[1] == {}
    pair.books["A"].settle(400.0)
    assert pair.books["A"].book(missing, "B", 400.0) == (missing, {})
    pair.journals["B"].agree(one.entry.id for one in sent)
    first, second = pair.balances()
    assert all(isclose(first[name], second[name]) for name in "AB")


def test_a_move_that_is_over_is_forgotten_and_its_last_bill_is_still_answered(pair: Pair) -> None:
    pair.exchange(400.0)
    pair.take_back(405.0)
    sent = pair.exchange(405.0)
    assert [one.start for one in sent] == [400.0]
    before = pair.balances()
    pair.settle(10_000.0)
    assert [journal.moves() for journal in pair.journals.values()] == [[], []]
    assert [journal.entries() for journal in pair.journals.values()] == [[], []]
    assert [journal.moves_by_state() for journal in pair.journals.values()] == [{"done": 1}] * 2
    assert all(isclose(a[name], b[name]) for a, b in zip(before, pair.balances(), strict=True) for name in "AB")
    assert pair.journals["A"].next_serial() == 1 and pair.journals["A"].offers() == []
    assert pair.books["A"].book(sent, "B", 10_000.0) == (sent, {})
    assert all(isclose(a[name], b[name]) for a, b in zip(before, pair.balances(), strict=True) for name in "AB")
    with pytest.raises(MoveError, match="did not give it"):
        pair.books["A"].check(replace(sent[0], move="A/1"), "B", 10_000.0)


def test_a_move_whose_bills_never_came_is_not_forgotten(pair: Pair) -> None:
    sent = pair.bill(400.0)
    pair.take_back(405.0)
    pair.settle(10_000.0)
    assert [len(journal.moves()) for journal in pair.journals.values()] == [1, 1]
    assert pair.books["A"].book(sent, "B", 10_000.0) == (sent, {})


def test_a_crash_while_entries_become_sums_changes_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.exchange(400.0)
    journal = pair.journals["A"]
    before = journal.entries(), journal.balances()
    add, calls = journal._add_sum, list[int]()

    def crash(*values: str | float) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        add(str(values[0]), *values[1:])

    monkeypatch.setattr(journal, "_add_sum", crash)
    with pytest.raises(KeyboardInterrupt):
        pair.books["A"].settle(400.0)
    assert (journal.entries(), journal.balances(), settled_sums(journal)) == (*before, [])


def test_a_journal_of_version_2_is_brought_along(pair: Pair, tmp_path: Path) -> None:
    pair.exchange(400.0)
    balances = pair.journals["A"].balances()
    pair.journals["A"].close()
    database = sqlite3.connect(tmp_path / "A" / FILE)
    database.executescript(
        "DROP TABLE settled; DROP TABLE settled_until; DROP TABLE forgotten; UPDATE about SET version = 2;"
    )
    database.close()
    again = Journal(tmp_path / "A" / FILE, "A")
    assert again.balances() == balances and settled_sums(again) == []
    again.close()
