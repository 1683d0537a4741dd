"""What is old in a participant's journal becomes sums, so that the journal does not grow with its age.

A *period* is settled when it is older than `kept_seconds`, both sides have its payment, and its penalty if one is due:
its entries are replaced by their sums, by move, payer, payee and reason. The newest period of a fragment stays. So do
periods of which a partner may still send something: what is not agreed, what is disputed, a payment whose penalty is
missing. Such periods, and those that never came (`holes`), are booked as before whenever they come.

    balances = sums of settled entries + entries that are not disputed

A period that was settled may be billed again by a taker that has not heard the answer. It is answered as booked and not
booked again: `is_settled` tells, from the time until which the fragment's periods are settled.

A move is forgotten, and its sums join those of all forgotten moves, when it failed, or when it is over and all of it
is settled but the last period. Then also its id is known only by its number: lower than the next one of its giver.

What is settled leaves the shared storage too, so that it does not grow with every move.

Each side of a move notes on the storage when its journal has forgotten the move. When both have, the
giver removes the move's decision, unless a lease in force names it. A decision to withdraw needs the giver's note
alone. The origin of a fragment lets old leases be past: `past.json` keeps who has the fragment from whom, and the spans
of moves that somebody may still bill. Files stay of the newest two leases, and of the leases that an unsettled move
has to look at: the giver's, the taker's and the next.

One process removes each file: the giver's, or the origin's. What is removed is older than a week, so no listing that a
file system has cached still shows it, and a participant that slept meanwhile finds its lease below the past epoch.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import Any

from floodway.agent.federation.errors import StorageError
from floodway.agent.federation.journal_rows import BookedEntry, MoveRow, fragment_of
from floodway.agent.federation.leases import LeaseStore, MoveDecision, ServiceSpan
from floodway.agent.federation.participant_journal import Journal
from floodway.agent.federation.spans import following
from floodway.contracts.payment import PaymentReason
from floodway.job.store.store import remove_drafts

KEPT_SECONDS = 7 * 86_400.0
AT_ONCE = 5000
"""Entries of one fragment that are settled in one transaction; the rest comes with the next."""
MOMENT = 1e-3
"""Seconds that are too short to be billed, and longer than what rounding does to a time."""

Due = Callable[[MoveRow, BookedEntry], set[str]]
"""The ids of all entries that a period comes to, given its payment."""
Span = Callable[[MoveRow, str], ServiceSpan | None]


@dataclass(frozen=True, slots=True)
class Settled:
    """One fragment under one move: its periods before `until` are settled, but for those that begin in a hole."""

    until: float
    holes: tuple[tuple[float, float], ...] = ()

    def holds(self, start: float, end: float) -> bool:
        """Whether a period was settled, or stayed as entries."""
        in_hole = any(first - MOMENT <= start < last - MOMENT for first, last in self.holes)
        return end <= self.until + MOMENT and not in_hole


class Settlement:
    """Settles the journal of one participant."""

    def __init__(
        self, journal: Journal, store: LeaseStore, due: Due, span: Span, *, kept_seconds: float = KEPT_SECONDS
    ) -> None:
        self._journal = journal
        self._store = store
        self._due = due
        self._span = span
        self._kept_seconds = kept_seconds

    def settle(self, now: float) -> bool:
        """Settle what is old enough; False if there is more than could be settled at once."""
        before, complete = now - self._kept_seconds, True
        for row in self._journal.moves_before(before):
            if row.state == "done":
                for fragment in row.units:
                    complete &= self._settle_fragment(row, fragment, before)
            if self._is_over(row, before):
                # Before the journal, which would not do it again.
                self._store.note_settled(row.id, row.giver if row.role == "giver" else row.taker)
                self._journal.forget(row)
        self._journal.forget_before(before)
        return complete

    def is_settled(self, row: MoveRow, booked: BookedEntry) -> bool:
        """Whether an entry for a period is part of a sum; ask and book in one transaction."""
        fragment = fragment_of(booked)
        if not self._settled(row, fragment).holds(booked.start, booked.entry.at):
            return False
        return not any(
            abs(one.start - booked.start) < MOMENT
            for one in self._journal.entries_between(row.id, booked.entry.at - MOMENT, booked.entry.at + MOMENT, 100)
            if fragment_of(one) == fragment
        )

    def _settle_fragment(self, row: MoveRow, fragment: str, before: float) -> bool:
        with self._journal.transaction():
            newest = self._journal.billed_until(row.id, fragment)
            settled = self._settled(row, fragment)
            end = min(before, (newest or 0.0) - MOMENT)
            found = self._journal.entries_between(row.id, settled.until + MOMENT, end, AT_ONCE)
            complete = len(found) < AT_ONCE
            if not complete:  # the last period may have been cut
                found = [one for one in found if one.start < found[-1].start - MOMENT]
            until, holes, old = settled.until, list(settled.holes), list[BookedEntry]()
            for start, period in _periods(found, fragment):
                if any(not one.agreed and not one.disputed for one in period):
                    break  # its giver may not have heard of it yet
                if start > until + MOMENT:
                    holes.append((until, start))
                if self._is_regular(row, period):
                    old += period
                until = max(one.entry.at for one in period)
            if until == settled.until:
                return True
            self._journal.settle(row.id, fragment, old, until, json.dumps(holes))
        return complete

    def _is_regular(self, row: MoveRow, period: list[BookedEntry]) -> bool:
        """Whether both sides have all that a period comes to."""
        loads = [one for one in period if one.entry.reason is PaymentReason.LOAD]
        agreed = all(one.agreed and not one.disputed for one in period)
        return agreed and len(loads) == 1 and self._due(row, loads[0]) == {one.entry.id for one in period}

    def _is_over(self, row: MoveRow, before: float) -> bool:
        """Whether nobody can have anything more to say about a move."""
        if row.state == "failed":
            return True
        if row.state != "done" or row.ended is None or row.ended >= before:
            return False
        if row.role == "taker" and row.served is None:
            return False
        return all(self._is_complete(row, fragment) for fragment in row.units)

    def _is_complete(self, row: MoveRow, fragment: str) -> bool:
        left = [one for one in self._journal.entries(move=row.id) if fragment_of(one) == fragment]
        if any(not one.agreed or one.disputed for one in left):
            return False
        periods = [one for one in left if not _is_outage(one)]
        if not all(self._is_regular(row, period) for _, period in _periods(periods, fragment)):
            return False
        span, settled = self._span(row, fragment), self._settled(row, fragment)
        if span is None and self._store.decision(row.id) is None:
            return True  # both sides have noted that it is settled; this one ended before it forgot the move
        until = max((one.entry.at for one in periods), default=settled.until)
        whole = not settled.holes and all(one.start > settled.until - MOMENT for one in periods)
        return whole and span is not None and span.end is not None and until >= span.served - 2 * MOMENT

    def _settled(self, row: MoveRow, fragment: str) -> Settled:
        until, holes = self._journal.settled_until(row.id, fragment) or (row.at, "[]")
        return Settled(until, tuple((first, last) for first, last in json.loads(holes)))


def settled_sums(journal: Journal) -> list[dict[str, Any]]:
    """The sums of settled entries; those of forgotten moves have no move."""
    names = ("move", "payer", "payee", "reason", "amount", "entries")
    return [dict(zip(names, row, strict=True)) for row in journal.sums()]


def _periods(entries: Iterable[BookedEntry], fragment: str) -> list[tuple[float, list[BookedEntry]]]:
    """The entries of a fragment for each period, by its start."""
    mine = [one for one in entries if fragment_of(one) == fragment and not _is_outage(one)]
    found = groupby(sorted(mine, key=lambda one: one.start), key=lambda one: round(one.start / MOMENT))
    return [(group[0].start, group) for group in (list(part) for _, part in found)]


def _is_outage(booked: BookedEntry) -> bool:
    return booked.entry.id.endswith("/outage")


log = logging.getLogger(__name__)

LOOKED_AT = 3
"""Leases from the giver's on that tell how a move ended (`spans.came_to_pass`)."""


