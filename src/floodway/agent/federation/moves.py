"""The moves of one participant: `move_machine.py` says what to do; here it is done on journal, leases and engine.

Beside them all else that changes owners: what a restart makes of moves that were cut short, fragments taken back from
an owner that fell silent, leases released at the end. What was prepared and is not asked for is given up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from floodway.agent.federation import move_actions as act
from floodway.agent.federation.engine import FragmentEngine
from floodway.agent.federation.errors import FragmentLostError, MoveError, StorageError
from floodway.agent.federation.holdings import Holdings
from floodway.agent.federation.journal_rows import OPEN, MoveRow, Role
from floodway.agent.federation.leases import FragmentLease, LeaseStore, MoveDecision
from floodway.agent.federation.move_machine import MoveState, beginning, resuming, step
from floodway.agent.federation.participant_journal import Journal
from floodway.contracts.federation_file import FragmentSpec
from floodway.contracts.messages import Move
from floodway.job.clocks import PROCESS_CLOCK

STEPS = (
    "giver:intended",
    "taker:prepared",
    "giver:prepared",
    "giver:stopped",
    "giver:asked",
    "giver:answered",
    "taker:noted",
    "taker:decided",
    "taker:leased",
    "taker:started",
    "taker:done",
)
"""Every point of a move that goes well at which a test kills one side; `ParticipantMoves.at` is called there."""


Ask = Callable[[Move, Mapping[str, int]], Mapping[str, float]]
"""Sends a move with the giver's epochs to its taker; what that tells of its own times, in seconds by phase."""
Post = Callable[[], Mapping[str, float]]
"""The same for one move."""


