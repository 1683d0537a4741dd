"""Bills between participants: what is refused holds up nothing, what was dropped is told, old books cost no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from floodway.agent.federation import api
from floodway.agent.federation.books import Books, ServiceSample, ServiceWatch
from floodway.agent.federation.journal_rows import BookedEntry
from floodway.agent.federation.participant_journal import Journal
from floodway.agent.wire.client import PeerError
from floodway.agent.wire.refusals import RefusedError
from floodway.cli.payments import payments
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Offer
from floodway.contracts.payment import Payment, PaymentReason
from tests.agent.federation_sides import PERIOD, UNITS, Killed, Side, Sides


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    made = Sides(tmp_path)
    yield made
    made.close()


def entries(side: Side, reason: PaymentReason) -> list[BookedEntry]:
    return [one for one in side.journal.entries() if one.entry.reason is reason]


def test_an_entry_that_cannot_be_booked_holds_up_no_other(sides: Sides, capsys: pytest.CaptureFixture[str]) -> None:
    sides.give("A/0", "B", "f0")
    a, b = sides.members["A"], sides.members["B"]
    wrong = Payment("A/0/f0/penalty/500.000", "B", "A", 7.0, PaymentReason.PENALTY, sides.now + 510.0)
    b.journal.book(BookedEntry(wrong, "A/0", sides.now + 500.0))
    sides.live(30.0)
    assert len(entries(a, PaymentReason.LOAD)) == 3 and all(one.agreed for one in a.journal.entries())
    (disputed,) = (one for one in b.journal.entries() if one.disputed)
    assert disputed.entry == wrong and "did not serve" in disputed.disputed and not disputed.agreed
    assert a.journal.balances() == b.journal.balances() == {"A": -60.0, "B": 60.0}
    payments(sides.root / "B", as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "disputed, in no balance: A/0/f0/penalty/500.000 over 7" in shown and "0 not agreed" in shown


def test_what_was_refused_because_of_a_clock_is_booked_when_that_has_caught_up(sides: Sides) -> None:
    sides.give("A/0", "B", "f0")
    sides.live(8.0)
    b = sides.members["B"]
    sides.now += 30.0  # B's clock is ahead by half a minute: it bills what A has not seen yet
    b.moving.renew()
    bill = b.books.bill()["A"]
    sides.now -= 30.0
    answer = sides.bill("B", "A", bill)
    assert answer["booked"] == ["A/0/f0/load/0.000"] and len(answer["refused"]) == 2
    b.journal.agree(answer["booked"])
    b.journal.dispute(answer["refused"])
    assert b.books.bill() == {} and len(b.books.bill(disputed=True)["A"]) == 2
    sides.live(120.0)
    sides.check()


def test_a_payment_is_never_there_without_its_penalty(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    sides.give("A/0", "B", "f0")
    b, watch, real = sides.members["B"], ServiceWatch(), Journal.book
    watch.note("f0", sides.now, ServiceSample(90.0))
    sides.now += PERIOD
    b.moving.renew()

    def killed(journal: Journal, booked: BookedEntry) -> None:
        if booked.entry.reason is PaymentReason.PENALTY:
            raise Killed
        real(journal, booked)

    monkeypatch.setattr(Journal, "book", killed)
    with suppress(Killed):
        b.books.bill(watch)
    monkeypatch.setattr(Journal, "book", real)
    sides.restart("B")
    found = sides.members["B"].books.bill(watch)["A"]
    assert [one.entry.id for one in found] == ["A/0/f0/load/0.000", "A/0/f0/penalty/0.000"]


def test_tuples_that_a_taker_drops_are_service_missed_and_told(
    sides: Sides, capsys: pytest.CaptureFixture[str]
) -> None:
    sides.give("A/0", "B", "f0")
    a, b = sides.members["A"], sides.members["B"]
    began = sides.now
    for second in range(20):  # no delay to speak of, but for five seconds a tenth is dropped
        b.billing.watch.note("f0", began + second, ServiceSample(0.1, 0.9 if 10 <= second < 15 else 1.0))
    sides.live(22.0)
    first, second_load = entries(a, PaymentReason.LOAD)
    assert first.keep == 1.0 and second_load.keep == pytest.approx(0.95) and second_load.delay_seconds == 0.1
    (fine,) = entries(a, PaymentReason.PENALTY)
    assert fine.entry.id == "A/0/f0/penalty/10.000"
    assert (fine.entry.payer, fine.entry.amount) == ("B", 0.5 * UNITS * PERIOD)
    told = a.figures.missed["f0"]
    assert told.by == "B" and told.keep == pytest.approx(0.95)
    payments(sides.root / "A", as_json=False)
    assert "1 periods in which tuples were dropped; the least that was kept is 95%" in capsys.readouterr().out
    b.billing.watch.note("f0", began + 21, ServiceSample(0.1))
    sides.live(12.0)
    assert a.figures.missed == {} and len(entries(a, PaymentReason.PENALTY)) == 1
    sides.check()


def test_who_passed_a_fragment_on_answers_for_what_is_dropped(sides: Sides) -> None:
    sides.give("A/0", "B", "f0")
    sides.give("B/0", "C", "f0", price=3.0)
    began = sides.now
    for second in range(60):
        sides.members["C"].billing.watch.note("f0", began + second, ServiceSample(0.1, 0.5))
    sides.live(60.0)
    assert {one.entry.payer for one in entries(sides.members["B"], PaymentReason.PENALTY)} == {"B", "C"}
    fined = entries(sides.members["A"], PaymentReason.PENALTY)
    assert fined and {(one.entry.payer, one.keep) for one in fined} == {("B", 0.5)}
    assert sides.members["A"].figures.missed["f0"].by == "B"
    sides.check()


def test_what_was_given_back_is_not_paid_for(sides: Sides) -> None:
    b = sides.members["B"]

    def slowly(fragment: str) -> None:
        sides.now += 4.0
        b.moving.renew()

    def killed(name: str, step: str) -> None:
        if step == "taker:gave-back":
            raise Killed

    b.engine.on_start, b.engine.fails["f1"] = slowly, 1
    sides.watched = killed  # after the first of the two was given back: the other stays with B
    assert sides.give("A/0", "B", "f0", "f1").keys() == {"f0"}
    sides.watched = lambda name, step: None
    sides.restart("B")
    sides.live(24.0)
    sides.check()
    assert {one.entry.id.split("/")[2] for one in sides.members["A"].journal.entries()} == {"f1"}


@pytest.mark.parametrize("keep", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(sides: Sides, keep: float) -> None:
    sides.give("A/0", "B", "f0")
    sides.now += PERIOD
    sides.members["B"].moving.renew()
    (entry,) = sides.members["B"].books.bill()["A"]
    answer = sides.bill("B", "A", [replace(entry, keep=keep), entry])
    assert answer["booked"] == [entry.entry.id] and "for keeping" in answer["refused"][entry.entry.id]


def test_a_giver_has_a_say_in_its_own_bills_only(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    sides.give("A/0", "B", "f0")
    sides.give("A/1", "C", "f1")
    sides.give("C/0", "B", "f1", price=3.0)
    b = sides.members["B"]
    sides.dead.add("C")  # so that it does not agree by itself
    sides.now += PERIOD
    b.moving.renew()
    b.books.bill()
    lies = {"booked": ["C/0/f1/load/0.000"], "refused": {"C/0/f1/load/0.000": "no", "A/0/f0/load/0.000": "never"}}
    monkeypatch.setattr(sides, "bill", lambda sender, giver, found: lies if giver == "A" else {"booked": 5})
    b.billing.send(sides.now, timeout_seconds=1.0)
    found = {one.entry.id: (one.agreed, one.disputed) for one in b.journal.entries()}
    assert found == {"A/0/f0/load/0.000": (False, "never"), "C/0/f1/load/0.000": (False, "")}
    assert list(b.figures.failures) == ["bill to C"]


def test_old_entries_are_not_read_again(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    sides.give("A/0", "B", "f0")
    b = sides.members["B"]
    row = b.journal.move("A/0")
    assert row is not None
    with b.journal.transaction():
        for k in range(3000):
            at = row.at + (k + 1) * PERIOD
            entry = Payment(f"A/0/f0/load/{k * PERIOD:.3f}", "A", "B", 20.0, PaymentReason.LOAD, at)
            b.journal.book(BookedEntry(entry, "A/0", at - PERIOD, 0.1, agreed=True))
    sides.now = row.at + 3000 * PERIOD + 1.0
    b.moving.renew()
    books = Books("B", b.journal, sides.store, sides.federation.contracts, period_seconds=PERIOD)
    assert books.bill() == {}
    read: list[int] = []
    real = Journal._read

    def counted(journal: Journal, text: str, values: tuple[object, ...] = ()) -> list[object]:
        found = real(journal, text, values)
        read.append(len(found))
        return found

    monkeypatch.setattr(Journal, "_read", counted)
    for _ in range(3):
        sides.now += PERIOD
        b.moving.renew()
        assert len(books.bill()["A"]) > 0
    assert sum(read) < 100, "a bill reads what is open, not all that there ever was"
    read.clear()
    assert b.journal.balances() == {"A": pytest.approx(-60060.0), "B": pytest.approx(60060.0)}
    assert sum(read) == 2
    with b.journal.transaction():
        for k in range(80):
            b.journal.begin(replace(row, id=f"C/{k}", at=row.at + k + 1, state="failed"))
    read.clear()
    assert [one.id for one in b.journal.latest_moves(50)] == [f"C/{k}" for k in range(30, 80)]
    assert sum(read) == 50 and sum(b.journal.moves_by_state().values()) == 81


def test_a_giver_that_is_away_is_billed_when_it_is_back(sides: Sides) -> None:
    sides.give("A/0", "B", "f0")
    sides.dead.add("A")
    with pytest.raises(PeerError):
        sides.bill("B", "A", [])
    sides.live(40.0)
    assert len(sides.members["B"].journal.entries(agreed=False)) == 4
    sides.restart("A")
    sides.live(10.0)
    sides.check()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "nan", "-Infinity"])
@pytest.mark.parametrize("place", ["delay_seconds", "keep", "start", "amount", "at"])
def test_a_bill_with_a_number_that_is_none_is_refused_whole(sides: Sides, place: str, number: float | str) -> None:
    sides.give("A/0", "B", "f0")
    sides.now += PERIOD
    sides.members["B"].moving.renew()
    body = api.bill_body("B", sides.members["B"].books.bill()["A"])
    assert api.BillForm.model_validate(body).sender == "B"
    entry = body["entries"][0]
    (entry["entry"] if place in entry["entry"] else entry)[place] = number
    with pytest.raises(ValidationError, match="finite number"):
        api.BillForm.model_validate(body)


def test_a_message_with_a_number_that_is_none_is_refused() -> None:
    envelope = api.envelope(Offer("A/0", "A", "B", 4.0, (Task("f", Load(0.5), units=0.5),)))
    assert api.parse_message(envelope) == Offer("A/0", "A", "B", 4.0, (Task("f", Load(0.5), units=0.5),))
    envelope["body"]["price"] = "nan"
    with pytest.raises(RefusedError, match=r"body\.price: input should be a finite number"):
        api.parse_message(envelope)
