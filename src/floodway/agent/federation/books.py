"""Payments and penalties: the taker bills whole periods, the giver books what it can verify, both then hold the same.

A move's clock starts when it was decided. Period k of a fragment, [k·P, (k+1)·P), becomes the entry
`MOVE/FRAGMENT/load/kP`; the last one ends where the lease did. Everything in an entry but the delay follows from the
move and the leases on the shared storage, so the giver can check it to the last digit, a bill sent twice is booked
once, and after a crash the taker simply sends again what was never agreed.

    amount = price × units × seconds;  penalty = contract's penalty × units × seconds, where the delay broke the service
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import floor, isclose

from floodway.agent.federation.errors import MoveError
from floodway.agent.federation.journal import BookedEntry, Journal, MoveRow
from floodway.agent.federation.leases import LeaseStore
from floodway.contracts.contract import Contract
from floodway.contracts.ledger import payment, penalty
from floodway.contracts.load import NO_LOAD, Task
from floodway.contracts.messages import Move

CLOCK_SECONDS = 5.0
"""How far ahead of this side's clock a partner's may be."""


@dataclass(frozen=True, slots=True)
class Terms:
    """One fragment under one move: what it costs, since when, and until when it was or is owed."""

    move: str
    fragment: str
    giver: str
    taker: str
    price: float
    units: float
    at: float
    contract: Contract | None = None

    def entries(self, start: float, end: float, delay_seconds: float | None) -> list[BookedEntry]:
        """What is owed for [start, end), in seconds since the move: the payment, and a penalty where one is due."""
        task = Task(self.fragment, NO_LOAD, units=self.units)
        move = Move(f"{self.move}/{self.fragment}", self.giver, self.taker, self.price, (task,))
        found = [payment(move, start=start, end=end)]
        if self.contract is not None and delay_seconds is not None:
            fine = penalty(self.contract, move, delay_seconds=delay_seconds, start=start, end=end)
            found += [] if fine is None else [fine]
        return [BookedEntry(replace(one, at=self.at + end), self.move, self.at + start, delay_seconds) for one in found]


def due_periods(served: float, booked: Iterable[float], *, period: float, over: bool) -> list[tuple[float, float]]:
    """The periods that can be billed now, in seconds since the move; those in `booked` (their starts) are left out.

    >>> due_periods(25.0, [0.0], period=10.0, over=False)
    [(10.0, 20.0)]
    >>> due_periods(25.0, [0.0, 10.0], period=10.0, over=True)
    [(20.0, 25.0)]
    """
    known = {round(start, 3) for start in booked}
    whole = floor(served / period)
    periods = [(k * period, (k + 1) * period) for k in range(whole)]
    if over and served > whole * period:
        periods.append((whole * period, served))
    return [one for one in periods if round(one[0], 3) not in known]


class Books:
    """One participant's side of all payments."""

    def __init__(
        self,
        name: str,
        journal: Journal,
        store: LeaseStore,
        contracts: Iterable[Contract],
        *,
        period_seconds: float = 10.0,
    ) -> None:
        self.name = name
        self.period_seconds = period_seconds
        self._journal = journal
        self._store = store
        self._contracts = {(one.giver, one.taker): one for one in contracts}

    def close_moves(self, now: float) -> None:
        """Note the end of moves whose fragments have all gone elsewhere."""
        for row in self._journal.moves(state="done"):
            if row.ended is not None:
                continue
            after = [self._store.after(fragment, epoch + 1) for fragment, epoch in row.epochs.items()]
            ends = [lease.since for lease in after if lease is not None]
            if len(ends) == len(after):
                note = ", ".join(sorted({f"to {lease.owner}" for lease in after if lease is not None}))
                self._journal.ended(row.id, min(now, max(ends)), note)

    def bill(self, delays: Mapping[str, float]) -> dict[str, list[BookedEntry]]:
        """As taker: book what has become due, and return by giver what it has not agreed to yet."""
        for row in self._journal.moves(state="done"):
            if row.role == "taker" and row.served is not None:
                for fragment in row.units:
                    self._bill_fragment(row, fragment, delays.get(fragment))
        open_entries: dict[str, list[BookedEntry]] = {}
        for booked in self._journal.entries(agreed=False):
            row_found = self._journal.move(booked.move)
            if row_found is not None and row_found.role == "taker":
                open_entries.setdefault(row_found.giver, []).append(booked)
        return open_entries

    def _bill_fragment(self, row: MoveRow, fragment: str, delay: float | None) -> None:
        terms = self._terms(row, fragment)
        end = self._store.after(fragment, row.epochs[fragment] + 1)
        served = (row.served or row.at) if end is None else min(row.served or row.at, end.since)
        prefix = f"{row.id}/{fragment}/"
        mine = [one for one in self._journal.entries(move=row.id) if one.entry.id.startswith(prefix)]
        if end is not None and any(one.entry.at - row.at >= served - row.at - 1e-6 for one in mine):
            return  # the last stretch is booked
        booked = [one.start - row.at for one in mine]
        for start, stop in due_periods(served - row.at, booked, period=self.period_seconds, over=end is not None):
            for one in terms.entries(start, stop, delay):
                self._journal.book(one)

    def check(self, booked: BookedEntry, sender: str, now: float) -> None:
        """As giver: book a partner's entry if it follows from the move; raises `MoveError` if it does not."""
        row = self._journal.move(booked.move)
        if row is None or row.role != "giver" or row.taker != sender or row.state != "done":
            raise MoveError(f"{sender} bills move {booked.move}, which {self.name} did not give it")
        parts = booked.entry.id.removeprefix(f"{row.id}/").split("/")
        fragment = parts[0]
        if fragment not in row.units:
            raise MoveError(f"{sender} bills {fragment!r}, which is not part of move {row.id}")
        start, end = booked.start - row.at, booked.entry.at - row.at
        whole = round(start / self.period_seconds) * self.period_seconds
        lease_end = self._store.after(fragment, row.epochs[fragment] + 1)
        latest = min(now + CLOCK_SECONDS, lease_end.since + 1e-6 if lease_end else float("inf")) - row.at
        if not (0 <= start <= end <= latest and end - start <= self.period_seconds * (1 + 1e-9)):
            raise MoveError(f"entry {booked.entry.id} is for a time that {sender} did not serve")
        if not isclose(start, whole, abs_tol=1e-3):
            raise MoveError(f"entry {booked.entry.id} does not begin a period of {self.period_seconds:g} s")
        owed = {one.entry.id: one for one in self._terms(row, fragment).entries(whole, end, booked.delay_seconds)}
        expected = owed.get(booked.entry.id)
        if expected is None or not _same(expected, booked):
            raise MoveError(f"entry {booked.entry.id} is not what the contract says", hint="Compare prices and units")
        self._journal.book(replace(booked, agreed=True))

    def _terms(self, row: MoveRow, fragment: str) -> Terms:
        contract = self._contracts.get((row.giver, row.taker))
        return Terms(row.id, fragment, row.giver, row.taker, row.price, row.units[fragment], row.at, contract)


def _same(expected: BookedEntry, given: BookedEntry) -> bool:
    one, other = expected.entry, given.entry
    parties = (one.payer, one.payee, one.reason) == (other.payer, other.payee, other.reason)
    return parties and isclose(one.amount, other.amount, rel_tol=1e-6, abs_tol=1e-9)


Send = Callable[[str, list[BookedEntry]], list[str]]
"""Sends entries to a giver and returns the ids it has booked."""
