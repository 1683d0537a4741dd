"""The Aurora step: a fixed step more drop probability while overloaded, a step less otherwise.

    p(k+1) = p(k) + step   if l > T
    p(k+1) = p(k) - step   otherwise,     p in [0, 1]

The simplest feedback there is, kept as the baseline: it over- and undershoots by a step and needs 1/step ticks for a
large burst. Described in Zhou et al., Buffer-preposed QoS Adaptation Framework, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from floodway.control.base import (
    Controller,
    Decision,
    Observation,
    State,
    clamp,
    optional_positive,
    positive,
    shed,
    within,
)


@dataclass(frozen=True, slots=True)
class AuroraConfig:
    """`step` changes the drop probability a tick; with `tick_seconds` None every measurement is a tick.

    Where measurements come at the end of ever longer batches, give `tick_seconds`: as many steps are then taken at
    once as ticks have passed, or the law could not keep up.
    """

    target_seconds: float
    step: float = 0.05
    tick_seconds: float | None = None
    floor: float = 1.0
    nominal: float | None = None

    def __post_init__(self) -> None:
        positive("aurora.target_seconds", self.target_seconds)
        positive("aurora.step", self.step)
        within("aurora.step", self.step, 0.0, 1.0)
        optional_positive("aurora.tick_seconds", self.tick_seconds)
        positive("aurora.floor", self.floor)
        optional_positive("aurora.nominal", self.nominal)


@dataclass(frozen=True, slots=True)
class AuroraState(State):
    """The drop probability in force, and when it was last changed."""

    drop_ratio: float = 0.0
    time_seconds: float | None = None


def aurora_step(drop_ratio: float, step: float, *, overloaded: bool) -> float:
    """One step up or down, kept in [0, 1].

    >>> aurora_step(0.98, 0.05, overloaded=True), aurora_step(0.5, 0.05, overloaded=False)
    (1.0, 0.45)
    """
    return clamp(drop_ratio + (step if overloaded else -step), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class AuroraController(Controller[AuroraState]):
    """Overloaded means: measured latency above the target. Holds p when there is no new measurement."""

    config: AuroraConfig
    name: ClassVar[str] = "aurora"
    signal: ClassVar[str] = "latency_seconds"

    def initial(self) -> AuroraState:
        return AuroraState()

    def update(self, state: AuroraState, observation: Observation) -> tuple[AuroraState, Decision]:
        latency = observation.latency_seconds
        reason = "hold: no measurement"
        if latency is not None:
            overloaded = latency > (observation.target_seconds or self.config.target_seconds)
            step = self.config.step * self._ticks(state, observation.time_seconds)
            ratio = aurora_step(state.drop_ratio, step, overloaded=overloaded)
            state = AuroraState(ratio, observation.time_seconds)
            reason = f"step {'up' if overloaded else 'down'} to p = {state.drop_ratio:.3f}"
        return state, shed(observation.waiting, state.drop_ratio, self.config.floor, self.config.nominal, reason)

    def _ticks(self, state: AuroraState, now: float) -> float:
        if self.config.tick_seconds is None or state.time_seconds is None:
            return 1.0
        return max(1.0, (now - state.time_seconds) / self.config.tick_seconds)
