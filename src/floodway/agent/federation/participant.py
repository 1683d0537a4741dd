"""One participant of a federation: the contract machine, carried out over HTTP on real fragments.

The loop measures what arrives, steps `contracts.machine`, and carries out its actions. Messages of partners come in on
the server's threads and step the same machine under a lock. A move waits for Spark and for the partner, so it has a
thread of its own, and so have the leases. Overloaded, it offers first and sheds last.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from floodway.agent.federation import api
from floodway.agent.federation.billing import Billing
from floodway.agent.federation.books import NOT_SERVED, Books, ServiceSample
from floodway.agent.federation.credentials import Credentials, check_move, checked
from floodway.agent.federation.engine import FragmentEngine
from floodway.agent.federation.journal_rows import OPEN, BookedEntry
from floodway.agent.federation.leases import FragmentLease, LeaseStore
from floodway.agent.federation.member_steering import MemberSteering, Shed, target_of, values_of
from floodway.agent.federation.moves import ParticipantMoves
from floodway.agent.federation.negotiation import LoadMeter, Negotiation
from floodway.agent.federation.participant_figures import MemberRecord, ParticipantFigures
from floodway.agent.federation.participant_journal import FILE, Journal
from floodway.agent.federation.partners import Pace, Partners, Reach
from floodway.agent.federation.settlement import remove_leftovers
from floodway.agent.loop.run_files import locked
from floodway.agent.wire.client import PeerError
from floodway.agent.wire.server import HttpServer
from floodway.contracts.federation_file import Federation, FragmentSpec
from floodway.contracts.messages import (
    Accept,
    Arrived,
    Cancel,
    Message,
    Move,
    Offer,
    Recall,
    Room,
    Tick,
    recipient,
    sender,
)
from floodway.contracts.participant_state import NegotiationTimes, Participant, participant
from floodway.errors import ContractError, InputError
from floodway.job.clocks import PROCESS_CLOCK
from floodway.job.decision import JobDecision, Mode, OperatorMode, named, write_decision
from floodway.job.options.options import JobOptions
from floodway.job.status.batches import Sketch
from floodway.job.status.status import ProcessPart, Status, write_status
from floodway.job.store.store import LocalStore
from floodway.network.model import Node
from floodway.spark.query.moving_fragment import MovingLayout

DECISION = "decision.json"
"""The decision file that all sources of this participant read, in its state folder."""
SHOWN_MOVES = 50
"""How many of the last moves a status shows."""


class ParticipantAgent:
    """Start it, let it `tick`, close it; `run` does all three."""

    def __init__(
        self,
        federation: Federation,
        name: str,
        state: Path,
        store: LeaseStore,
        engine: FragmentEngine,
        *,
        credentials: Credentials | None = None,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        settings: NegotiationTimes | None = None,
        pace: Pace | None = None,
        options: JobOptions | None = None,
        clock: Callable[[], float] = PROCESS_CLOCK.now,
        at: Callable[[str], None] = lambda step: None,
    ) -> None:
        if name not in federation.members:
            known = ", ".join(federation.members)
            raise InputError(f"federation {federation.name} has no participant {name!r}", hint=f"It has {known}")
        self.federation = federation
        self.name = name
        self.pace = pace or Pace()
        self.folder = state
        self._clock = clock
        self._credentials = credentials or Credentials(name)
        self.journal = Journal(state / FILE, name)
        self.store = store
        self.engine = engine
        self._figures = figures = ParticipantFigures()
        self.moving = ParticipantMoves(name, federation.fragments, store, self.journal, engine, clock, at, figures.fail)
        self.books = Books(name, self.journal, store, federation.contracts, period_seconds=self.pace.bill)
        member = federation.members[name]
        self._loads = LoadMeter(member, federation.fragments)
        settings = replace(
            settings or NegotiationTimes(), migration_cost=member.migration_cost, take_back=member.take_back
        )
        serial = self.journal.next_serial()
        machine = participant(name, member.costs(), federation.contracts, settings=settings, serial=serial)
        self._negotiating = Negotiation(machine, federation, self.journal, self._figures, clock)
        reach = Reach(first_seconds=self.pace.measure, longest_seconds=30 * self.pace.measure)
        self.partners = Partners(name, federation, self._credentials, reach, self._figures, clock)
        self._billing = Billing(name, self.books, self.journal, self.partners, federation.contracts, self._figures, at)
        self._credentials.check_address(listen[0])
        receiving = self._credentials.receiving()
        self.server = HttpServer(api.routes(self), host=listen[0], port=listen[1], security=receiving)
        self._lost: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.options = options or JobOptions()
        self._operator = OperatorMode(LocalStore(state), self.options.mode, f"participant {name}")
        self._steering = MemberSteering(
            Node(name, member.cpu),
            self.options,
            target_seconds=target_of(machine, self.options.target.seconds if self.options.target else None),
            patience_seconds=self.pace.patience,
        )
        self._record = MemberRecord(name, state, self._steering.target_seconds)
        self._measured_at = self._billed_at = self._retry_at = -float("inf")
        self._claim = ExitStack()
        self._stop, self._ready = threading.Event(), threading.Event()
        self._renewer: threading.Thread | None = None
        self._mover: threading.Thread | None = None

    @property
    def machine(self) -> Participant:
        """The contract machine as it is now."""
        return self._negotiating.machine

    @property
    def mode(self) -> Mode:
        """What the operator asked for last, else what it was started with."""
        return self._operator.look()

    @property
    def ready(self) -> bool:
        """Whether partners are listened to."""
        return self._ready.is_set()

    def start(self) -> None:
        """Claim folder and address, recover what a crash left, run the fragments held, then listen to partners.

        A second process finds one of the two taken before it has touched anything.
        """
        self._claim.enter_context(locked(self.folder))
        remove_leftovers(self.moving.store.root)
        self.server.start()
        # A file that an earlier run left says nothing about this one.
        self._decide(Shed(named(JobDecision(mode=self.mode))))
        # Before the fragments: to start many takes longer than a lease.
        self._renewer = threading.Thread(target=self._renew, name=f"leases of {self.name}", daemon=True)
        self._renewer.start()
        self.moving.recover()
        for fragment, lease in self.moving.held.items():
            self._add(fragment, lease)
        self._negotiating.note_given(self.moving.held)
        self._negotiating.take_back_offers()
        self._ready.set()

    def run(self, seconds: float | None = None) -> None:
        """Tick until `stop` is called, or for so long."""
        end = None if seconds is None else time.monotonic() + seconds
        while not self._stop.is_set() and (end is None or time.monotonic() < end):
            began = time.monotonic()
            self.tick()
            self._stop.wait(max(0.0, self.pace.tick - (time.monotonic() - began)))

    def stop(self) -> None:
        """End `run` at its next tick."""
        self._stop.set()

    def close(self) -> None:
        """Stop the fragments at a batch boundary, let others' go home, stop listening."""
        self._stop.set()
        if self._mover is not None:
            self._mover.join()
        self.server.stop()
        if self._renewer is not None:
            self._renewer.join()
        self.moving.close()
        self.journal.close()
        self._claim.close()

    def tick(self) -> None:
        """One round: losses, moves left open, measurements, offers and answers, moves, bills, status.

        What fails in one part is told in the status and tried again; it does not keep the others from their work.
        """
        now = self._clock()
        for part in (self._lose, self._restart, self._reclaim, self._measure, self._negotiate, self._bill, self._tell):
            try:
                part(now)
            except Exception as error:
                self._figures.fail(part.__name__.strip("_"), error)

    def _lose(self, now: float) -> None:
        while not self._lost.empty():
            if (fragment := self._lost.get()) not in self.moving.held:  # else it has come back
                self._negotiating.remove(fragment)

    def _restart(self, now: float) -> None:
        for fragment, reason in self.engine.failures().items():
            self._figures.fail(fragment, reason)
            self.moving.holdings.stall(fragment, reason)
        if now < self._retry_at:
            return
        self._retry_at = now + self.pace.measure
        for move, stayed in self.moving.settle_open().items():
            row = self.journal.move(move)
            fragments = set() if row is None else set(row.units)
            self._negotiating.finish(move, fragments, stayed, wait_seconds=self.pace.failed_move)
            for fragment in fragments - stayed.keys():
                self._negotiating.remove(fragment)
        self._hold(self.moving.take_open())
        with self._negotiating.lock:
            expected = set(self.machine.reserved)
        self.moving.forget_prepared(expected)
        self.moving.retry()

    def _reclaim(self, now: float) -> None:
        self._hold(self.moving.reclaim(margin_seconds=self.pace.margin))

    def _hold(self, fragments: Iterable[str]) -> None:
        held = self.moving.held
        for fragment in fragments:
            if fragment in held:
                self._add(fragment, held[fragment])

    def _negotiate(self, now: float) -> None:
        self._negotiating.step(Tick())
        self._carry_out()

    def _bill(self, now: float) -> None:
        if now - self._billed_at >= min(1.0, self.pace.bill):
            self._billed_at = now
            self._billing.send(now, timeout_seconds=self.pace.message)

    def _tell(self, now: float) -> None:
        write_status(LocalStore(self.folder), self.status())

    def receive(self, message: Message) -> None:
        """A partner's message: the machine judges it; one that breaks a contract raises and changes nothing."""
        if recipient(message) != self.name:
            raise ContractError(f"the message is for {recipient(message)}, not {self.name}", hint="Check the address")
        message = checked(message, self.federation)
        self.partners.reach.heard(sender(message))
        self._negotiating.step(message)
        if isinstance(message, Offer):
            self.journal.offer(message, "taker", self._clock())
        elif not isinstance(message, Room | Recall):
            self.journal.answered(message.id, type(message).__name__.lower(), sender(message))

    def prepare(self, move: Move, epochs: Mapping[str, int], definitions: Mapping[str, FragmentSpec]) -> None:
        """Prepare to take over what was accepted: only that, as this participant's own file defines it."""
        with self._negotiating.lock:
            promise = self.machine.reserved.get(move.id)
        if promise is None:
            raise ContractError(f"{self.name} accepted no offer {move.id}", hint="Offer it first")
        self.moving.prepare(check_move(move, promise.move, epochs, definitions, self.federation.fragments), epochs)

    def take(self, move: Move, epochs: Mapping[str, int], definitions: Mapping[str, FragmentSpec]) -> dict[str, float]:
        """Take over what was accepted: only that, at that price, as this participant's own file defines it."""
        known = self.journal.move(move.id)
        with self._negotiating.lock:
            promise = self.machine.reserved.get(move.id)
        if promise is None and (known is None or known.state != "done"):
            raise ContractError(f"{self.name} accepted no offer {move.id}", hint="Offer it first")
        agreed = move if promise is None else promise.move
        agreed = check_move(move, agreed, epochs, definitions, self.federation.fragments)
        names = {task.name for task in agreed.tasks}
        seconds = self.moving.take(agreed, epochs)
        with self._negotiating.lock:
            held = self.moving.held
            if agreed.id in self.machine.reserved:
                here = tuple(task for task in agreed.tasks if task.name in held)
                self._negotiating.step(Arrived(replace(agreed, tasks=here)))
            self._hold(names - self.machine.holdings.keys())  # the promise lapsed while it was starting
        return seconds

    def billed(self, sender: str, entries: list[BookedEntry]) -> dict[str, Any]:
        """Book a taker's entries, each that follows from its move; those that do not are refused one by one."""
        self.partners.reach.heard(sender)
        return self._billing.receive(sender, entries, self._clock())

    def status(self) -> Status:
        """Load, fragments, moves and refusals."""
        cpu = self.federation.members[self.name].cpu
        with self._negotiating.lock:
            moves = self.journal.latest_moves(SHOWN_MOVES)
            part = self._figures.part(self.machine, moves, cpu=cpu, places=self._places())
        part = replace(
            part,
            stalled=dict(self.moving.stalled),
            leases={fragment: lease.until for fragment, lease in self.moving.held.items()},
            moves_total=self.journal.moves_by_state(),
        )
        process = ProcessPart(
            os.getpid(), "running" if self.ready else "starting", self.server.url, refused=dict(self.server.refused)
        )
        mode = self.mode  # looking at it finds the warnings
        return self._record.status(part, now=time.time(), process=process, mode=mode, warnings=self._operator.warnings)

    def latencies(self) -> Sketch:
        """Of all results of the fragments that run here."""
        return self._record.latencies

    def _places(self) -> dict[str, Path]:
        """The folders of the fragments held: what is in them moves with them."""
        return {fragment: MovingLayout.of(self.store.root, fragment).root for fragment in self.moving.held}

    def _decide(self, shed: Shed) -> None:
        """Put a decision in force."""
        self._record.issued(shed)
        write_decision(self.folder / DECISION, shed.decision)

    def _measure(self, now: float) -> None:
        if now - self._measured_at < self.pace.measure:
            return
        self._measured_at = now
        measures = self.engine.measure(now)
        self._figures.measures = measures
        with self._negotiating.lock:
            dropping = bool(self._figures.keeps)
            self._negotiating.step(self._loads.remeasured(self.machine, measures, dropping=dropping))
            asking = self.machine.search is not None or bool(self.machine.moving)
            values = values_of(self.machine, self.federation.fragments)
        batches = self.engine.batches()
        self._steering.observe(now, (one.batch for one in batches), measures)
        specs = [self.federation.fragments[name] for name in sorted(measures)]
        shed = self._steering.decide(now, specs, values, measures, asking=asking, mode=self.mode)
        self._figures.keeps = shed.keeps
        for name, one in measures.items():
            self._billing.watch.note(name, now, ServiceSample(one.delay_seconds, shed.keeps.get(name, 1.0)))
        for name in self.moving.stalled:
            self._billing.watch.note(name, now, ServiceSample(NOT_SERVED))
        self._decide(replace(shed, decision=replace(shed.decision, issued_us=int(now * 1e6))))
        self._record.look(time.time(), shed, batches, self._places().values())

    def _carry_out(self) -> None:
        actions = self._negotiating.actions
        while not actions.empty():
            action = actions.get()
            if isinstance(action, Move):
                # One at a time: the machine makes no offer while a move is under way.
                self._mover = threading.Thread(target=self._give, args=(action,), name=f"move {action.id}", daemon=True)
                self._mover.start()
            else:
                self._say(action.message)

    def _say(self, message: Message) -> None:
        """Deliver, once: the machine has its own time-outs for answers that do not come."""
        try:
            body = api.envelope(message)
            self.partners.post(recipient(message), "/v1/message", body, timeout_seconds=self.pace.message)
        except PeerError as error:
            if isinstance(message, Accept) and not error.unreachable:
                # The giver has forgotten its offer: as if it had taken it back.
                self._negotiating.step(Cancel(message.id, message.giver, message.taker))

    def _give(self, move: Move) -> None:
        names = {task.name for task in move.tasks}

        def ask(path: str, asked: Move, epochs: Mapping[str, int]) -> dict[str, float]:
            definitions = {name: self.federation.fragments[name] for name in names}
            body = api.move_body(asked, epochs, definitions)
            answer = self.partners.post(move.taker, path, body, timeout_seconds=self.pace.move, always=True)
            return {str(phase): float(taken) for phase, taken in answer.get("seconds", {}).items()}

        try:
            stayed = set(self.moving.give(move, partial(ask, "/v1/move"), partial(ask, "/v1/prepare")))
        except Exception as error:
            self._figures.fail(f"move {move.id}", error)
            with suppress(Exception):
                row = self.journal.move(move.id)
                if row is not None and row.state in OPEN:
                    return  # it may have been taken: a later tick finds out
            stayed = names
        self._negotiating.finish(move.id, names, stayed, wait_seconds=self.pace.failed_move)

    def _renew(self) -> None:
        while not self._stop.wait(self.pace.lease / 3):
            try:
                for fragment in self.moving.renew():
                    self._lost.put(fragment)
            except Exception as error:  # whatever it is: without this thread all leases run out
                self._figures.fail("leases", error)

    def _add(self, fragment: str, lease: FragmentLease) -> None:
        """Count a fragment that runs here, under the contract that brought it, as the shared storage tells."""
        at_home = self.federation.fragments[fragment].owner == self.name
        decision = None if lease.move is None or at_home else self.store.decision(lease.move)
        self._negotiating.add(fragment, decision)
