"""Which waiting tuple is served next: FIFO, EDF, MUF and strict priorities (buffer-preposed paper, section 4.1).

A scheduler gives every *queue* a rank; a tuple's key is then

    (level, t + offset, tie)        the smallest key is served first

with t the tuple's arrival or generation time in seconds. As the tuples of a queue differ only in t, each queue is
sorted already, and serving in key order is a merge of the queues' heads: a heap in the simulation, a merge of cursors
on Spark. Levels are strict: nothing of a level is served while a lower one waits.

>>> edf = scheduler("edf")
>>> edf.rank(QueueClass("s", deadline_seconds=0.25), cost_seconds=0.005)
Rank(level=0, offset_seconds=0.25, tie=0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from floodway.buffering.queues import QueueClass, lookup

Clock = Literal["arrived", "generated"]


@dataclass(frozen=True, slots=True)
class Rank:
    """A queue's place in the service order; see the module's key."""

    level: int
    offset_seconds: float
    tie: int = 0


class Scheduler(Protocol):
    """Turns a queue class into a rank; pure, so the order is a function of the tuples alone."""

    @property
    def name(self) -> str:
        """The name it is registered under."""
        ...

    @property
    def clock(self) -> Clock:
        """Which time of a tuple is t in its key."""
        ...

    def rank(self, queue: QueueClass, *, cost_seconds: float) -> Rank:
        """The rank of a queue whose tuples cost `cost_seconds` of CPU each."""
        ...


@dataclass(frozen=True, slots=True)
class Fifo:
    """First in, first out, over all queues: key t_a."""

    name: str = "fifo"
    clock: Clock = "arrived"

    def rank(self, queue: QueueClass, *, cost_seconds: float) -> Rank:
        """One rank for all: what came first goes first."""
        return Rank(0, 0.0)


@dataclass(frozen=True, slots=True)
class EarliestDeadlineFirst:
    """EDF: least t_g + T_d first. Queues without a deadline come after all that have one, in order of generation."""

    name: str = "edf"
    clock: Clock = "generated"

    def rank(self, queue: QueueClass, *, cost_seconds: float) -> Rank:
        """By deadline alone."""
        return _by_deadline(0, queue)


@dataclass(frozen=True, slots=True)
class MaximumUrgencyFirst:
    """MUF (Stewart and Khosla): critical tuples first, then least laxity, then the higher priority.

    Laxity at time `now` is t_g + T_d - now - cost. `now` and the cost are the same for all tuples of a queue, so
    their order is that of t_g + T_d - cost and does not change while they wait. Critical means a priority above zero.
    """

    name: str = "muf"
    clock: Clock = "generated"

    def rank(self, queue: QueueClass, *, cost_seconds: float) -> Rank:
        """Urgent queues before the others, each by deadline less the time a tuple takes."""
        group = 0 if queue.priority > 0 else 1
        return _by_deadline(group, queue, earlier_by=cost_seconds, tie=-queue.priority)


@dataclass(frozen=True, slots=True)
class StrictPriority:
    """The highest priority first; EDF within a priority. Low priorities may starve: that is what strict means."""

    name: str = "priority"
    clock: Clock = "generated"

    def rank(self, queue: QueueClass, *, cost_seconds: float) -> Rank:
        """By priority, then by deadline."""
        return _by_deadline(-queue.priority, queue)


def _by_deadline(group: int, queue: QueueClass, *, earlier_by: float = 0.0, tie: int = 0) -> Rank:
    # An infinite offset would make all tuples without deadline equal; a level of their own keeps their order.
    if not queue.has_deadline:
        return Rank(2 * group + 1, 0.0, tie)
    return Rank(2 * group, queue.deadline_seconds - earlier_by, tie)


def schedulers() -> Mapping[str, Scheduler]:
    """All schedulers by name; the contract suite runs on every one."""
    found: tuple[Scheduler, ...] = (Fifo(), EarliestDeadlineFirst(), MaximumUrgencyFirst(), StrictPriority())
    return {policy.name: policy for policy in found}


def scheduler(name: str) -> Scheduler:
    """One scheduler by name."""
    return lookup("scheduler", schedulers(), name)
