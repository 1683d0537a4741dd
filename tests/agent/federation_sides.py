"""Participants' moves and books in one process, without a network and with a clock that goes as the test says.

A kill is an exception that nothing catches, at any step of the protocol: what the side had in memory is gone, what it
had written is there, and `restart` makes a new one of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from floodway.agent.federation import api
from floodway.agent.federation.billing import Billing
from floodway.agent.federation.books import Books
from floodway.agent.federation.credentials import Credentials
from floodway.agent.federation.engine import EndedBatch, Fence, Measure
from floodway.agent.federation.errors import MoveError
from floodway.agent.federation.journal_rows import BookedEntry
from floodway.agent.federation.leases import FragmentLease, LeaseStore
from floodway.agent.federation.moves import ParticipantMoves
from floodway.agent.federation.participant_figures import ParticipantFigures
from floodway.agent.federation.participant_journal import Journal
from floodway.agent.federation.partners import Partners, Reach
from floodway.agent.federation.settlement import KEPT_SECONDS
from floodway.agent.wire.client import PeerError
from floodway.contracts.federation_file import Federation, FragmentSpec, parse_federation
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Move
from floodway.errors import InputError

TEXT = """
version: 1
participants:
  A: {url: "http://127.0.0.1:1"}
  B: {url: "http://127.0.0.1:2"}
  C: {url: "http://127.0.0.1:3"}
contracts:
  A<->B: {price: 4.0, service: {max_delay: 60s, penalty: 0.5}}
  B<->C: {price: 3.0, service: {max_delay: 60s, penalty: 2.0}}
  A<->C: {price: 4.0}
fragments:
  f0: {owner: A, run: sum, logs: {input: logs/f0}}
  f1: {owner: A, run: sum, logs: {input: logs/f1}}
