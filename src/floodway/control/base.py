"""The one interface of all controllers: what is observed, decided and expected, a law between them, and what wraps it.

A controller never reads a clock, draws a number or keeps anything in itself: config, law and state are three things,
and `update` maps (state, observation) to (next state, decision). `loop.Loop` holds the state for callers that step it.
*Work* is whatever unit the caller counts in, tuples or CPU-seconds of planned work, the same everywhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Self, TypeGuard, TypeVar

from floodway.errors import InputError

BATCH_SHARE = 1.5
"""Mean latency over batch duration in a steady state: half a batch of waiting and one of processing."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The duration of a batch that is offered N and keeps n units of work, and the work that a batch may hold.

        P = a + s N + c n

    `overhead_seconds` is a, `offered_cost` s and `kept_cost` c, both in seconds per unit of work. `fits` is the work
    for which the law plans a batch, whatever waits; None while what was measured does not tell.

    >>> forecast = Forecast(overhead_seconds=0.5, kept_cost=0.01, offered_cost=0.002)
    >>> forecast.seconds(offered=400, kept=100), round(forecast.work(2.3, offered=400))
    (2.3, 100)
    """

    overhead_seconds: float
    kept_cost: float
    offered_cost: float = 0.0
    fits: float | None = None

    def seconds(self, offered: float, kept: float) -> float:
        """The expected duration of a batch."""
        return self.overhead_seconds + self.offered_cost * offered + self.kept_cost * kept

    def seconds_per_offered(self, keep: float) -> float:
        """What one unit of offered work takes, of which that share is kept."""
        return self.offered_cost + keep * self.kept_cost

    def work(self, seconds: float, offered: float) -> float:
        """The work that a batch of this duration can keep of what it is offered, at least 0."""
        return max(0.0, (seconds - self.overhead_seconds - self.offered_cost * offered) / self.kept_cost)

    def capacity_needed(self, rate: float, seconds: float) -> float | None:
        """How many times the present capacity keeps all of this rate in batches of this duration; None for no number.

        The overhead of a batch does not shrink with capacity.

        >>> round(Forecast(overhead_seconds=0.5, kept_cost=0.01).capacity_needed(150.0, 2.0), 3)
        2.0
        """
        room = seconds - self.overhead_seconds
        return (self.kept_cost + self.offered_cost) * rate * seconds / room if room > 0.0 else None

    def whole_work(self, seconds: float) -> float:
        """The work of a batch of this duration that keeps all it is offered, at least 0."""
        return max(0.0, (seconds - self.overhead_seconds) / (self.kept_cost + self.offered_cost))


Plain = int | float | str

LEAST_SECONDS = 1e-9
LEAST_WORK = 1e-9
"""Below these a batch is as good as empty, and dividing by it would only make numbers overflow."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known when the next batch (or tick) is to be decided.

    `waiting` is N, the work the decision chooses from. `latency_seconds`, `batch_seconds`, `kept` and `offered`
    belong to the latest batch that has ended and was not reported before: mean latency of its results, its duration,
    the work it processed, and the work it was chosen from. `queued` is the queue a queue law protects; None says that
    it is `waiting` itself. `latency_width_seconds` is how far latencies within that batch lie apart, the longest less
    the shortest. `miss_ratio` is the share of results later than their deadline. `target_seconds` overrides
    the configured target when it is changed while running.

    None means no new measurement. So does a value that cannot be one (NaN, negative: a clock that jumped).
    """

    time_seconds: float
    waiting: float
    latency_seconds: float | None = None
    kept: float = 0.0
    batch_seconds: float | None = None
    offered: float | None = None
    queued: float | None = None
    miss_ratio: float | None = None
    target_seconds: float | None = None
    latency_width_seconds: float | None = None

    def __post_init__(self) -> None:
        for key in ("time_seconds", "waiting", "kept"):
            _count(f"observation.{key}", getattr(self, key), at_least=-math.inf if key == "time_seconds" else 0.0)
        for key in ("offered", "queued"):
            if getattr(self, key) is not None:
                _count(f"observation.{key}", getattr(self, key), at_least=0.0)
        if self.target_seconds is not None:
            positive("observation.target_seconds", self.target_seconds)
        for key in ("latency_seconds", "batch_seconds", "miss_ratio", "latency_width_seconds"):
            value = getattr(self, key)
            if value is not None and not (math.isfinite(value) and value >= 0.0):
                object.__setattr__(self, key, None)

    @property
    def batch(self) -> tuple[float, float] | None:
        """(seconds, work) of the measured batch; None without one, or when it did too little to tell a cost."""
        seconds = self.batch_seconds
        if seconds is None or seconds < LEAST_SECONDS or self.kept < LEAST_WORK:
            return None
        return seconds, self.kept

    @property
    def queue(self) -> float:
        """Length of the queue that a queue law protects, in units of work."""
        return self.waiting if self.queued is None else self.queued


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do: admit this much of the waiting work, or plan for this multiple of the nominal capacity.

    `admit` is never above what waits, and never below the floor when that much waits. `capacity_scale` is g: the
    planner looks up rates r/g and scales back. It follows the law's own n, not this batch's `admit`, so a quiet
    moment does not shrink the capacity planned for. `floor_seconds` is the least mean latency the engine can reach,
    once measured; `unreachable` says that the target lies below it.
    """

    admit: float
    capacity_scale: float
    reason: str
    unreachable: bool = False
    floor_seconds: float | None = None

    def keep(self, waiting: float) -> float:
        """The decision as a keep fraction of the work that waits, in [0, 1]."""
        return min(1.0, self.admit / waiting) if waiting > 0.0 else 1.0


