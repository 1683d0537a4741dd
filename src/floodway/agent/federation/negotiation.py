"""The contract machine behind a lock: the loop, moves and partners' requests step it; what it wants done is queued.

What it says is journaled before it is sent. All that the machine learns, it learns by events: what runs here, what a
partner runs for this participant, how a move ended.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from floodway.agent.federation.engine import Measure
from floodway.agent.federation.leases import MoveDecision
from floodway.agent.federation.participant_figures import ParticipantFigures
from floodway.agent.federation.participant_journal import Journal
from floodway.contracts.cost import CostFunction, Learning
from floodway.contracts.federation_file import Federation, FragmentSpec, Member
from floodway.contracts.load import Load, Task
from floodway.contracts.machine import step
from floodway.contracts.messages import (
    Action,
    Cancel,
    Ended,
    Event,
    Gave,
    Held,
    Message,
    Moved,
    MoveFailed,
    Offer,
    Recall,
    Remeasured,
    Room,
    Send,
    recipient,
)
from floodway.contracts.participant_state import Participant

LEAST_UNITS = 1e-9


class Negotiation:
    """One participant's machine; hold `lock` to read it more than once."""

    def __init__(
        self,
        machine: Participant,
        federation: Federation,
        journal: Journal,
        figures: ParticipantFigures,
        clock: Callable[[], float],
    ) -> None:
        self.machine = machine
        self.lock = threading.RLock()
        self.actions: queue.SimpleQueue[Action] = queue.SimpleQueue()
        self._federation = federation
        self._journal = journal
        self._figures = figures
        self._clock = clock

    def step(self, event: Event) -> None:
        """Step the machine; what it wants done is journaled and waits for the loop."""
        with self.lock:
            self.machine, actions = step(self.machine, event, self._clock())
            for action in actions:
                try:
                    if isinstance(action, Send):
                        self._note(action.message)
                except Exception as error:  # what is not in the journal is not said: the machine gives it up in time
                    self._figures.fail("journal", error)
                else:
                    self.actions.put(action)

    def _note(self, message: Message) -> None:
        if isinstance(message, Offer):
            self._journal.offer(message, "giver", self._clock())
        elif not isinstance(message, Room | Recall):
            self._journal.answered(message.id, type(message).__name__.lower(), recipient(message))

    def add(self, fragment: str, decision: MoveDecision | None) -> None:
        """Count a fragment that runs here, under the move that brought it; None for one that is at home."""
        task = self._task(fragment, LEAST_UNITS)
        self.step(Held(task) if decision is None else Held(task, decision.giver, decision.price))

    def remove(self, fragment: str) -> None:
        """A fragment does not run here any more."""
        with self.lock:
            if fragment in self.machine.holdings:
                self.step(Ended(fragment))

    def finish(self, move: str, fragments: Collection[str], stayed: Collection[str], *, wait_seconds: float) -> None:
        """A move given has ended; where all stayed, nothing is offered for `wait_seconds`."""
        if set(stayed) == set(fragments):
            self.step(MoveFailed(move, wait_seconds))
        else:
            self.step(Moved(move, frozenset(stayed)))

    def note_given(self, held: Collection[str]) -> None:
        """After a start: which fragments of its own are with partners, and at which price."""
        for row in self._journal.running_moves():
            for name, units in row.units.items() if row.role == "giver" else ():
                spec = self._federation.fragments.get(name)
                if spec is not None and spec.owner == self.machine.name and name not in held:
                    self.step(Gave(self._task(name, units), row.taker, row.price))

    def take_back_offers(self) -> None:
        """Cancel what was offered before a crash and did not become a move: partners may hold room for it still."""
        recent = self._clock() - self.machine.settings.arrival_seconds
        done = {row.id for row in self._journal.moves(state="done")}
        for offer in self._journal.offers():
            unanswered = offer["answer"] in (None, "accept") and offer["id"] not in done
            if offer["role"] == "giver" and unanswered and offer["at"] > recent:
                self.actions.put(Send(Cancel(offer["id"], self.machine.name, offer["partner"])))
                self._journal.answered(offer["id"], "cancel", offer["partner"])

    def _task(self, fragment: str, units: float) -> Task:
        spec = self._federation.fragments[fragment]
        return Task(fragment, Load(units), units=units, kind=spec.run, query=spec.query, origin=spec.owner)


class LoadMeter:
    """The loads of one member's fragments; where its cost is measured, also what they teach about it."""

    def __init__(self, member: Member, fragments: Mapping[str, FragmentSpec]) -> None:
        self._fragments = fragments
        self._learning = Learning(member.costs()) if member.cost == "measured" else None

    def remeasured(self, machine: Participant, measures: Mapping[str, Measure], *, dropping: bool) -> Remeasured:
        """What the machine should know of the fragments that it holds."""
        tasks = tuple(
            replace(held.task, load=self._load(name, found), units=max(found.cpu, LEAST_UNITS))
            for name, held in machine.holdings.items()
            if (found := measures.get(name)) is not None
        )
        return Remeasured(tasks, self._learnt(measures, dropping))

    def _load(self, fragment: str, found: Measure) -> Load:
        return Load(found.cpu, found.rate * self._fragments[fragment].bytes_per_tuple, found.rate)

    def _learnt(self, measures: Mapping[str, Measure], dropping: bool) -> CostFunction | None:
        """The cost with what these measures teach; None where it is not learnt."""
        if self._learning is None:
            return None
        # Where tuples are dropped, fewer are in flight than the load that arrives would bring.
        if not dropping:
            in_flight = sum(one.rate * one.delay_seconds for one in measures.values())
            self._learning = self._learning.seen(sum(one.cpu for one in measures.values()), in_flight)
        return self._learning.costs()