"""
LEASE, PERIOD, MARGIN, UNITS = 10.0, 10.0, 2.0, 0.5


class Killed(BaseException):
    """kill -9: no `except Exception` sees it."""


class PlainEngine:
    """Knows what runs; `fails` says how often a fragment cannot be started, `on_start` is called before each start.

    `on_stop` is called before each stop.
    """

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.prepared: set[str] = set()
        self.fails: dict[str, int] = {}
        self.on_start: Callable[[str], None] = lambda fragment: None
        self.on_stop: Callable[[str], None] = lambda fragment: None

    def check(self, spec: FragmentSpec) -> None:
        pass

    def prepare(self, spec: FragmentSpec) -> None:
        self.prepared.add(spec.name)

    def forget(self, fragment: str) -> None:
        self.prepared.discard(fragment)

    def start(self, spec: FragmentSpec, fence: Fence) -> None:
        self.prepared.discard(spec.name)
        self.on_start(spec.name)
        if self.fails.get(spec.name, 0) > 0:
            self.fails[spec.name] -= 1
            raise InputError("its log is gone", hint="Find it")
        self.running.add(spec.name)

    def stop(self, fragment: str, *, after_batch: bool = False) -> None:
        self.on_stop(fragment)
        self.running.discard(fragment)

    def failures(self) -> Mapping[str, str]:
        return {}

    def measure(self, now: float) -> Mapping[str, Measure]:
        return {}

    def batches(self) -> list[EndedBatch]:
        return []

    def close(self) -> None:
        self.running.clear()


class Wire(Partners):
    """Brings bills to the other side without a network."""

    def __init__(self, sides: Sides, name: str, figures: ParticipantFigures) -> None:
        super().__init__(name, sides.federation, Credentials(name), Reach(), figures, partial(sides.clock, name))
        self._sides = sides

    def post(self, partner: str, path: str, body: object, *, timeout_seconds: float, always: bool = False) -> Any:
        try:
            return self._sides.bill(self._name, partner, api.BillForm.model_validate(body).entries)
        except Killed:
            self._sides.dead.add(partner)
            raise PeerError("unreachable", f"{partner} was killed") from None


@dataclass
class Side:
    """One participant: what it runs, its moves and its books."""

    engine: PlainEngine
    journal: Journal
    moving: ParticipantMoves
    books: Books
    billing: Billing
    figures: ParticipantFigures


@dataclass
class Sides:
    """A, B and C below one folder; A owns f0 and f1."""

    root: Path
    federation: Federation = field(default_factory=lambda: parse_federation(TEXT))
    now: float = 1000.0
    dead: set[str] = field(default_factory=set)
    ahead: dict[str, float] = field(default_factory=dict)
    """By how much the clock of a member is ahead of the true time."""
    members: dict[str, Side] = field(default_factory=dict)
    kept_seconds: float = KEPT_SECONDS
    watched: Callable[[str, str], None] = lambda name, step: None
    """Told of each step that a side comes to; it may raise `Killed`."""

    def __post_init__(self) -> None:
        self.store = LeaseStore(self.root / "shared", seconds=LEASE)
        for name in "ABC":
            self.restart(name)

    def clock(self, name: str) -> float:
        return self.now + self.ahead.get(name, 0.0)

    def restart(self, name: str) -> None:
        """A new process of a participant, on what the old one had written."""
        if name in self.members:
            self.members[name].journal.close()
        engine, figures = PlainEngine(), ParticipantFigures()
        journal = Journal(self.root / name / "federation.sqlite", name)

        def at(step: str) -> None:
            self.watched(name, step)

        fragments, contracts = self.federation.fragments, self.federation.contracts
        clock = partial(self.clock, name)
        moving = ParticipantMoves(
            name, fragments, self.store, journal, engine, clock, at, figures.fail, monotonic=lambda: self.now
        )
        books = Books(name, journal, self.store, contracts, period_seconds=PERIOD, kept_seconds=self.kept_seconds)
        billing = Billing(name, books, journal, Wire(self, name, figures), contracts, figures, at)
        self.members[name] = Side(engine, journal, moving, books, billing, figures)
        self.dead.discard(name)
        moving.recover()

    def give(self, move: str, taker: str, *fragments: str, price: float = 4.0) -> dict[str, FragmentLease]:
        """Carry out a move, to its end or until the giver is killed; a taker that is killed does not answer."""
        giver = move.partition("/")[0]
        tasks = tuple(Task(name, Load(UNITS), units=UNITS) for name in fragments or ("f0",))

        def ask(asked: Move, epochs: Mapping[str, int]) -> Mapping[str, float]:
            if taker in self.dead:
                raise MoveError("connection refused")
            try:
                return self.members[taker].moving.take(asked, epochs)
            except Killed:
                self.dead.add(taker)
                raise MoveError("connection reset") from None

        def prepare(asked: Move, epochs: Mapping[str, int]) -> Mapping[str, float]:
            try:
                self.members[taker].moving.prepare(asked, epochs)
            except Killed:
                self.dead.add(taker)
                raise MoveError("connection reset") from None
            return {}

        return self.members[giver].moving.give(Move(move, giver, taker, price, tasks), ask, prepare)

    def bill(self, sender: str, giver: str, entries: list[BookedEntry]) -> dict[str, Any]:
        """What a giver answers to a bill."""
        if giver in self.dead:
            raise PeerError("unreachable", f"{giver} is dead")
        return self.members[giver].billing.receive(sender, entries, self.clock(giver))

    def round(self, name: str) -> None:
        """What a participant does all the time."""
        side = self.members[name]
        side.moving.renew()
        side.moving.settle_open()
        side.moving.take_open()
        side.moving.forget_prepared(())
        side.moving.retry()
        side.moving.reclaim(margin_seconds=MARGIN)
        side.billing.send(self.clock(name), timeout_seconds=1.0)

    def live(self, seconds: float) -> None:
        """Let time pass; who is alive does what it does, here every two seconds."""
        for _ in range(round(seconds / 2)):
            self.now += 2.0
            for name in sorted(self.members.keys() - self.dead):
                try:
                    self.round(name)
                except Killed:
                    self.dead.add(name)

    def check(self) -> None:
        """One owner of each fragment, who runs it, and no one else; no move is open, of no move do
        the two sides tell different ends, and their books agree to the digit.
        """
        running = {name: side.engine.running for name, side in self.members.items()}
        for fragment in self.federation.fragments:
            lease = self.store.current(fragment)
            assert lease is not None
            assert [name for name, found in running.items() if fragment in found] == [lease.owner], (fragment, running)
        for name, side in self.members.items():
            assert side.journal.open_moves() == [], name
            assert side.moving.stalled == {}, name
            assert side.engine.prepared == set(), name
            for mine in side.journal.moves():
                other = self.members[mine.partner].journal.move(mine.id)
                assert mine.state == (other.state if other is not None else "failed"), (mine, other)
        books = {name: {one.entry.id: one for one in side.journal.entries()} for name, side in self.members.items()}
        for name, side in self.members.items():
            for one in books[name].values():
                row = side.journal.move(one.move)
                assert row is not None and one.agreed and not one.disputed, one
                assert books[row.partner].get(one.entry.id) == one, one

    def close(self) -> None:
        for side in self.members.values():
            side.journal.close()
