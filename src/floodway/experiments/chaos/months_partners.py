"""Two partners that grow old: A gives B one fragment for good and another every few days, and pays for both.

A month has 730 periods. A day is served, billed and closed by the code that participants run, on a simulated clock.
Some answers are lost, so that bills come twice; some periods cost a penalty. At the end of a month both start anew.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing
from math import isclose
from pathlib import Path

from floodway.agent.federation.books import Books, ServiceSample, ServiceWatch
from floodway.agent.federation.journal_rows import MoveRow, Role, State
from floodway.agent.federation.leases import FragmentLease, LeaseStore, MoveDecision
from floodway.agent.federation.participant_journal import FILE, Journal
from floodway.agent.federation.settlement import settled_sums
from floodway.contracts.contract import Contract, Service
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Offer
from floodway.experiments.chaos.months_needs import Needs, needs_of

GIVER, TAKER = "A", "B"
CONTRACT = Contract(GIVER, TAKER, 4.0, 4.0, service=Service(max_delay_seconds=1.0, penalty=0.5))
FOR_GOOD, FOR_DAYS = "f", "g"
DAYS, PERIODS, MOVE_DAYS, KEPT_DAYS = 30, 730, 3, 7
LOST_ANSWERS, LATE_PERIODS = 0.2, 0.1


class AgeingPartners:
    """Their journals and the storage that they share; `balances` is what each should have."""

    what = "partners"

    def __init__(self, folder: Path, rng: random.Random, *, month_seconds: float, kept_days: float = KEPT_DAYS) -> None:
        self._folder = folder
        self._rng = rng
        self._day = month_seconds / DAYS
        self._period = month_seconds / PERIODS
        self._kept_seconds = kept_days * self._day
        self._store = LeaseStore(folder / "shared", seconds=100 * self._day)
        self._now = 1_700_000_000.0
        self._moves = self._days = 0
        self._seen: set[str] = set()
        self.balances: defaultdict[str, float] = defaultdict(float)
        for fragment in (FOR_GOOD, FOR_DAYS):
            self._store.claim(fragment, GIVER, after=0, now=self._now)

    def live(self) -> None:
        """A month, day by day."""
        with ExitStack() as stack:
            journals = {name: stack.enter_context(closing(self._journal(name))) for name in (GIVER, TAKER)}
            books = {
                name: Books(
                    *(name, journal, self._store, [CONTRACT]),
                    period_seconds=self._period,
                    kept_seconds=self._kept_seconds,
                )
                for name, journal in journals.items()
            }
            if not self._moves:
                self._give(FOR_GOOD, journals)
            for day in range(DAYS):
                if self._days % MOVE_DAYS == 0:
                    self._take_back(FOR_DAYS, journals)
                    self._give(FOR_DAYS, journals)
                self._days += 1
                self._now += self._day
                self._serve()
                self.exchange(books, journals[TAKER], self._watch(), heard=day == DAYS - 1)

    def judged(self) -> tuple[list[str], Needs]:
        """What does not add up, and what it took to find out."""
        told: list[str] = []
        needs = needs_of(self._started, self._read_all, self._folder)
        for name in (GIVER, TAKER):
            with closing(self._journal(name)) as journal:
                told += [f"{name}: {text}" for text in self._judge(journal)]
        return told, needs

    def exchange(self, books: dict[str, Books], taken: Journal, watch: ServiceWatch, *, heard: bool) -> None:
        """Close moves and bill; the giver books what it is sent, and the taker hears that or not."""
        for one in books.values():
            one.close_moves(self._now)
        for entry in (bill := books[TAKER].bill(watch).get(GIVER, [])):
            if entry.entry.id not in self._seen:
                self._seen.add(entry.entry.id)
                self.balances[entry.entry.payee] += entry.entry.amount
                self.balances[entry.entry.payer] -= entry.entry.amount
        booked, refused = books[GIVER].book(bill, TAKER, self._now)
        if heard or self._rng.random() >= LOST_ANSWERS:
            taken.agree(one.entry.id for one in booked)
            taken.dispute(refused)

    def _judge(self, journal: Journal) -> list[str]:
        told = [f"{one.entry.id} is disputed: {one.disputed}" for one in journal.entries() if one.disputed]
        sums: defaultdict[str, float] = defaultdict(float)
        for payer, payee, amount in [
            *((one["payer"], one["payee"], one["amount"]) for one in settled_sums(journal)),
            *((one.entry.payer, one.entry.payee, one.entry.amount) for one in journal.entries()),
        ]:
            sums[payee] += amount
            sums[payer] -= amount
        for name, found in journal.balances().items():
            if not isclose(found, sums[name], rel_tol=1e-9) or not isclose(found, self.balances[name], rel_tol=1e-9):
                told.append(f"{name} has {found}, its entries come to {sums[name]}, not {self.balances[name]}")
        count = sum(one["entries"] for one in settled_sums(journal)) + len(journal.entries())
        if count != len(self._seen):
            told.append(f"{count} entries were booked, not {len(self._seen)}")
        if sum(journal.moves_by_state().values()) != self._moves:
            told.append(f"{journal.moves_by_state()} moves are counted, not {self._moves}")
        if journal.participant == GIVER and journal.next_serial() != self._moves:
            told.append(f"the next number is {journal.next_serial()}, not {self._moves}")
        return told

    def _journal(self, name: str) -> Journal:
        return Journal(self._folder / "journals" / name / FILE, name)

    def _started(self) -> list[object]:
        """What both participants read when they start."""
        return [self._with(name, _read_at_start) for name in (GIVER, TAKER)]

    def _read_all(self) -> list[object]:
        """What `floodway payments` reads of both."""
        return [self._with(name, lambda journal: (journal.entries(), journal.moves())) for name in (GIVER, TAKER)]

    def _with(self, name: str, read: Callable[[Journal], object]) -> object:
        with closing(self._journal(name)) as journal:
            return read(journal)

    def _give(self, fragment: str, journals: dict[str, Journal]) -> None:
        lease = self._lease(fragment)
        identity, units = f"{GIVER}/{self._moves}", {fragment: 0.5}
        self._moves += 1
        offer = Offer(identity, GIVER, TAKER, 4.0, (Task(fragment, Load(0.5), units=0.5),))
        self._store.follow(
            self._store.decide(
                MoveDecision(identity, GIVER, TAKER, True, self._now, 4.0, {fragment: lease.epoch}, units)
            )
        )
        roles: tuple[tuple[str, Role, State], ...] = ((GIVER, "giver", "asked"), (TAKER, "taker", "taking"))
        for name, role, state in roles:
            row = MoveRow(identity, role, GIVER, TAKER, 4.0, units, {fragment: lease.epoch}, state, self._now)
            journals[name].offer(offer, role, self._now)
            journals[name].answered(identity, "accept", TAKER if role == "giver" else GIVER)
            journals[name].begin(row)
            journals[name].reach(identity, "done", at=self._now)
        journals[TAKER].leased(fragment, lease.epoch + 1, TAKER, self._now, "moved")

    def _take_back(self, fragment: str, journals: dict[str, Journal]) -> None:
        lease = self._lease(fragment)
        if lease.owner == TAKER:
            self._store.release(lease, now=self._now)
            self._store.claim(fragment, GIVER, after=lease.epoch, now=self._now, lost=self._lease(fragment))
            journals[TAKER].lease_ended(fragment, lease.epoch, self._now)

    def _serve(self) -> None:
        for fragment in (FOR_GOOD, FOR_DAYS):
            self._store.renew(self._lease(fragment), now=self._now)

    def _lease(self, fragment: str) -> FragmentLease:
        lease = self._store.current(fragment)
        assert lease is not None
        return lease

    def _watch(self) -> ServiceWatch:
        """How the last days were served: late now and then."""
        watch = ServiceWatch()
        for fragment in (FOR_GOOD, FOR_DAYS):
            for number in range(2 * PERIODS // DAYS):
                late = self._rng.random() < LATE_PERIODS
                at = self._now - 2 * self._day + number * self._period
                watch.note(fragment, at, ServiceSample(2.0 if late else 0.1))
        return watch


def _read_at_start(journal: Journal) -> object:
    rows = [journal.open_moves(), journal.running_moves(), journal.billable_moves(), journal.moves(state="done")]
    return [rows, journal.offers(), journal.leases(), journal.next_serial(), journal.balances()]