@dataclass(frozen=True, slots=True)
class GainWarning:
    """A setting that works but breaks a stability bound: the key, its value, the bound, and the sentence to show."""

    key: str
    value: float
    bound: float
    message: str


@dataclass(frozen=True, slots=True)
class State:
    """What a law remembers: a fixed set of numbers and strings, so that memory is finite and a restart can resume."""

    def snapshot(self) -> dict[str, Plain]:
        """As a plain dict (JSON-ready); fields without a value are left out."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in pairs if value is not None}

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, Plain]) -> Self:
        """The state that gave this snapshot; a key it does not know, or a number that is none, is refused."""
        known = {f.name: str(f.type) for f in fields(cls)}
        values: dict[str, Any] = {}
        for key, value in snapshot.items():
            if key not in known:
                raise InputError(
                    f"snapshot key {key!r} is not part of {cls.__name__}",
                    hint=f"Known keys: {', '.join(known)}. Delete the snapshot to start afresh.",
                )
            values[key] = _restored(f"snapshot.{key}", value, known[key])
        return cls(**values)


StateT = TypeVar("StateT", bound=State)


class Controller(ABC, Generic[StateT]):
    """A control law. Subclasses are frozen dataclasses over a validated config and keep nothing else."""

    name: ClassVar[str]
    signal: ClassVar[str]
    """The observation field the law acts on; while it is None the state stays as it is."""

    @abstractmethod
    def initial(self) -> StateT:
        """The state before the first observation."""

    @abstractmethod
    def update(self, state: StateT, observation: Observation) -> tuple[StateT, Decision]:
        """The next state and the decision for the next batch; a pure function."""

    def forecast(self, state: StateT) -> Forecast | None:
        """What the law expects of the next batch; None without evidence.

        A law that does not define it gets the forecasts of a model that learns from the same observations
        (`loop.Loop`).
        """
        return None

    @property
    def warnings(self) -> tuple[GainWarning, ...]:
        """Settings that are allowed but unwise; for the caller to show."""
        return ()

    def snapshot(self, state: StateT) -> dict[str, Plain]:
        """The state as a plain dict that names its controller."""
        return {"controller": self.name, **state.snapshot()}

    def restore(self, snapshot: Mapping[str, Plain]) -> StateT:
        """The state from `snapshot`; one that another controller wrote is refused."""
        written_by = snapshot.get("controller")
        if written_by != self.name:
            raise InputError(
                f"snapshot was written by controller {written_by!r}, not by {self.name!r}",
                hint="Delete the snapshot, or choose the controller that wrote it.",
            )
        rest = {key: value for key, value in snapshot.items() if key != "controller"}
        return type(self.initial()).from_snapshot(rest)


def clamp(value: float, low: float, high: float) -> float:
    """`value` moved into [low, high]."""
    return min(max(value, low), high)


def bounded(work: float, floor: float, waiting: float) -> float:
    """Floor first, cap last: never more than waits, never less than the floor while that much waits."""
    return min(max(work, floor), waiting)


def shed(waiting: float, drop_ratio: float, floor: float, nominal: float | None, reason: str) -> Decision:
    """A drop ratio as a decision. Without a nominal amount of work, g is the kept share of what was offered."""
    admit = bounded((1.0 - drop_ratio) * waiting, floor, waiting)
    scale = 1.0 - drop_ratio if nominal is None else admit / nominal
    return Decision(admit, scale, reason)


def positive(key: str, value: object) -> None:
    """Refuse anything but a finite number above 0."""
    if not _is_number(value) or not value > 0.0:
        raise InputError(f"{key} must be a number above 0, got {value!r}", hint=f"Set {key} to a positive number.")


def optional_positive(key: str, value: object) -> None:
    """None (left out), or a finite number above 0."""
    if value is not None:
        positive(key, value)


def within(key: str, value: object, low: float, high: float) -> None:
    """Refuse anything but a finite number in [low, high]."""
    if not _is_number(value) or not low <= value <= high:
        raise InputError(f"{key} must be a number in [{low:g}, {high:g}], got {value!r}", hint=f"Correct {key}.")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(key: str, value: Any, *, at_least: float) -> None:
    if not _is_number(value) or value < at_least:
        raise InputError(
            f"{key} must be a finite number of at least {at_least:g}, got {value!r}",
            hint="Report counts as they are; use None only where a measurement may be missing.",
        )


def _restored(key: str, value: Plain, kind: str) -> Plain:
    if kind.startswith("str"):
        if not isinstance(value, str):
            raise InputError(f"{key} must be a string, got {value!r}", hint="Delete the snapshot to start afresh.")
        return value
    if not _is_number(value):
        raise InputError(f"{key} must be a finite number, got {value!r}", hint="Delete the snapshot to start afresh.")
    return int(value) if kind.startswith("int") else float(value)


@dataclass(frozen=True, slots=True)
class WrappedState(State, Generic[StateT]):
    """The state of the law inside, and what the decorator remembers."""

    law: Any
    own: StateT

    def snapshot(self) -> dict[str, Plain]:
        """Made by `Decorator.snapshot`, which knows the law's name."""
        return self.own.snapshot()


