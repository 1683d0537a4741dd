"""Payments and penalties: the taker bills whole periods, the giver books what it can verify, both then hold the same.

A move's clock starts when it was decided. Period k of a fragment, [k·P, (k+1)·P), becomes the entry
`MOVE/FRAGMENT/load/kP`; the last one ends where the span of the move does (`spans.py`). Everything in an entry but how
it was served follows from the move and the leases on the shared storage, so the giver can check it to the last digit, a
bill sent twice is booked once, and after a crash the taker simply sends again what was never agreed.

    amount = price × units × seconds;  penalty = contract's penalty × units × seconds, where the service was missed

Service is missed where tuples took too long and where the taker dropped some of them; a bill tells both, with or
without a penalty. Entries are booked one by one: what the giver refuses is disputed, and holds up nothing else.
A taker that fell silent and lost a fragment owes the penalty for the time of its silence, `MOVE/FRAGMENT/outage`. It
may never come back to say so: the giver books that entry by itself, and the taker, if it does come back, the same one.

Whoever runs a fragment notes with every measurement how long its tuples took and which share of them was kept
(`ServiceWatch`); whoever has passed it on notes what the next one's bills say of both. So a bill for a period says how
the fragment was served, also at the end of a chain.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import floor, inf, isclose
from statistics import fmean, median

from floodway.agent.federation.errors import MoveError
from floodway.agent.federation.journal_rows import BookedEntry, MoveRow, fragment_of
from floodway.agent.federation.leases import LeasePast, LeaseStore, ServiceSpan
from floodway.agent.federation.participant_journal import Journal
from floodway.agent.federation.settlement import KEPT_SECONDS, MOMENT, Settlement, settle_storage
from floodway.agent.federation.spans import following
from floodway.contracts.contract import Contract
from floodway.contracts.load import NO_LOAD, Task
from floodway.contracts.messages import Move
from floodway.contracts.payment import outage_penalty, payment, penalty
from floodway.errors import FloodwayError

SAMPLES = 2000
"""How many notes are kept of a fragment: half an hour of measurements."""

NOT_SERVED = 1e9
"""The delay, in seconds, of a fragment that is held and does not run: longer than any that a contract allows."""


@dataclass(frozen=True, slots=True)
class ServiceSample:
    """Seconds that tuples took, None where nothing is known, and the share of them that was kept."""

    delay_seconds: float | None = None
    keep: float = 1.0


class ServiceWatch:
    """Notes by fragment; safe from several threads.

    >>> watch = ServiceWatch()
    >>> for second, keep in enumerate((1.0, 1.0, 0.5, 1.0)):
    ...     watch.note("f", float(second), ServiceSample(0.1, keep))
    >>> watch.over("f", 0.0, 2.0), watch.over("f", 2.0, 4.0)
    (ServiceSample(delay_seconds=0.1, keep=1.0), ServiceSample(delay_seconds=0.1, keep=0.75))
    """

    def __init__(self) -> None:
        self._notes: dict[str, deque[tuple[float, ServiceSample]]] = {}
        self._lock = threading.Lock()

    def note(self, fragment: str, at: float, served: ServiceSample) -> None:
        """How it was served at a time."""
        with self._lock:
            self._notes.setdefault(fragment, deque(maxlen=SAMPLES)).append((at, served))

    def over(self, fragment: str, start: float, end: float) -> ServiceSample:
        """How it was served from `start` to `end`: the median delay, the mean keep.

        A time without a note of its own was like the last one before: bills of the next in a chain come late.
        """
        with self._lock:
            notes = list(self._notes.get(fragment, ()))
        within = [served for at, served in notes if start <= at < end]
        if not within:
            within = [served for at, served in notes if at < start][-1:]
        delays = [served.delay_seconds for served in within if served.delay_seconds is not None]
        # The mean of many ones may miss 1 by a rounding, and below 1 there is a penalty.
        keep = 1.0 if all(served.keep == 1.0 for served in within) else fmean(served.keep for served in within)
        return ServiceSample(median(delays) if delays else None, keep)


CLOCK_SECONDS = 5.0
"""How far ahead of this side's clock a partner's may be."""
SETTLE_SECONDS = 3600.0


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

    def entries(self, start: float, end: float, served: ServiceSample) -> list[BookedEntry]:
        """What is owed for [start, end), in seconds since the move: the payment, and a penalty where one is due."""
        task = Task(self.fragment, NO_LOAD, units=self.units)
        move = Move(f"{self.move}/{self.fragment}", self.giver, self.taker, self.price, (task,))
        found = [payment(move, start=start, end=end)]
        if self.contract is not None:
            delay = served.delay_seconds or 0.0
            fine = penalty(self.contract, move, delay_seconds=delay, start=start, end=end, keep=served.keep)
            found += [] if fine is None else [fine]
        return [
            BookedEntry(
                replace(one, at=self.at + end), self.move, self.at + start, served.delay_seconds, keep=served.keep
            )
            for one in found
        ]

    def outage(self, span: ServiceSpan) -> list[BookedEntry]:
        """What the taker owes for a silence that ended the move: one entry, or none."""
        if self.contract is None or span.outage is None:
            return []
        start, end = span.outage
        task = Task(self.fragment, NO_LOAD, units=self.units)
        move = Move(f"{self.move}/{self.fragment}", self.giver, self.taker, self.price, (task,))
        owed = outage_penalty(self.contract, move, start=start, end=end)
        return [] if owed is None else [BookedEntry(owed, self.move, start)]


def due_periods(billed: float, served: float, *, period: float, over: bool) -> list[tuple[float, float]]:
    """The periods that can be billed now, in seconds since the move, of which all until `billed` is billed already.

    >>> due_periods(10.0, 25.0, period=10.0, over=False)
    [(10.0, 20.0)]
    >>> due_periods(20.0, 25.0, period=10.0, over=True)
    [(20.0, 25.0)]
    >>> due_periods(25.0, 25.0, period=10.0, over=True)
    []
    """
    first = round(billed / period)
    if abs(billed - first * period) > MOMENT:  # the last stretch, shorter than a period, is billed
        return []
    whole = floor(served / period)
    periods = [(k * period, (k + 1) * period) for k in range(first, whole)]
    if over and served - max(first, whole) * period > MOMENT:
        periods.append((whole * period, served))
    return periods


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
        kept_seconds: float = KEPT_SECONDS,
    ) -> None:
        """Periods that both sides have for longer than `kept_seconds` become sums."""
        self.name = name
        self.period_seconds = period_seconds
        self._journal = journal
        self._store = store
        self._contracts = {(one.giver, one.taker): one for one in contracts}
        self._past: dict[str, LeasePast] = {}
        self._billed: dict[tuple[str, str], float] = {}
        self._settlement = Settlement(journal, store, self._due, self._span, kept_seconds=kept_seconds)
        self._kept_seconds = kept_seconds
        self._settle_at = -inf

    def settle(self, now: float) -> None:
        """Once an hour, and while there is much to do: make sums of what is old."""
        if now >= self._settle_at or now < self._settle_at - SETTLE_SECONDS:
            self._settle_at = now + SETTLE_SECONDS if self._settlement.settle(now) else now
            settle_storage(self._store, self.name, now - self._kept_seconds)
            self._past.clear()

    def close_moves(self, now: float) -> None:
        """Note the end of moves that are over for all their fragments; as giver, book what silence costs the taker."""
        self.settle(now)
        for row in self._journal.running_moves():
            found = {fragment: span for fragment in row.units if (span := self._span(row, fragment)) is not None}
            ends = [span.end for span in found.values() if span.end is not None]
            if not found or len(ends) < len(found):
                continue
            note = ", ".join(sorted({_note(span, row.taker) for span in found.values()}))
            with self._journal.transaction():
                for fragment, span in found.items():
                    for one in self._terms(row, fragment).outage(span) if row.role == "giver" else ():
                        self._journal.book(one)
                self._journal.ended(row.id, min(now, max(ends)), note)

    def bill(self, watch: ServiceWatch | None = None, *, disputed: bool = False) -> dict[str, list[BookedEntry]]:
        """As taker: book what has become due, and return by giver what it has not agreed to yet.

        With `disputed` also what it has refused: a clock that was behind, say, may have caught up.
        """
        for row in self._journal.billable_moves():
            for fragment in row.units:
                self._bill_fragment(row, fragment, watch or ServiceWatch())
            if row.ended is not None:
                self._journal.served(row.id, row.ended)
                for fragment in row.units:
                    self._billed.pop((row.id, fragment), None)
        return self._journal.owed_to_me(disputed=disputed)

    def _bill_fragment(self, row: MoveRow, fragment: str, watch: ServiceWatch) -> None:
        terms, span = self._terms(row, fragment), self._span(row, fragment)
        if span is None:
            return
        key = (row.id, fragment)
        if key not in self._billed:
            until = self._journal.billed_until(*key)
            self._billed[key] = 0.0 if until is None else until - row.at
        over = span.end is not None
        due = due_periods(self._billed[key], span.served - row.at, period=self.period_seconds, over=over)
        owed = terms.outage(span)
        for start, stop in due:
            owed += terms.entries(start, stop, watch.over(fragment, row.at + start, row.at + stop))
        if not owed:
            return
        with self._journal.transaction():  # a payment is never there without its penalty
            for one in owed:
                self._journal.book(one)
        if due:
            self._billed[key] = due[-1][1]

    def book(self, entries: Iterable[BookedEntry], sender: str, now: float) -> tuple[list[BookedEntry], dict[str, str]]:
        """As giver: book of a partner's entries what follows from its moves; the rest by id, with the reason.

        All of them are on the disk when it returns, by one commit.
        """
        booked: list[BookedEntry] = []
        refused: dict[str, str] = {}
        with self._journal.transaction():
            for one in entries:
                try:
                    self.check(one, sender, now)
                except FloodwayError as error:
                    refused[one.entry.id] = error.message
                else:
                    booked.append(one)
        return booked, refused

    def check(self, booked: BookedEntry, sender: str, now: float) -> None:
        """As giver: book a partner's entry if it follows from the move; raises `MoveError` if it does not."""
        if not 0.0 <= booked.keep <= 1.0:
            raise MoveError(f"entry {booked.entry.id} is for keeping {booked.keep:g} of what arrived")
        row = self._journal.move(booked.move)
        if row is None and self._journal.is_forgotten(booked.move):
            return  # both sides had all of it, and the answer to its last bill was lost
        if row is None or row.role != "giver" or row.taker != sender or row.state != "done":
            raise MoveError(f"{sender} bills move {booked.move}, which {self.name} did not give it")
        fragment = fragment_of(booked)
        span = self._span(row, fragment) if fragment in row.units else None
        if span is None:
            raise MoveError(f"{sender} bills {fragment!r}, which is not part of move {row.id}")
        terms = self._terms(row, fragment)
        outage = {one.entry.id: one for one in terms.outage(span)}.get(booked.entry.id)
        expected = outage or self._for_period(row, terms, span, booked, now)
        if expected is None or not _same(expected, booked):
            raise MoveError(f"entry {booked.entry.id} is not what the contract says", hint="Compare prices and units")
        with self._journal.transaction():
            if outage is not None or not self._settlement.is_settled(row, booked):
                # An outage may be booked already, by this side alone.
                self._journal.book(replace(outage or booked, agreed=True, disputed=""))

    def _for_period(
        self, row: MoveRow, terms: Terms, span: ServiceSpan, booked: BookedEntry, now: float
    ) -> BookedEntry | None:
        """What an entry for a period should be; refuses one for a time that was not served."""
        start, end = booked.start - row.at, booked.entry.at - row.at
        whole = round(start / self.period_seconds) * self.period_seconds
        latest = min(now + CLOCK_SECONDS, span.served + 1e-6) - row.at
        if not (0 <= start <= end <= latest and end - start <= self.period_seconds + MOMENT):
            raise MoveError(f"entry {booked.entry.id} is for a time that {row.taker} did not serve")
        if not isclose(start, whole, abs_tol=1e-3):
            raise MoveError(f"entry {booked.entry.id} does not begin a period of {self.period_seconds:g} s")
        served = ServiceSample(booked.delay_seconds, booked.keep)
        owed = {one.entry.id: one for one in terms.entries(whole, end, served)}
        return owed.get(booked.entry.id)

    def _span(self, row: MoveRow, fragment: str) -> ServiceSpan | None:
        """Where a move stands. Leases that others followed do not change what follows from them: read once."""
        past = max(self._past.get(fragment, LeasePast()), self._store.past(fragment), key=lambda one: one.epoch)
        leases = self._store.history(fragment, after=past.epoch)
        if leases and leases[0].epoch != past.epoch + 1:  # they became past in this very moment
            return self._span(row, fragment)
        self._past[fragment] = past = following(past, leases[:-1])
        return following(past, leases[-1:]).spans.get(row.id)

    def _due(self, row: MoveRow, load: BookedEntry) -> set[str]:
        """The ids of what a period comes to, by what its payment says of the service."""
        start, end = max(0.0, load.start - row.at), load.entry.at - row.at
        served = ServiceSample(load.delay_seconds, load.keep)
        return {one.entry.id for one in self._terms(row, fragment_of(load)).entries(start, end, served)}

    def _terms(self, row: MoveRow, fragment: str) -> Terms:
        contract = self._contracts.get((row.giver, row.taker))
        return Terms(row.id, fragment, row.giver, row.taker, row.price, row.units[fragment], row.at, contract)


def _note(span: ServiceSpan, taker: str) -> str:
    if span.outage is None:
        return f"to {span.to}"
    return f"{taker} fell silent for {span.outage[1] - span.outage[0]:.1f} s; taken back by {span.to}"


def _same(expected: BookedEntry, given: BookedEntry) -> bool:
    one, other = expected.entry, given.entry
    parties = (one.payer, one.payee, one.reason) == (other.payer, other.payee, other.reason)
    return parties and isclose(one.amount, other.amount, rel_tol=1e-6, abs_tol=1e-9)
