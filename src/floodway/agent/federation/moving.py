"""A move, step by step, from either side; and what a restart makes of one that was cut short.

    giver   note the intent → stop at a batch boundary → ask the taker → look how the move was decided
    taker   note it → decide it as taken, by one file on the shared storage → claim the leases → start → confirm

The giver withdraws a move by creating the same file: whichever of the two creates it decides the move for both, so an
answer that got lost, a time-out or a crash at any point leaves one owner. What could not be started at the taker is
given back by a lease that names the giver. Until the taker has confirmed, the giver keeps all it needs to resume.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from floodway.agent.federation.engine import Engine
from floodway.agent.federation.errors import LeaseLostError, MoveError
from floodway.agent.federation.journal import Journal, MoveRow
from floodway.agent.federation.leases import Lease, LeaseStore, MoveDecision
from floodway.contracts.federation_file import FragmentSpec
from floodway.contracts.messages import Move
from floodway.errors import FloodwayError

STEPS = (
    "giver:intended",
    "giver:stopped",
    "giver:asked",
    "giver:answered",
    "taker:noted",
    "taker:decided",
    "taker:leased",
    "taker:started",
    "taker:done",
)
"""Every point of the protocol at which a test kills one side; `Moving.at` is called there."""


@dataclass
class Moving:
    """The fragments that one participant holds, and the moves that bring and take them.

    `ask` sends a move to its taker and returns what that tells of its own times; `at` is told each step.
    """

    name: str
    specs: Mapping[str, FragmentSpec]
    store: LeaseStore
    journal: Journal
    engine: Engine
    clock: Callable[[], float] = time.time
    at: Callable[[str], None] = lambda step: None
    held: dict[str, Lease] = field(default_factory=dict)
    stalled: dict[str, str] = field(default_factory=dict)
    """Fragments that are held but do not run, with the reason; `retry` tries again."""
    _leaving: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def give(self, move: Move, ask: Callable[[Move, Mapping[str, int]], Mapping[str, float]]) -> dict[str, Lease]:
        """Carry a move out as its giver; the leases that came back or stayed, none if all went over."""
        fragments = [task.name for task in move.tasks]
        epochs = {name: self.held[name].epoch for name in fragments}
        units = {task.name: task.units for task in move.tasks}
        row = MoveRow(move.id, "giver", move.giver, move.taker, move.price, units, epochs, "intended", self.clock())
        self.journal.begin(row)
        self.at("giver:intended")
        started = self.clock()
        self._leaving.update(fragments)
        try:
            for name in fragments:
                self.engine.stop(name)
            self.journal.reach(move.id, "stopped", seconds={"stop": self.clock() - started})
            self.at("giver:stopped")
            self.journal.reach(move.id, "asked")
            self.at("giver:asked")
            asked = self.clock()
            told = ask(move, epochs)
            self.at("giver:answered")
            seconds = {"hand_over": self.clock() - asked - told.get("start", 0.0), **told}
            self.journal.reach(move.id, "asked", seconds=seconds)
        except FloodwayError as error:
            self.journal.reach(move.id, "asked", note=error.message)
        try:
            return self.settle(row)
        finally:
            self._leaving.difference_update(fragments)

    def settle(self, row: MoveRow) -> dict[str, Lease]:
        """Find out how a move that this side gave was decided, withdrawing it if it was not; resume what is left."""
        decision = self.store.decide(_decision(row, taken=False, at=self.clock()))
        self.store.follow(decision)
        stayed: dict[str, Lease] = {}
        for fragment, epoch in row.epochs.items():
            lease = self.store.current(fragment)
            if lease is not None and lease.owner == self.name:
                stayed[fragment] = lease
            else:
                self._forget(fragment)
                self.journal.lease_ended(fragment, epoch, decision.at)
        gone = len(stayed) < len(row.epochs)
        self.journal.reach(row.id, "done" if gone else "failed", at=decision.at if gone else None)
        for fragment, lease in stayed.items():
            self.hold(fragment, lease, "own" if lease.epoch == row.epochs[fragment] else "returned")
        return stayed

    def take(self, move: Move, epochs: Mapping[str, int]) -> dict[str, float]:
        """Carry a move out as its taker; seconds by phase. Raises `MoveError` if it did not happen."""
        known = self.journal.move(move.id)
        if known is not None:
            if known.state == "done" and known.role == "taker":
                return dict(known.seconds)
            raise MoveError(f"move {move.id} is known already ({known.state})", hint="Make a new offer")
        self._check(move, epochs)
        units = {task.name: task.units for task in move.tasks}
        now = self.clock()
        row = MoveRow(move.id, "taker", move.giver, move.taker, move.price, units, dict(epochs), "taking", now)
        self.journal.begin(row)
        self.at("taker:noted")
        return self._decide(row)

    def _decide(self, row: MoveRow) -> dict[str, float]:
        decision = self.store.decide(_decision(row, taken=True, at=self.clock()))
        self.at("taker:decided")
        if not decision.taken:
            self.journal.reach(row.id, "failed", note="withdrawn by its giver")
            raise MoveError(f"{row.giver} withdrew move {row.id}", hint="It was asked for too late")
        leases = self.store.follow(decision)
        self.at("taker:leased")
        began = self.clock()
        try:
            for fragment, lease in leases.items():
                self.hold(fragment, lease, "moved")
        except Exception as error:  # of any kind: a fragment is never left taken and not running
            self._give_back(row, leases, str(error)[:300])
            raise MoveError(f"move {row.id} could not be started: {error}"[:300], hint="The giver resumes") from None
        seconds = {"start": self.clock() - began}
        self.at("taker:started")
        self.journal.reach(row.id, "done", seconds=seconds, at=decision.at)
        self.at("taker:done")
        return seconds

    def hold(self, fragment: str, lease: Lease, how: str) -> None:
        """Run a fragment under a lease that names this participant."""
        fresh = self.store.hold(lease, now=self.clock())
        self.journal.leased(fragment, lease.epoch, self.name, lease.since, how)
        with self._lock:
            self.held[fragment] = fresh
        self._start(fragment)

    def retry(self) -> None:
        """Start what could not be started, or ended by itself, if it is still held."""
        for fragment in list(self.stalled):
            if fragment not in self.held:
                del self.stalled[fragment]
                continue
            with suppress(FloodwayError):
                self._start(fragment)

    def _start(self, fragment: str) -> None:
        try:
            self.engine.start(self.specs[fragment], partial(self._fence, self.held[fragment]))
        except FloodwayError as error:
            self.stalled[fragment] = error.message
            raise
        self.stalled.pop(fragment, None)

    def renew(self) -> list[str]:
        """Push all leases ahead; the fragments that turned out to be lost, which are stopped."""
        lost: list[str] = []
        for fragment, lease in list(self.held.items()):
            try:
                fresh = self.store.renew(lease, now=self.clock())
            except LeaseLostError:
                # One that is on its way out was claimed by its taker: the move itself finds out.
                if fragment not in self._leaving:
                    lost.append(fragment)
                continue
            with self._lock:
                if self.held.get(fragment) == lease:
                    self.held[fragment] = fresh
        for fragment in lost:
            self.drop(fragment)
        return lost

    def drop(self, fragment: str) -> None:
        """Stop a fragment that belongs to somebody else by now."""
        lease = self._forget(fragment)
        self.engine.stop(fragment)
        if lease is None:
            return
        after = self.store.after(fragment, lease.epoch)
        self.journal.lease_ended(fragment, lease.epoch, after.since if after else self.clock())

    def close(self) -> None:
        """Stop everything; what belongs to others may go home at once."""
        self.engine.close()
        for fragment, lease in self.held.items():
            if self.specs[fragment].owner != self.name:
                self.store.release(lease, now=self.clock())

    def recover(self) -> None:
        """After a start: finish what was begun, then run every fragment whose lease names this participant.

        A fragment of one's own that nobody ever claimed is claimed.
        """
        for row in self.journal.open_moves():
            if row.role == "giver":
                with suppress(FloodwayError):  # what cannot be resumed now is tried again below
                    self.settle(row)
                continue
            decision = self.store.decision(row.id)
            if decision is None or not decision.taken:
                self.journal.reach(row.id, "failed", note="cut short before it was decided")
            else:
                self.store.follow(decision)
                self.journal.reach(row.id, "done", at=decision.at)
        for spec in self.specs.values():
            if spec.owner == self.name and self.store.current(spec.name) is None:
                self.store.claim(spec.name, self.name, after=0, now=self.clock())
        for fragment, lease in self.store.held_by(self.name).items():
            if fragment in self.specs and fragment not in self.held:
                with suppress(FloodwayError):  # its log is not there yet, say: `retry` goes on
                    self.hold(fragment, lease, "own" if lease.move is None else "moved")

    def reclaim(self, *, margin_seconds: float) -> list[str]:
        """Take back own fragments whose lease has run out elsewhere, and run them from their checkpoints."""
        found: list[str] = []
        for spec in self.specs.values():
            lease = self.store.current(spec.name) if spec.owner == self.name and spec.name not in self.held else None
            if lease is None or self.clock() <= lease.until + margin_seconds:
                continue
            with suppress(LeaseLostError):  # it came back, or another claimed it, in this very moment
                fresh = self.store.claim(spec.name, self.name, after=lease.epoch, now=self.clock(), lost=lease)
                found.append(spec.name)
                with suppress(FloodwayError):
                    self.hold(spec.name, fresh, "reclaimed")
        return found

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

    def _give_back(self, row: MoveRow, leases: Mapping[str, Lease], why: str) -> None:
        for fragment, lease in leases.items():
            self._forget(fragment)
            with suppress(FloodwayError):
                self.engine.stop(fragment)
            with suppress(LeaseLostError):
                self.store.claim(fragment, row.giver, after=lease.epoch, now=self.clock())
            self.journal.lease_ended(fragment, lease.epoch, self.clock())
        self.journal.reach(row.id, "failed", note=why)

    def _forget(self, fragment: str) -> Lease | None:
        with self._lock:
            return self.held.pop(fragment, None)

    def _fence(self, lease: Lease) -> None:
        self.store.check(lease, now=self.clock())


def _decision(row: MoveRow, *, taken: bool, at: float) -> MoveDecision:
    return MoveDecision(row.id, row.giver, row.taker, taken, at, row.price, row.epochs, row.units)
