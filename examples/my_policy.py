"""A policy of one's own in twenty lines: additive increase, halving on overload, as congestion control does it.

    clicks.transform(floodway.shed("clicks", target_latency="2s", controller=Halving(target_seconds=2.0)))

A controller maps (state, observation) to (next state, decision) and keeps nothing in itself; the state is numbers, so
that a restart resumes it. Everything else (measuring, dropping, accounting, modes) stays Floodway's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from floodway.control import Controller, Decision, Observation, State, bounded


@dataclass(frozen=True, slots=True)
class HalvingState(State):
    """How many tuples a batch may hold; None before the first overload."""

    n: float | None = None


@dataclass(frozen=True, slots=True)
class Halving(Controller[HalvingState]):
    """A twentieth more after every batch in time, half after one that was late."""

    target_seconds: float
    name: ClassVar[str] = "halving"
    signal: ClassVar[str] = "latency_seconds"

    def initial(self) -> HalvingState:
        """Admit all until a batch is late."""
        return HalvingState()

    def update(self, state: HalvingState, observation: Observation) -> tuple[HalvingState, Decision]:
        """The next limit from the latency of the last batch."""
        n, waiting, latency = state.n, observation.waiting, observation.latency_seconds
        late = latency is not None and latency > self.target_seconds
        if late:
            n = (n or observation.kept or waiting) / 2
        elif latency is not None and n is not None and waiting > n:
            n *= 1.05
        admit = waiting if n is None else bounded(n, 1.0, waiting)
        return HalvingState(n), Decision(admit, 1.0, "halve: late" if late else "grow")
