"""The state of one participant: what it runs, under which contracts, and where its negotiations stand.

Frozen: `machine.step` returns a new state and the actions that follow, so a refused message changes nothing, and a
state can be written down and read back at any point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import TypeVar

from floodway.contracts.contract import Contract, as_giver, as_taker
from floodway.contracts.cost import CostFunction, delay_seconds
from floodway.contracts.load import Load, Task, total
from floodway.contracts.messages import Move, Offer
from floodway.errors import ContractError

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class NegotiationTimes:
    """Times in seconds. `period_seconds` is the paper's Ω: the wait between two tries to shed load.

    Offers gather for `gather_seconds` before they are answered together. An offer without an answer is given up after
    `answer_seconds`; room reserved for tasks that never come is free again after `arrival_seconds`. With
    `notifications`, one whom nobody could help waits to be told of room instead of trying again, but no longer than
    `wake_seconds`, because a note can get lost. With `take_back`, own tasks are asked back when load has fallen.
    """

    period_seconds: float = 2.0
    gather_seconds: float = 0.0
    answer_seconds: float = 10.0
    arrival_seconds: float = 120.0
    wake_seconds: float = 300.0
    migration_cost: float = 0.0
    notifications: bool = True
    take_back: bool = False

    def __post_init__(self) -> None:
        for name in ("period_seconds", "answer_seconds", "arrival_seconds"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise ContractError(f"{name} is {value}", hint="Give a number of seconds above 0")
        if not self.wake_seconds > 0:
            raise ContractError(f"wake_seconds is {self.wake_seconds}", hint="Give a number of seconds above 0")
        for name in ("gather_seconds", "migration_cost"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise ContractError(f"{name} is {value}", hint="Give 0 or more")


@dataclass(frozen=True, slots=True)
class Holding:
    """A task that runs here; `contract` is the one it was taken under, None for a client's own."""

    task: Task
    contract: Contract | None = None
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class Search:
    """One pass over the contracts: the lowest price still open with each partner, and the offer made last.

    `refused` says of each partner which tasks it did not take in this pass, with the price below which it never will.
    """

    quotes: Mapping[str, float]
    offer: Offer
    since: float
    refused: Mapping[str, tuple[tuple[Task, float], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room promised for tasks that are on their way."""

    move: Move
    since: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a partner was told when it got no room: the price asked, infinite for a plain no, and its tasks."""

    quote: float
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Away:
    """A task of one's own that a partner is paid for; `cheap_since` is since when it would cost less at home.

    `asked` is when it was last asked back.
    """

    task: Task
    taker: str
    price: float
    cheap_since: float | None = None
    asked: float = -inf


@dataclass(frozen=True)
class Participant:
    """One member of a federation; make one with `participant(...)`.

    `stirred` says that something changed since the last pass began, so that its end is no reason to sleep. `away` are
    tasks of its own that partners run, `recalled` tasks of partners that are asked back.
    """

    name: str
    costs: CostFunction
    gives_to: Mapping[str, Contract]
    takes_from: Mapping[str, Contract]
    settings: NegotiationTimes = NegotiationTimes()
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    search: Search | None = None
    moving: Mapping[str, Move] = field(default_factory=dict)
    inbox: tuple[Offer, ...] = ()
    gather_until: float = -inf
    reserved: Mapping[str, Reservation] = field(default_factory=dict)
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    away: Mapping[str, Away] = field(default_factory=dict)
    recalled: frozenset[str] = frozenset()
    next_try: float = -inf
    asleep_until: float = -inf
    stirred: bool = False
    serial: int = 0

    @property
    def load(self) -> Load:
        """What this participant carries now, tasks on their way out included."""
        return total(holding.task for holding in self.holdings.values())

    @property
    def promised(self) -> Load:
        """The load plus everything accepted and not yet here: what the next accepted task would come on top of."""
        coming = (task for reservation in self.reserved.values() for task in reservation.move.tasks)
        return self.load + total(coming)

    def wake(self) -> Participant:
        """The same participant, which will look for partners again at its next period."""
        return replace(self, asleep_until=-inf, stirred=True)

    def cost(self) -> float:
        """Cost per second of the present load."""
        return self.costs.cost(self.load)

    def movable(self, contract: Contract) -> list[Task]:
        """Tasks that may go to a contract's taker: of an allowed kind, not on the way, free to be passed on.

        A task may always go home to the participant it came from.
        """
        leaving = {task.name for move in self.moving.values() for task in move.tasks}
        return [
            holding.task
            for holding in self.holdings.values()
            if holding.task.name not in leaving
            and contract.allows(holding.task)
            and (holding.contract is None or holding.contract.may_pass_on or holding.task.origin == contract.taker)
        ]

    def bearable(self, load: Load, *, also: Contract | None = None) -> bool:
        """Whether the mean delay at this load keeps every service promised, that of contract `also` included."""
        limits = [
            contract.service.max_delay_seconds
            for contract in (also, *self._obligations())
            if contract is not None and contract.service is not None
        ]
        return not limits or delay_seconds(self.costs, load) <= min(limits)

    def _obligations(self) -> Iterable[Contract | None]:
        yield from (holding.contract for holding in self.holdings.values())
        yield from (self.takes_from.get(found.move.giver) for found in self.reserved.values())


def without(mapping: Mapping[str, Value], key: str) -> dict[str, Value]:
    """A copy that lacks one key."""
    return {name: value for name, value in mapping.items() if name != key}


def participant(
    name: str,
    costs: CostFunction,
    contracts: Iterable[Contract],
    tasks: Iterable[Task] = (),
    settings: NegotiationTimes | None = None,
    *,
    first_try: float = -inf,
    serial: int = 0,
) -> Participant:
    """A participant with its contracts (others' are ignored) and its clients' tasks, which originate here.

    `serial` is the number of its next offer.

    >>> from floodway.contracts.contract import Contract
    >>> from floodway.contracts.cost import InFlight
    >>> one = participant("A", InFlight(), [Contract("A", "B", 0.25, 0.25)], [Task("t", Load(0.5, 0.2))])
    >>> one.load.cpu, sorted(one.gives_to)
    (0.5, ['B'])
    """
    listed = list(contracts)
    holdings: dict[str, Holding] = {}
    for task in tasks:
        if task.name in holdings:
            raise ContractError(f"{name} has two tasks {task.name!r}", hint="Give every task its own name")
        holdings[task.name] = Holding(replace(task, origin=task.origin or name))
    return Participant(
        name=name,
        costs=costs,
        gives_to=as_giver(name, listed),
        takes_from=as_taker(name, listed),
        settings=settings or NegotiationTimes(),
        holdings=holdings,
        next_try=first_try,
        serial=serial,
    )