@dataclass
class ParticipantMoves:
    """The moves that bring one participant its fragments and take them away; `at` is told each step."""

    name: str
    specs: Mapping[str, FragmentSpec]
    store: LeaseStore
    journal: Journal
    engine: FragmentEngine
    clock: Callable[[], float] = PROCESS_CLOCK.now
    at: Callable[[str], None] = lambda step: None
    failed: Callable[[str, Exception], None] = lambda where, error: None
    """Told of what failed and is tried again."""
    monotonic: Callable[[], float] = time.monotonic
    """Measures how long others are silent: their clocks may differ from this one by any amount."""
    _prepared: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The fragments that were prepared, by the move that is to bring them."""
    _busy: set[str] = field(default_factory=set)
    """Moves that a thread is carrying out."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: dict[str, tuple[FragmentLease, float]] = field(default_factory=dict)
    """Leases of own fragments that are elsewhere: as each was last found, and since when it is so."""

    def __post_init__(self) -> None:
        self.holdings = Holdings(self.name, self.specs, self.store, self.journal, self.engine, self.clock, self.failed)

    @property
    def held(self) -> dict[str, FragmentLease]:
        """A copy of the leases held, by fragment."""
        return self.holdings.held()

    @property
    def stalled(self) -> dict[str, str]:
        """Fragments that are held but do not run, with the reason; a copy."""
        return self.holdings.stalled()

    def give(self, move: Move, ask: Ask, prepare: Ask = lambda move, epochs: {}) -> dict[str, FragmentLease]:
        """Carry a move out as its giver; the leases that came back or stayed, none if all went over.

        `prepare` lets the taker prepare; `ask` has it take over. Both return what that tells of its own times. Raises
        what kept this side from finding out how it was decided: the fragments then wait for `settle_open`.
        """
        fragments = [task.name for task in move.tasks]
        with self._under_way(move.id):
            leases = self.held
            if missing := sorted(set(fragments) - leases.keys()):
                raise MoveError(f"{self.name} does not hold {', '.join(missing)} any more", hint="Offer what is held")
            epochs = {name: leases[name].epoch for name in fragments}
            units = {task.name: task.units for task in move.tasks}
            row = MoveRow(move.id, "giver", move.giver, move.taker, move.price, units, epochs, "intended", self.clock())
            end = self._through(beginning(row), partial(ask, move, epochs), partial(prepare, move, epochs))
            return {lease.fragment: lease for lease in end.leases}

    def _through(self, state: MoveState, ask: Post = dict, prepare: Post = dict) -> act.MoveOver:
        """Carry out one action after the other, to the end of the move or until something keeps it from there."""
        while not isinstance(state.action, act.MoveEnd):
            point = state.point
            state = step(state, self._outcome(state.row, state.action, ask, prepare))
            if state.point != point:
                self.at(f"{state.row.role}:{state.point}")
        if isinstance(state.action, act.MoveRefused):
            raise MoveError(state.action.why, hint=state.action.hint)
        if isinstance(state.action, act.GaveUp):
            raise state.action.error
        return state.action

    def _outcome(self, row: MoveRow, action: act.MoveQuery | act.MoveDeed, ask: Post, prepare: Post) -> act.MoveEvent:
        began = self.clock()
        try:
            match action:
                case act.Ask():
                    told = tuple(ask().items())
                    return act.Answered(told, self.clock() - began)
                case act.Decide(taken):
                    return act.MoveDecided(self.store.decide(_decision(row, taken=taken, at=began)))
                case act.ReadDecision():
                    return act.MoveDecided(self.store.decision(row.id))
                case act.Follow(decision):
                    return act.Followed(self.store.follow(decision))
                case act.LetPrepare():
                    prepare()
                case _:
                    self._do(row, action)
        except Exception as error:
            return act.Failed(error, self.clock() - began)
        return act.Carried(self.clock() - began)

    def _do(self, row: MoveRow, action: act.MoveDeed) -> None:
        match action:
            case act.Begin():
                self.journal.begin(row)
            case act.NoteState(state, seconds, note, at):
                self.journal.reach(row.id, state, seconds=dict(seconds), note=note, at=at)
            case act.NoteFault(why):
                self.journal.reach(row.id, "asked", note=why)
            case act.EndLease(fragment, epoch, at):
                self.journal.lease_ended(fragment, epoch, self.clock() if at is None else at)
            case act.HaltAll():
                self.holdings.leave(row.epochs)
                _all_at_once(partial(self.holdings.stop, after_batch=True), row.epochs)
            case act.HoldLease(lease, how):
                self.holdings.own(lease.fragment, lease, how)
            case act.RunAll(leases):
                for lease in leases:
                    self.holdings.own(lease.fragment, lease, "moved")
                _all_at_once(self.holdings.start, [lease.fragment for lease in leases])
            case act.Resume(fragments):
                self.holdings.resume(fragments)
            case act.LetGo(fragment):
                self.holdings.drop(fragment)
            case act.GiveBack(lease):
                self.store.claim(lease.fragment, row.giver, after=lease.epoch, now=self.clock())
            case act.Wait(why):
                self.holdings.leave(row.epochs, why=why)
            case act.Report(where, error):
                self.failed(where, error)
            case _:
                assert_never(action)

    @contextmanager
    def _under_way(self, move: str) -> Iterator[None]:
        with self._lock:
            if move in self._busy:
                raise MoveError(f"move {move} is under way already", hint="Wait for it to end")
            self._busy.add(move)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(move)

    def _left_open(self, role: Role) -> list[MoveRow]:
        """Moves that were begun and that no thread is carrying out any more."""
        rows = [row for row in self.journal.open_moves() if row.role == role]
        with self._lock:
            busy = set(self._busy)
        # One that was being carried out at the first look, and is not at the second, has been closed in between.
        again = (self.journal.move(row.id) for row in rows if row.id not in busy)
        return [row for row in again if row is not None and row.state in OPEN]

    def settle_open(self) -> dict[str, dict[str, FragmentLease]]:
        """Find out about moves given that could not be settled when they ended; what stayed, by move."""
        found: dict[str, dict[str, FragmentLease]] = {}
        for row in self._left_open("giver"):
            try:
                found[row.id] = {lease.fragment: lease for lease in self._through(resuming(row)).leases}
            except Exception as error:
                self.failed(f"move {row.id}", error)
        return found

    def take_open(self) -> list[str]:
        """Finish moves taken that were cut short, as the shared storage says they were decided; what they brought."""
        found: list[str] = []
        for row in self._left_open("taker"):
            try:
                found += [lease.fragment for lease in self._through(resuming(row)).leases]
            except Exception as error:
                self.failed(f"move {row.id}", error)
        self.holdings.start_all(found)
        return found

    def prepare(self, move: Move, epochs: Mapping[str, int]) -> None:
        """As its taker, do all of a move that needs none of its fragments; raises where that cannot be."""
        self._check(move, epochs)
        names = tuple(task.name for task in move.tasks)
        with self._lock:
            self._prepared[move.id] = names
        for name in names:
            self.engine.prepare(self.specs[name])
        self.at("taker:prepared")

    def forget_prepared(self, wanted: Collection[str]) -> None:
        """Give up what was prepared for moves that are not expected, nor under way."""
        with self._lock:
            gone = [move for move in self._prepared if move not in wanted and move not in self._busy]
            names = [name for move in gone for name in self._prepared.pop(move)]
        for name in names:
            self.engine.forget(name)

    def take(self, move: Move, epochs: Mapping[str, int]) -> dict[str, float]:
        """Carry a move out as its taker; seconds by phase. Raises `MoveError` if it did not happen."""
        with self._under_way(move.id):
            known = self.journal.move(move.id)
            if known is not None:
                if known.state == "done" and known.role == "taker":
                    return dict(known.seconds)
                raise MoveError(f"move {move.id} is known already ({known.state})", hint="Make a new offer")
            self._check(move, epochs)
            units = {task.name: task.units for task in move.tasks}
            now = self.clock()
            row = MoveRow(move.id, "taker", move.giver, move.taker, move.price, units, dict(epochs), "taking", now)
            return dict(self._through(beginning(row)).seconds)

    def renew(self) -> list[str]:
        """Push all leases ahead; the fragments that turned out to be lost, which are stopped."""
        return self.holdings.renew()

    def retry(self) -> None:
        """Start what could not be started, or ended by itself, if it is still held."""
        self.holdings.retry()

    def close(self) -> None:
        """Stop everything; what belongs to others may go home at once."""
        self.engine.close()
        for fragment, lease in self.held.items():
            if self.specs[fragment].owner != self.name:
                self.at("holder:releasing")
                try:
                    self.store.release(lease, now=self.clock())
                except Exception as error:  # its lease runs out by itself
                    self.failed(f"lease of {fragment}", error)
                self.at("holder:released")

    def recover(self) -> None:
        """After a start: finish what was begun, then run every fragment whose lease names this participant.

        A fragment of one's own that nobody ever claimed is claimed; one that was, and has no lease now, is not: without
        its storage it would run a second time, from the start.
        """
        before = {str(lease["fragment"]) for lease in self.journal.leases()}
        own = [spec.name for spec in self.specs.values() if spec.owner == self.name]
        fresh = [name for name in own if self.store.current(name) is None]
        if lost := sorted(before.intersection(fresh)):
            raise StorageError(
                f"{self.store.root} holds no lease of {', '.join(lost)}, which {self.name} has run before",
                hint="Is the shared storage mounted there? Where it is a new one, begin with a new --state as well",
            )
        self.take_open()
        self.settle_open()
        for name in fresh:
            self.store.claim(name, self.name, after=0, now=self.clock())
        found = self.store.held_by(self.name)
        mine = {name: lease for name, lease in found.items() if name in self.specs and name not in self.held}
        for fragment, lease in mine.items():
            with suppress(FragmentLostError):  # lost in this very moment
                self.holdings.own(fragment, lease, "own" if lease.move is None else "moved")
        self.holdings.start_all(mine)

    def reclaim(self, *, margin_seconds: float) -> list[str]:
        """Take back own fragments whose lease has run out elsewhere, and run them from their checkpoints."""
        found: list[str] = []
        held = self.held
        for name in (spec.name for spec in self.specs.values() if spec.owner == self.name and spec.name not in held):
            try:
                if self._reclaimed(name, margin_seconds):
                    found.append(name)
            except FragmentLostError:
                continue  # it came back, or another claimed it, in this very moment
            except Exception as error:
                self.failed(f"lease of {name}", error)
        self.holdings.start_all(found)
        return found

    def _reclaimed(self, fragment: str, margin_seconds: float) -> bool:
        lease = self.store.current(fragment)
        if lease is None or not self._run_out(lease, margin_seconds):
            return False
        self.at("origin:reclaiming")
        fresh = self.store.claim(fragment, self.name, after=lease.epoch, now=self.clock(), lost=lease)
        self.at("origin:reclaimed")
        self.holdings.own(fragment, fresh, "reclaimed")
        return True

    def _run_out(self, lease: FragmentLease, margin_seconds: float) -> bool:
        """Whether its owner released a lease, or left it as it is for longer than it was good for.

        The times in it are of the owner's clock, so they say how long it is good for and not until when.
        """
        good_for = lease.until - lease.alive
        now = self.monotonic()
        seen, since = self._seen.get(lease.fragment, (None, now))
        if seen != lease:
            self._seen[lease.fragment] = lease, now
            since = now
        return good_for <= 0 or now - since > good_for + margin_seconds

    def _check(self, move: Move, epochs: Mapping[str, int]) -> None:
        for task in move.tasks:
            spec = self.specs.get(task.name)
            if spec is None:
                raise MoveError(f"{self.name} knows no fragment {task.name!r}", hint="Give all members the same file")
            self.engine.check(spec)
            lease = self.store.current(task.name)
            if lease is None or lease.owner != move.giver or lease.epoch != epochs.get(task.name):
                holder = "nobody" if lease is None else f"{lease.owner} (epoch {lease.epoch})"
                raise MoveError(
                    f"{move.giver} offers {task.name}, which {holder} holds", hint="Only its holder can move a fragment"
                )


def _all_at_once(do: Callable[[str], None], fragments: Collection[str]) -> None:
    """Do it to all fragments of a move at the same time: each stands still only for its own part. Raises the first
    error when all have ended.
    """
    with ThreadPoolExecutor(max(1, len(fragments)), thread_name_prefix="move") as pool:
        ended = [pool.submit(do, fragment) for fragment in fragments]
    for one in ended:
        one.result()


def _decision(row: MoveRow, *, taken: bool, at: float) -> MoveDecision:
    return MoveDecision(row.id, row.giver, row.taker, taken, at, row.price, row.epochs, row.units)
