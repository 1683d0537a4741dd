"""What to shed when a queue is full, or about to be: tail drop, drop front, random drop, RED' and PID.

Once a buffer cycle an adaptor sees the queue and says two things (buffer-preposed paper, section 4.2): which share of
the tuples that arrive during the next cycle to *keep*, and which tuple goes when one comes to a full queue. The first
three keep everything and differ only in the second; RED' and PID shed early, by the laws in `floodway.control`, and
tail drop what still overflows. Thresholds and gains are the paper's at its limit of L = 150 tuples and scale with L,
which leaves the closed loop's poles where they are.

>>> pid = adaptor("pid")
>>> sample = QueueSample(waiting=75, limit=150, arrived=120, served=100)
>>> state, shedding = pid.update(pid.initial(), sample)
>>> round(shedding.keep, 4), shedding.overflow.value
(0.8333, 'tail')
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from floodway.buffering.queues import check_limit, lookup
from floodway.control.base import State
from floodway.control.pid import PidConfig, PidState, pid_step
from floodway.control.red import RedConfig, RedState, red_drop_ratio, red_step
from floodway.errors import InputError

PAPER_LIMIT = 150
StateT = TypeVar("StateT", bound=State)


class Overflow(StrEnum):
    """Which tuple goes when one arrives at a full queue: the new one, the next to be served, or any."""

    TAIL = "tail"
    FRONT = "front"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class QueueSample:
    """A queue at the end of a buffer cycle: its length and limit, and what arrived and left during the cycle."""

    waiting: int
    limit: int
    arrived: int = 0
    served: int = 0

    def __post_init__(self) -> None:
        check_limit(self.limit, where="queue sample")
        if min(self.waiting, self.arrived, self.served) < 0:
            raise InputError(f"{self} counts fewer than no tuples", hint="Counts start at 0")


@dataclass(frozen=True, slots=True)
class Shedding:
    """The decision: keep this share, in [0, 1], of what arrives, and make room like this when the queue is full."""

    keep: float = 1.0
    overflow: Overflow = Overflow.TAIL


class Adaptor(ABC, Generic[StateT]):
    """Config only; what must be remembered between cycles is an explicit, bounded state."""

    name: str

    @abstractmethod
    def initial(self) -> StateT:
        """The state before the first cycle."""

    @abstractmethod
    def update(self, state: StateT, sample: QueueSample) -> tuple[StateT, Shedding]:
        """The next state, and what to shed during the next cycle; a pure function."""


@dataclass(frozen=True, slots=True)
class WhenFull(Adaptor[State]):
    """Keep everything until the queue is full: tail drop, drop front or random drop."""

    name: str
    overflow: Overflow

    def initial(self) -> State:
        return State()

    def update(self, state: State, sample: QueueSample) -> tuple[State, Shedding]:
        return state, Shedding(1.0, self.overflow)


@dataclass(frozen=True, slots=True)
class RedAdaptor(Adaptor[RedState]):
    """RED': shed in proportion to the smoothed queue length."""

    config: RedConfig = field(default_factory=RedConfig)
    name: str = "red"

    def initial(self) -> RedState:
        return RedState()

    def update(self, state: RedState, sample: QueueSample) -> tuple[RedState, Shedding]:
        if sample.limit == 0:
            return state, Shedding()
        scale = sample.limit / PAPER_LIMIT
        config = replace(
            self.config,
            min_threshold=self.config.min_threshold * scale,
            max_threshold=self.config.max_threshold * scale,
        )
        state = red_step(config, state, queue=sample.waiting)
        return state, Shedding(1.0 - red_drop_ratio(config, state))


@dataclass(frozen=True, slots=True)
class PidAdaptor(Adaptor[PidState]):
    """PID: hold the queue at a reference share of its limit, to leave room for bursts."""

    config: PidConfig = field(default_factory=PidConfig)
    name: str = "pid"

    def initial(self) -> PidState:
        return PidState()

    def update(self, state: PidState, sample: QueueSample) -> tuple[PidState, Shedding]:
        if sample.limit == 0:
            return state, Shedding()
        scale = sample.limit / self.config.queue_limit
        config = replace(
            self.config,
            k_p=self.config.k_p * scale,
            k_i=self.config.k_i * scale,
            k_d=self.config.k_d * scale,
            queue_limit=float(sample.limit),
        )
        state = pid_step(config, state, queue=sample.waiting, arrived=sample.arrived, served=sample.served)
        return state, Shedding(1.0 - state.drop_ratio)


def split_excess(overflow: Overflow, *, old: int, new: int, limit: int) -> tuple[int, int]:
    """How many of `old` waiting and `new` tuples go so that at most `limit` stay.

    Tail takes new ones first, front old ones first, random both in proportion; each goes on to the other kind where
    the first does not suffice, as after a limit was lowered.

    >>> split_excess(Overflow.TAIL, old=90, new=30, limit=100)
    (0, 20)
    >>> split_excess(Overflow.RANDOM, old=90, new=30, limit=100)
    (15, 5)
    """
    excess = max(0, old + new - check_limit(limit, where="overflow"))
    if overflow is Overflow.TAIL:
        from_new = min(excess, new)
    elif overflow is Overflow.FRONT:
        from_new = excess - min(excess, old)
    else:
        from_new = excess * new // (old + new) if excess else 0
    return excess - from_new, from_new


def adaptors() -> Mapping[str, Adaptor[Any]]:
    """All adaptors by name; the contract suite runs on every one."""
    found: tuple[Adaptor[Any], ...] = (
        WhenFull("tail-drop", Overflow.TAIL),
        WhenFull("drop-front", Overflow.FRONT),
        WhenFull("random-drop", Overflow.RANDOM),
        RedAdaptor(),
        PidAdaptor(),
    )
    return {policy.name: policy for policy in found}


def adaptor(name: str) -> Adaptor[Any]:
    """One adaptor by name."""
    return lookup("adaptor", adaptors(), name)
