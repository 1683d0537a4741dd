"""A federation of real state machines on a simulated clock: any tasks, any costs, any contracts.

Time goes in rounds of one period. In a round everybody gets a tick; then messages go back and forth in turns until
nobody has anything to say: all offers of a turn arrive, takers answer, accepted moves are carried out at once, and
then those who got nothing ask the next partner. Tasks keep their names, so that a client can end its task wherever it
has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf

from floodway.contracts.contract import Contract
from floodway.contracts.cost import PAPER_TASK, CostFunction, InFlight
from floodway.contracts.load import Task
from floodway.contracts.machine import step
from floodway.contracts.messages import (
    Accept,
    Action,
    Arrived,
    Ended,
    Event,
    Message,
    Move,
    Moved,
    Offer,
    Send,
    Started,
    Tick,
    recipient,
)
from floodway.contracts.participant_state import NegotiationTimes, Participant, participant
from floodway.errors import InputError
from floodway.simulation.federation_cases import Ints, Prices, Topology

Watch = Callable[["SimulatedFederation", Move], None]
"""Called before each move is carried out."""


@dataclass
class SimulatedFederation:
    """Participants by name and the time; `moves` and `messages` grow as rounds go by."""

    members: dict[str, Participant]
    now: float = 0.0
    period_seconds: float = 2.0
    moves: list[tuple[float, Move]] = field(default_factory=list)
    messages: int = 0
    watch: Watch | None = None

    @classmethod
    def of(cls, members: Iterable[Participant], *, period_seconds: float = 2.0) -> SimulatedFederation:
        """A federation in which names and task names are unique and every contract's partner is a member."""
        found: dict[str, Participant] = {}
        where: dict[str, str] = {}
        for one in members:
            if one.name in found:
                raise InputError(f"two participants are called {one.name!r}", hint="Give each its own name")
            found[one.name] = one
            for task in one.holdings:
                if task in where:
                    raise InputError(f"{one.name} and {where[task]} both run task {task!r}", hint="Rename one")
                where[task] = one.name
        for one in found.values():
            missing = sorted({*one.gives_to, *one.takes_from} - set(found))
            if missing:
                raise InputError(
                    f"{one.name} has contracts with unknown {', '.join(missing)}", hint="Add them or the contract"
                )
        return cls(found, period_seconds=period_seconds)

    def cost(self) -> float:
        """Total cost of all participants."""
        return sum(one.cost() for one in self.members.values())

    def tasks(self) -> dict[str, int]:
        """How many tasks run where."""
        return {name: len(one.holdings) for name, one in self.members.items()}

    def place_of(self, task: str) -> str | None:
        """Where a task runs now."""
        return next((name for name, one in self.members.items() if task in one.holdings), None)

    def start(self, name: str, task: Task) -> None:
        """A client submits a task."""
        self._carry_out(self._step(name, Started(task)))

    def end(self, task: str) -> None:
        """A client ends a task, wherever it runs now."""
        place = self.place_of(task)
        if place is None:
            raise InputError(f"no participant runs {task!r}", hint="Was it ended before?")
        self._deliver(self._carry_out(self._step(place, Ended(task))))

    def round(self) -> int:
        """One period: returns how many moves it brought."""
        before = len(self.moves)
        self._deliver(self._carry_out([action for name in self.members for action in self._step(name, Tick())]))
        self.now += self.period_seconds
        return len(self.moves) - before

    def _deliver(self, messages: list[Message]) -> None:
        """Until nobody has anything to say: a note of room is heard even between two rounds."""
        while messages:
            messages = self._turn(messages)

    def _turn(self, messages: list[Message]) -> list[Message]:
        """Deliver what was said. Offers are gathered and answered; moves come before whatever is asked next."""
        answers: list[Message] = []
        takers = dict.fromkeys(recipient(message) for message in messages if isinstance(message, Offer))
        for message in messages:
            answers += self._carry_out(self._step(recipient(message), message))
        for taker in takers:
            answers += self._carry_out(self._step(taker, Tick()))
        answers.sort(key=lambda message: not isinstance(message, Accept))
        moves: list[Action] = []
        following: list[Message] = []
        for place, answer in enumerate(answers):
            if not isinstance(answer, Accept):
                following = answers[place:]
                break
            moves += self._step(recipient(answer), answer)
        said = self._carry_out(moves)
        for answer in following:
            if isinstance(answer, Offer):
                said.append(answer)
            else:
                said += self._carry_out(self._step(recipient(answer), answer))
        # Offers of one turn arrive in the order of their givers, whoever was heard first.
        place_of = {name: place for place, name in enumerate(self.members)}
        return sorted(said, key=lambda message: place_of[message.giver])

    def _step(self, name: str, event: Event) -> tuple[Action, ...]:
        self.members[name], actions = step(self.members[name], event, self.now)
        return actions

    def _carry_out(self, actions: Iterable[Action]) -> list[Message]:
        """Moves happen at once, all arrivals before all departures; messages are returned for delivery."""
        listed = list(actions)
        moves = [action for action in listed if isinstance(action, Move)]
        said = [action.message for action in listed if isinstance(action, Send)]
        self.messages += len(said) + len(moves)
        for move in moves:
            if self.watch is not None:
                self.watch(self, move)
            self.moves.append((self.now, move))
            self._step(move.taker, Arrived(move))
        for move in moves:
            said += self._carry_out(self._step(move.giver, Moved(move.id)))
        return said


def of_topology(
    topology: Topology,
    prices: Prices,
    tasks: Ints,
    *,
    settings: NegotiationTimes | None = None,
    costs: CostFunction | None = None,
    task: Task = PAPER_TASK,
) -> SimulatedFederation:
    """The same federation as a `Market`: identical tasks, contracts in the order of the topology."""
    names = [f"n{node}" for node in range(topology.nodes)]
    contracts: dict[str, list[Contract]] = {name: [] for name in names}
    for node, row in enumerate(topology.partners.tolist()):
        for column, partner in enumerate(row):
            if partner >= 0:
                low, high = float(prices.low[node, column]), float(prices.high[node, column])
                contract = Contract(names[node], names[partner], low, high)
                contracts[names[node]].append(contract)
                contracts[names[partner]].append(contract)
    chosen = settings or NegotiationTimes(wake_seconds=inf)
    return SimulatedFederation.of(
        (
            participant(name, costs or InFlight(), contracts[name], _copies(task, name, count), chosen)
            for name, count in zip(names, tasks.tolist(), strict=True)
        ),
        period_seconds=chosen.period_seconds,
    )


def _copies(task: Task, prefix: str, count: int) -> list[Task]:
    return [replace(task, name=f"{prefix}.{place}") for place in range(count)]