@dataclass(frozen=True, slots=True)
class Decorator(Controller[WrappedState[StateT]]):
    """A controller round another one. In a snapshot the law's keys stay as they are, its own begin with `prefix`.

    A snapshot without them, written before the decorator was there, resumes the law and starts the decorator afresh.
    """

    law: Controller[Any]
    prefix: ClassVar[str]

    @abstractmethod
    def own_initial(self) -> StateT:
        """What the decorator remembers before the first observation."""

    @abstractmethod
    def update(
        self, state: WrappedState[StateT], observation: Observation
    ) -> tuple[WrappedState[StateT], Decision]: ...

    def initial(self) -> WrappedState[StateT]:
        return WrappedState(self.law.initial(), self.own_initial())

    def forecast(self, state: WrappedState[StateT]) -> Forecast | None:
        return self.law.forecast(state.law)

    @property
    def warnings(self) -> tuple[GainWarning, ...]:
        """Those of the law."""
        return self.law.warnings

    def snapshot(self, state: WrappedState[StateT]) -> dict[str, Plain]:
        own = {self.prefix + key: value for key, value in state.own.snapshot().items()}
        return {**self.law.snapshot(state.law), **own}

    def restore(self, snapshot: Mapping[str, Plain]) -> WrappedState[StateT]:
        own = {key: value for key, value in snapshot.items() if key.startswith(self.prefix)}
        law = self.law.restore({key: value for key, value in snapshot.items() if key not in own})
        bare = {key.removeprefix(self.prefix): value for key, value in own.items()}
        return WrappedState(law, type(self.own_initial()).from_snapshot(bare))
