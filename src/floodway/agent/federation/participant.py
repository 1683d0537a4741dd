"""One participant of a federation: the contract machine, carried out over HTTP on real fragments.

The loop measures what arrives, steps `contracts.machine`, sends what it wants said and carries out what it wants
moved. Messages of partners come in on the server's threads and step the same machine under a lock. A move waits for
Spark and for the partner, so it has a thread of its own, and so have the leases. Overloaded, it offers first and sheds
last.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from floodway.agent.claim import locked
from floodway.agent.federation import api
from floodway.agent.federation.books import Books
from floodway.agent.federation.engine import Engine, Measure
from floodway.agent.federation.entrance import check_move, checked
from floodway.agent.federation.figures import Figures
from floodway.agent.federation.journal import FILE, BookedEntry, Journal
from floodway.agent.federation.keys import Credentials
from floodway.agent.federation.leases import Lease, LeaseStore
from floodway.agent.federation.moving import Moving
from floodway.agent.federation.shedding import Shedding
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.server import HttpServer
from floodway.contracts.cost import CostFunction, Learning, unit_cost
from floodway.contracts.errors import ContractError
from floodway.contracts.federation_file import Federation, FragmentSpec
from floodway.contracts.load import Load, Task
from floodway.contracts.machine import step
from floodway.contracts.messages import (
    Accept,
    Action,
    Arrived,
    Cancel,
    Ended,
    Event,
    Message,
    Move,
    Moved,
    MoveFailed,
    Offer,
    Remeasured,
    Room,
    Send,
    Tick,
    recipient,
    sender,
)
from floodway.contracts.participant import Holding, Participant, Settings, participant
from floodway.errors import InputError
from floodway.spark.shed_state import write_atomically

LEAST_UNITS = 1e-9
NOT_SERVED = 1e9
"""The delay, in seconds, of a fragment that is held and does not run: longer than any that a contract allows."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often things happen, and how long they may take, in seconds.

    `lease` is renewed three times in its length; an origin waits `margin` beyond it, for clocks that differ. After a
    move that failed nothing is offered for `failed_move`.
    """

    tick: float = 0.2
    measure: float = 1.0
    lease: float = 10.0
    margin: float = 2.0
    bill: float = 10.0
    message: float = 2.0
    move: float = 90.0
    failed_move: float = 20.0
    patience: float = 10.0


class ParticipantAgent:
    """Start it, let it `tick`, close it; `run` does all three."""

    def __init__(
        self,
        federation: Federation,
        name: str,
        state: Path,
        store: LeaseStore,
        engine: Engine,
        *,
        credentials: Credentials | None = None,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        settings: Settings | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
        at: Callable[[str], None] = lambda step: None,
    ) -> None:
        if name not in federation.members:
            known = ", ".join(federation.members)
            raise InputError(f"federation {federation.name} has no participant {name!r}", hint=f"It has {known}")
        self.federation = federation
        self.name = name
        self.pace = pace or Pace()
        self._folder = state
        self._clock = clock
        self._credentials = credentials or Credentials(name)
        self.journal = Journal(state / FILE, name)
        self.store = store
        self.engine = engine
        self.moving = Moving(name, federation.fragments, store, self.journal, engine, clock, at)
        self.books = Books(name, self.journal, store, federation.contracts, period_seconds=self.pace.bill)
        member = federation.members[name]
        self._learning = Learning(member.costs()) if member.cost == "measured" else None
        settings = replace(settings or Settings(), migration_cost=member.migration_cost)
        self.machine: Participant = participant(name, member.costs(), federation.contracts, settings=settings)
        self._credentials.check_address(listen[0])
        receiving = self._credentials.receiving()
        self.server = HttpServer(api.routes(self), host=listen[0], port=listen[1], security=receiving)
        self._lock = threading.RLock()
        self._actions: queue.SimpleQueue[Action] = queue.SimpleQueue()
        self._lost: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._shedding = Shedding()
        self._figures = Figures()
        self._measured_at = self._billed_at = self._retry_at = -float("inf")
        self._claim = ExitStack()
        self._stop, self._ready = threading.Event(), threading.Event()
        self._renewer: threading.Thread | None = None
        self._mover: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        """Whether partners are listened to."""
        return self._ready.is_set()

    def start(self) -> None:
        """Claim folder and address, recover what a crash left, run the fragments held, then listen to partners.

        A second process finds one of the two taken before it has touched anything.
        """
        self._claim.enter_context(locked(self._folder))
        self.server.start()
        self.machine = replace(self.machine, serial=self.journal.next_serial())
        self.moving.recover()
        for fragment, lease in self.moving.held.items():
            self._add(fragment, lease)
        self._take_back_offers()
        self._ready.set()
        self._renewer = threading.Thread(target=self._renew, name=f"leases of {self.name}", daemon=True)
        self._renewer.start()

    def _take_back_offers(self) -> None:
        """Cancel what was offered before a crash and did not become a move: partners may hold room for it still."""
        recent = self._clock() - self.machine.settings.arrival_seconds
        done = {row.id for row in self.journal.moves(state="done")}
        for offer in self.journal.offers():
            unanswered = offer["answer"] in (None, "accept") and offer["id"] not in done
            if offer["role"] == "giver" and unanswered and offer["at"] > recent:
                self._actions.put(Send(Cancel(offer["id"], self.name, offer["partner"])))
                self.journal.answered(offer["id"], "cancel", offer["partner"])

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
        """One round: losses, measurements, offers and answers, moves, bills, status."""
        now = self._clock()
        while not self._lost.empty():
            self._remove(self._lost.get())
        for fragment, reason in self.engine.failures().items():
            self._figures.failures[fragment] = reason
            self.moving.stalled[fragment] = reason
        if self.moving.stalled and now >= self._retry_at:
            self._retry_at = now + self.pace.measure
            self.moving.retry()
        for fragment in self.moving.reclaim(margin_seconds=self.pace.margin):
            if fragment in self.moving.held:
                self._add(fragment, self.moving.held[fragment])
        if now - self._measured_at >= self.pace.measure:
            self._measured_at = now
            self._measure(now)
        self._step(Tick())
        self._carry_out()
        if now - self._billed_at >= min(1.0, self.pace.bill):
            self._billed_at = now
            self._settle(now)
        write_atomically(self._folder / "status.json", json.dumps(self.status()))

    def receive(self, message: Message) -> None:
        """A partner's message: the machine judges it; one that breaks a contract raises and changes nothing."""
        if recipient(message) != self.name:
            raise ContractError(f"the message is for {recipient(message)}, not {self.name}", hint="Check the address")
        message = checked(message, self.federation)
        self._step(message)
        if isinstance(message, Offer):
            self.journal.offer(message, "taker", self._clock())
        elif not isinstance(message, Room):
            self.journal.answered(message.id, type(message).__name__.lower(), sender(message))

    def take(self, move: Move, epochs: Mapping[str, int], definitions: Mapping[str, FragmentSpec]) -> dict[str, float]:
        """Take over what was accepted: only that, at that price, as this participant's own file defines it."""
        known = self.journal.move(move.id)
        with self._lock:
            promise = self.machine.reserved.get(move.id)
        if promise is None and (known is None or known.state != "done"):
            raise ContractError(f"{self.name} accepted no offer {move.id}", hint="Offer it first")
        agreed = move if promise is None else promise.move
        agreed = check_move(move, agreed, epochs, definitions, self.federation.fragments)
        names = {task.name for task in agreed.tasks}
        seconds = self.moving.take(agreed, epochs)
        with self._lock:
            if agreed.id in self.machine.reserved:
                self._step(Arrived(agreed))
            for name in names & set(self.moving.held) - set(self.machine.holdings):
                self._add(name, self.moving.held[name])  # the promise lapsed while it was starting
        return seconds

    def billed(self, sender: str, entries: list[BookedEntry]) -> list[str]:
        """Book a taker's entries; one that does not follow from the move refuses them all."""
        with self.journal.transaction():
            for booked in entries:
                self.books.check(booked, sender, self._clock())
        return [booked.entry.id for booked in entries]

    def status(self) -> dict[str, Any]:
        """Load, fragments, moves and refusals, as JSON can hold them."""
        with self._lock:
            told = self._figures.status(self.machine, self.journal.moves())
        return told | {
            "time": self._clock(),
            "url": self.server.url,
            "cpu": self.federation.members[self.name].cpu,
            "unit_cost": unit_cost(self.machine.costs, self.machine.load),
            "refused": dict(self.server.refused),
            "stalled": dict(self.moving.stalled),
        }

    def _measure(self, now: float) -> None:
        measures = self.engine.measure(now)
        self._figures.measures = measures
        with self._lock:
            tasks = tuple(
                replace(held.task, load=self._load(name, found), units=max(found.cpu, LEAST_UNITS))
                for name, held in self.machine.holdings.items()
                if (found := measures.get(name)) is not None
            )
            self._step(Remeasured(tasks, self._learnt(measures)))
            asking = self.machine.search is not None or bool(self.machine.moving)
        cpu = self.federation.members[self.name].cpu
        loads = {name: one.cpu for name, one in measures.items()}
        self._shedding, keeps = self._shedding.decide(
            loads, cpu=cpu, asking=asking, now=now, patience_seconds=self.pace.patience
        )
        self._figures.keeps = keeps
        self.engine.shed(keeps)

    def _load(self, fragment: str, found: Measure) -> Load:
        return Load(found.cpu, found.rate * self.federation.fragments[fragment].bytes_per_tuple, found.rate)

    def _learnt(self, measures: Mapping[str, Measure]) -> CostFunction | None:
        """The cost with what these measures teach; None where it is not learnt."""
        if self._learning is None:
            return None
        # Where tuples are dropped, fewer are in flight than the load that arrives would bring.
        if not self._figures.keeps:
            in_flight = sum(one.rate * one.delay_seconds for one in measures.values())
            self._learning = self._learning.seen(sum(one.cpu for one in measures.values()), in_flight)
        return self._learning.costs()

    def _step(self, event: Event) -> None:
        """Step the machine; what it wants done is journaled and waits for the loop."""
        with self._lock:
            self.machine, actions = step(self.machine, event, self._clock())
            for action in actions:
                if isinstance(action, Send) and isinstance(action.message, Offer):
                    self.journal.offer(action.message, "giver", self._clock())
                elif isinstance(action, Send) and not isinstance(action.message, Room):
                    answer = type(action.message).__name__.lower()
                    self.journal.answered(action.message.id, answer, recipient(action.message))
                self._actions.put(action)

    def _carry_out(self) -> None:
        while not self._actions.empty():
            action = self._actions.get()
            if isinstance(action, Move):
                # One at a time: the machine makes no offer while a move is under way.
                self._mover = threading.Thread(target=self._give, args=(action,), name=f"move {action.id}", daemon=True)
                self._mover.start()
            else:
                self._say(action.message)

    def _say(self, message: Message) -> None:
        """Deliver, once: the machine has its own time-outs for answers that do not come."""
        partner = recipient(message)
        try:
            self._client(partner, self.pace.message).post_json("/v1/message", api.envelope(message))
        except PeerError as error:
            self._figures.unreachable[f"{partner}: {error.reason}"] += 1
            if isinstance(message, Accept) and not error.unreachable:
                self._step_cancelled(message)

    def _step_cancelled(self, accept: Accept) -> None:
        """The giver refused to hear that its offer is accepted: it has forgotten it, so the room is free."""
        with self._lock:
            kept = {key: one for key, one in self.machine.reserved.items() if key != accept.id}
            self.machine = replace(self.machine, reserved=kept)

    def _give(self, move: Move) -> None:
        client = self._client(move.taker, self.pace.move)
        definitions = {task.name: self.federation.fragments[task.name] for task in move.tasks}

        def ask(asked: Move, epochs: Mapping[str, int]) -> dict[str, float]:
            answer = client.post_json("/v1/move", api.move_body(asked, epochs, definitions))
            return {str(phase): float(taken) for phase, taken in answer["seconds"].items()}

        before = dict(self.machine.holdings)
        try:
            stayed = self.moving.give(move, ask)
        except Exception as error:  # it could not be resumed; `retry` does it at a later tick
            self._figures.failures[move.id] = str(error)[:300]
            stayed = {task.name: lease for task in move.tasks if (lease := self.moving.held.get(task.name))}
        with self._lock:
            if len(stayed) == len(move.tasks):
                self._step(MoveFailed(move.id))
                self.machine = replace(self.machine, next_try=self._clock() + self.pace.failed_move)
                return
            self._step(Moved(move.id))
            back = {name: before[name] for name in stayed}
            self.machine = replace(self.machine, holdings={**self.machine.holdings, **back})

    def _settle(self, now: float) -> None:
        self.books.close_moves(now)
        delays = {name: one.delay_seconds for name, one in self._figures.measures.items()}
        delays |= dict.fromkeys(self.moving.stalled, NOT_SERVED)
        for giver, entries in self.books.bill(delays).items():
            try:
                body = api.bill_body(self.name, entries[:1000])
                answer = self._client(giver, self.pace.message).post_json("/v1/bill", body)
                self.journal.agree([str(one) for one in answer["booked"]])
            except PeerError as error:
                self._figures.unreachable[f"{giver}: {error.reason}"] += 1

    def _renew(self) -> None:
        while not self._stop.wait(self.pace.lease / 3):
            for fragment in self.moving.renew():
                self._lost.put(fragment)

    def _add(self, fragment: str, lease: Lease) -> None:
        """Count a fragment that runs here, under the contract that brought it, as the shared storage tells."""
        spec = self.federation.fragments[fragment]
        task = Task(fragment, Load(), units=LEAST_UNITS, kind=spec.run, query=spec.query, origin=spec.owner)
        decision = None if lease.move is None or spec.owner == self.name else self.store.decision(lease.move)
        contract = None if decision is None else self.machine.takes_from.get(decision.giver)
        held = Holding(task, contract, 0.0 if decision is None else decision.price)
        with self._lock:
            self.machine = replace(self.machine, holdings={**self.machine.holdings, fragment: held}).wake()

    def _remove(self, fragment: str) -> None:
        with self._lock:
            if fragment in self.machine.holdings:
                self._step(Ended(fragment))

    def _client(self, partner: str, timeout_seconds: float) -> Client:
        """To a partner; `PeerError` for one that has left the file, to whom something may still be owed."""
        member = self.federation.members.get(partner)
        if member is None or partner not in self.federation.partners(self.name):
            raise PeerError("gone", f"{self.name} has no contract with {partner}", hint="Settle it with them by hand")
        return Client(member.url, self._credentials.sending(partner), timeout_seconds, peer=partner)
