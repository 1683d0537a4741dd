"""What the limits of admission control share: n in requests of `unit` work, and when a latency says something of it.

The first latency under load starts the limit at what waited then. A limit that was not half used says nothing and
stays; any other is what the law makes of it, at most what waits or what it was. A request of the original is `unit` =
n / `requests` here, as work has no natural unit.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypeVar

from floodway.control.base import Controller, Decision, Observation, State, bounded


@dataclass(frozen=True, slots=True)
class LimitState(State):
    """n, the n at which g = 1, and the work of one request; None before the first latency."""

    n: float | None = None
    nominal: float | None = None
    unit: float | None = None


class LimitConfig(Protocol):
    """What every limit can be given: requests that the first one counts as, the least work, and the n at g = 1."""

    @property
    def requests(self) -> float:
        """Requests that the first limit counts as."""

    @property
    def floor(self) -> float:
        """The least work."""


StateT = TypeVar("StateT", bound=LimitState)


class LimitController(Controller[StateT]):
    """A limit by latency; holds when there is no new measurement."""

    signal: ClassVar[str] = "latency_seconds"

    @property
    @abstractmethod
    def limits(self) -> LimitConfig:
        """The law's config."""

    @abstractmethod
    def remembered(self, state: StateT, latency: float) -> StateT:
        """The state with this latency in what the law remembers of them."""

    @abstractmethod
    def limit(self, state: StateT, n: float, unit: float, latency: float) -> tuple[float, str]:
        """The next n, and why."""

    def update(self, state: StateT, observation: Observation) -> tuple[StateT, Decision]:
        config, waiting, latency = self.limits, observation.waiting, observation.latency_seconds
        if latency is None:
            return state, self._decide(state, waiting, "hold: no measurement")
        state = self.remembered(state, latency)
        if state.n is None:
            if waiting < config.floor:
                return state, self._decide(state, waiting, "admit all: nothing known yet")
            state = replace(state, n=waiting, nominal=state.nominal or waiting)
        n = state.n or waiting
        unit = state.unit or max(n, config.floor) / config.requests
        state = replace(state, unit=unit)
        if waiting < n / 2.0:
            return state, self._decide(state, waiting, "hold: the limit is not half used")
        wanted, reason = self.limit(state, n, unit, latency)
        state = replace(state, n=min(max(wanted, config.floor), max(waiting, n)))
        return state, self._decide(state, waiting, reason)

    def _decide(self, state: StateT, waiting: float, reason: str) -> Decision:
        if state.n is None:
            return Decision(waiting, 1.0, reason)
        scale = state.n / state.nominal if state.nominal else 1.0
        return Decision(bounded(state.n, self.limits.floor, waiting), scale, reason)
