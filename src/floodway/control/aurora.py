"""The Aurora step: a fixed step more drop probability while overloaded, a step less otherwise.

    p(k+1) = p(k) + step   if l > T
    p(k+1) = p(k) - step   otherwise,     p in [0, 1]

The simplest feedback there is, kept as the baseline: it over- and undershoots by a step and needs 1/step
ticks for a large burst. Described in Zhou et al., Buffer-preposed QoS Adaptation Framework, section 1.
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
    """`step` is the change of the drop probability a tick."""

    target_seconds: float
    step: float = 0.05
    floor: float = 1.0
    nominal: float | None = None

    def __post_init__(self) -> None:
        positive("aurora.target_seconds", self.target_seconds)
        positive("aurora.step", self.step)
        within("aurora.step", self.step, 0.0, 1.0)
        positive("aurora.floor", self.floor)
        optional_positive("aurora.nominal", self.nominal)


@dataclass(frozen=True, slots=True)
class AuroraState(State):
    """The drop probability in force."""

    drop_ratio: float = 0.0


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
            state = AuroraState(aurora_step(state.drop_ratio, self.config.step, overloaded=overloaded))
            reason = f"step {'up' if overloaded else 'down'} to p = {state.drop_ratio:.3f}"
        return state, shed(
            observation.waiting, state.drop_ratio, self.config.floor, self.config.nominal, reason
        )
