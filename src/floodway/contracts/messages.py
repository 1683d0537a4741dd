"""What participants say to each other, and what a participant asks of the world around it: plain data.

A negotiation is offer, then accept, counter or reject; an accepted offer becomes a move with the offer's id. `Room`
tells a refused giver that its partner could now accept. Every message names giver and taker, so that it can be
checked against the contract between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from floodway.contracts.cost import CostFunction
from floodway.contracts.load import Task


@dataclass(frozen=True, slots=True)
class Offer:
    """Giver to taker: take some of these tasks at this unit price."""

    id: str
    giver: str
    taker: str
    price: float
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """Taker to giver: these tasks are reserved room here, at the offer's price."""

    id: str
    giver: str
    taker: str
    price: float
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counter:
    """Taker to giver: not at that price, but a task could be taken at this one."""

    id: str
    giver: str
    taker: str
    price: float


@dataclass(frozen=True, slots=True)
class Reject:
    """Taker to giver: no price in the range makes this worthwhile."""

    id: str
    giver: str
    taker: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Giver to taker: what was accepted will not come after all (the answer was late, or the move failed)."""

    id: str
    giver: str
    taker: str


@dataclass(frozen=True, slots=True)
class Room:
    """Taker to giver, unasked: since your last offer was refused, room has appeared."""

    giver: str
    taker: str


@dataclass(frozen=True, slots=True)
class Recall:
    """Giver to taker: these tasks, which came from here, would be welcome at home again. The taker may offer them."""

    giver: str
    taker: str
    tasks: tuple[str, ...]


Answer = Accept | Counter | Reject
Message = Offer | Accept | Counter | Reject | Cancel | Room | Recall


def recipient(message: Message) -> str:
    """Whom a message is for: the taker for offers, cancellations and recalls, the giver for all others."""
    return message.taker if isinstance(message, Offer | Cancel | Recall) else message.giver


def sender(message: Message) -> str:
    """Who says it: the other of the two."""
    return message.giver if isinstance(message, Offer | Cancel | Recall) else message.taker


@dataclass(frozen=True, slots=True)
class Send:
    """Action: deliver a message."""

    message: Message


@dataclass(frozen=True, slots=True)
class Move:
    """Action at the giver, and then news at the taker: these tasks go over, at this unit price."""

    id: str
    giver: str
    taker: str
    price: float
    tasks: tuple[Task, ...]

    @property
    def units(self) -> float:
        """Units of load that move."""
        return sum(task.units for task in self.tasks)


Action = Send | Move


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Started:
    """Event: a client submitted a task here, or a task's load rose by this much."""

    task: Task


@dataclass(frozen=True, slots=True)
class Ended:
    """Event: a task that runs here is over."""

    task: str


@dataclass(frozen=True, slots=True)
class Remeasured:
    """Event: what tasks that run here turned out to need; tasks that are elsewhere by now are passed over.

    `costs` is what carrying a load costs, where that is learnt from measurements too.
    """

    tasks: tuple[Task, ...]
    costs: CostFunction | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """Event at the giver: the move is complete, but for the tasks that `stayed` here."""

    id: str
    stayed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MoveFailed:
    """Event at the giver: the move did not happen, the tasks still run here; nothing is offered for `wait_seconds`."""

    id: str
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """Event at the taker: the tasks of a move run here now."""

    move: Move


@dataclass(frozen=True, slots=True)
class Held:
    """Event: a task was found to run here, given by `giver` at this price, or by nobody: after a restart, say."""

    task: Task
    giver: str | None = None
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class Gave:
    """Event at the origin: a task of its own was found to be with a partner, which is paid this price for it."""

    task: Task
    taker: str
    price: float


Event = Tick | Started | Ended | Remeasured | Moved | MoveFailed | Arrived | Held | Gave | Message