def remove_leftovers(root: Path) -> None:
    """Remove drafts of members that were killed while they wrote to the shared storage."""
    for folder in (root, root / "fragments"):
        remove_drafts(folder, time.time())


def settle_storage(store: LeaseStore, name: str, before: float) -> None:
    """Remove what this participant may remove of what ended before a time; what cannot be read is left, and said."""
    try:
        unsettled = []
        for decision in store.decisions():
            if decision.giver == name and store.is_settled(decision) and not _is_in_force(store, decision):
                store.forget_move(decision)
            else:
                unsettled.append(decision)
        for fragment in store.fragments():
            _settle_leases(store, fragment, name, before, unsettled)
    except StorageError as error:
        log.warning("%s does not remove what is settled: %s", name, error)


def _is_in_force(store: LeaseStore, decision: MoveDecision) -> bool:
    """Whether a fragment is held by this move: a participant that starts asks for its decision."""
    leases = (store.current(fragment) for fragment in decision.epochs)
    return any(lease is not None and lease.move == decision.id for lease in leases)


def _settle_leases(
    store: LeaseStore, fragment: str, name: str, before: float, unsettled: Collection[MoveDecision]
) -> None:
    past = store.past(fragment)
    leases = store.history(fragment, after=past.epoch)
    chain = following(past, leases[:1]).chain
    if not chain or chain[0][0] != name:
        return
    ended = takewhile(lambda pair: pair[1].since < before, pairwise(leases[:-1]))
    past = following(past, [lease for lease, _ in ended])
    known = {decision.id for decision in unsettled} | {move for _, move in past.chain}
    needed = {
        decision.epochs[fragment] + number
        for decision in unsettled
        if fragment in decision.epochs
        for number in range(LOOKED_AT)
    }
    spans = {move: span for move, span in past.spans.items() if move in known}
    store.forget_leases(fragment, replace(past, spans=spans), needed)
