"""RED': shed early and at random, in proportion to the smoothed queue length.

    q~ = (1 - w) q~ + w q
    p  = 0                                   for q~ < min
    p  = max_p (q~ - min) / (max - min)      for min <= q~ <= max
    p  = 1                                   for q~ > max

The jump from max_p to 1 is the paper's. Zhou et al., Buffer-preposed QoS Adaptation Framework, section 4.2, equations
(1) and (2), after Floyd and Jacobson's random early detection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from floodway.control.base import (
    Controller,
    Decision,
    Observation,
    State,
    optional_positive,
    positive,
    shed,
    within,
)
from floodway.errors import InputError


@dataclass(frozen=True, slots=True)
class RedConfig:
    """Thresholds in tuples (or any unit of work) of smoothed queue length."""

    weight: float = 0.15
    min_threshold: float = 30.0
    max_threshold: float = 120.0
    max_ratio: float = 0.1
    floor: float = 1.0
    nominal: float | None = None

    def __post_init__(self) -> None:
        within("red.weight", self.weight, 0.0, 1.0)
        within("red.max_ratio", self.max_ratio, 0.0, 1.0)
        within("red.min_threshold", self.min_threshold, 0.0, 1e18)
        positive("red.max_threshold", self.max_threshold)
        if self.max_threshold <= self.min_threshold:
            raise InputError(
                f"red.max_threshold ({self.max_threshold:g}) must be above red.min_threshold ({self.min_threshold:g})",
                hint="Raise red.max_threshold or lower red.min_threshold.",
            )
        positive("red.floor", self.floor)
        optional_positive("red.nominal", self.nominal)


@dataclass(frozen=True, slots=True)
class RedState(State):
    """The smoothed queue length, in units of work."""

    average: float = 0.0


def red_step(config: RedConfig, state: RedState, *, queue: float) -> RedState:
    """Smooth in the queue length seen now (equation 1)."""
    return RedState((1.0 - config.weight) * state.average + config.weight * queue)


def red_drop_ratio(config: RedConfig, state: RedState) -> float:
    """Share of arrivals to shed at the smoothed length (equation 2).

    >>> red_drop_ratio(RedConfig(), RedState(75.0))
    0.05
    """
    if state.average < config.min_threshold:
        return 0.0
    if state.average > config.max_threshold:
        return 1.0
    return config.max_ratio * (state.average - config.min_threshold) / (config.max_threshold - config.min_threshold)


@dataclass(frozen=True, slots=True)
class RedController(Controller[RedState]):
    """The law as a controller; the queue length is always known, so it never has to hold."""

    config: RedConfig = RedConfig()
    name: ClassVar[str] = "red"
    signal: ClassVar[str] = "waiting"

    def initial(self) -> RedState:
        return RedState()

    def update(self, state: RedState, observation: Observation) -> tuple[RedState, Decision]:
        state = red_step(self.config, state, queue=observation.queue)
        ratio = red_drop_ratio(self.config, state)
        reason = f"shed {ratio:.3f} at smoothed queue {state.average:.1f}"
        return state, shed(observation.waiting, ratio, self.config.floor, self.config.nominal, reason)
