"""The DISSP latency controller: keep n of the N waiting tuples so that the mean latency settles at T.

    n(t+1) = n(t) (1 + q (T - l) / T)

l is the mean latency of the results since the last tick, so it tells about decisions made up to T ago: the loop delay
is tau = T / tick. Such a loop is stable for 0 < q < 2 / (2 tau + 1) (Proposition 1). The paper's q = 0.1 breaks that
bound at T = 3 s and ticks of 250 ms (0.08): allowed, with a warning. Left out, q is chosen from T.

Around the law, in this order:

- *start*: before the first latency above T all that waits is admitted and n is unknown (or `nominal`, if given);
- *hold* n when there is no new measurement, and when N < n: then n limits nothing and l says nothing about it,
  neither that it could grow (wind-up) nor that it should shrink. The batch itself is capped at N, n is not;
- *bound* the relative error (T - l) / T to at least -1, so that one outlier cannot cost more than a factor 1 - q.
  This is ours, not the paper's: with it steps down are no larger than steps up;
- *floor* n at 1 tuple, as 0 would be absorbing, and *cap* it at N.

Kalyvianaki et al., Overload Management with Latency Guarantees, section 3, equation (7) and Proposition 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from floodway.control.base import (
    Controller,
    Decision,
    GainWarning,
    Observation,
    State,
    bounded,
    clamp,
    optional_positive,
    positive,
    within,
)

GAIN_FRACTION = 0.5
"""Share of the stability bound that a chosen gain takes.

For a constant delay the loop really breaks at about pi/2 times the bound, so half of it leaves a gain margin of 3 and
a phase margin of 60 degrees: quick, with little overshoot, and safe when the delay varies.
"""

SMALLEST_FACTOR = 0.25
LARGEST_FACTOR = 2.0


def stability_bound(target_seconds: float, tick_seconds: float, delay_ticks: float | None = None) -> float:
    """The gain that q must stay below: 2 / (2 tau + 1), tau = `delay_ticks` or else T / tick.

    >>> stability_bound(3.0, 0.25)
    0.08
    """
    delay = target_seconds / tick_seconds if delay_ticks is None else delay_ticks
    return 2.0 / (2.0 * delay + 1.0)


def choose_gain(target_seconds: float, tick_seconds: float, delay_ticks: float | None = None) -> float:
    """A safe gain for this target and tick: half the stability bound (see GAIN_FRACTION).

    >>> choose_gain(3.0, 0.25), choose_gain(1.0, 1.0, delay_ticks=2)
    (0.04, 0.2)
    """
    return GAIN_FRACTION * stability_bound(target_seconds, tick_seconds, delay_ticks)


def law_factor(gain: float, target_seconds: float, latency_seconds: float) -> float:
    """1 + q (T - l) / T, with the relative error bounded below by -1 and the factor kept in [1/4, 2].

    >>> law_factor(0.1, 1.0, 0.5), law_factor(0.1, 1.0, 50.0)
    (1.05, 0.9)
    """
    error = max((target_seconds - latency_seconds) / target_seconds, -1.0)
    return clamp(1.0 + gain * error, SMALLEST_FACTOR, LARGEST_FACTOR)


@dataclass(frozen=True, slots=True)
class LatencyConfig:
    """Target and tick in seconds; `gain` None chooses it; `nominal` is the n at which g = 1, and n's start.

    `floor` is the least work worth admitting: 1 when counting tuples, one tuple's cost when counting CPU-seconds.
    """

    target_seconds: float
    tick_seconds: float = 0.25
    gain: float | None = None
    delay_ticks: float | None = None
    nominal: float | None = None
    floor: float = 1.0

    def __post_init__(self) -> None:
        for key in ("target_seconds", "tick_seconds", "floor"):
            positive(f"latency.{key}", getattr(self, key))
        optional_positive("latency.gain", self.gain)
        optional_positive("latency.nominal", self.nominal)
        if self.delay_ticks is not None:
            within("latency.delay_ticks", self.delay_ticks, 0.0, 1e6)


@dataclass(frozen=True, slots=True)
class LatencyState(State):
    """n, None before the first overload; and the n at which g = 1, None until known."""

    n: float | None = None
    nominal: float | None = None


@dataclass(frozen=True, slots=True)
class LatencyController(Controller[LatencyState]):
    """n(t+1) = n(t) (1 + q (T - l) / T) with start, hold, bound, floor and cap.

    >>> controller = LatencyController(LatencyConfig(target_seconds=1.0, gain=0.1, nominal=100.0))
    >>> state, decision = controller.update(controller.initial(), Observation(0.0, 500, latency_seconds=2.0))
    >>> decision.admit, decision.capacity_scale
    (90.0, 0.9)
    """

    config: LatencyConfig
    name: ClassVar[str] = "latency"
    signal: ClassVar[str] = "latency_seconds"

    def initial(self) -> LatencyState:
        return LatencyState(self.config.nominal, self.config.nominal)

    @property
    def warnings(self) -> tuple[GainWarning, ...]:
        """One warning when the given gain breaks the stability bound at the configured target."""
        config = self.config
        bound = stability_bound(config.target_seconds, config.tick_seconds, config.delay_ticks)
        if config.gain is None or config.gain < bound:
            return ()
        message = (
            f"latency.gain {config.gain:g} is not below the stability bound {bound:.3f} at a target of "
            f"{config.target_seconds:g} s and ticks of {config.tick_seconds:g} s: latency may oscillate. "
            "Leave latency.gain out to have it chosen."
        )
        return (GainWarning("latency.gain", config.gain, bound, message),)

    def update(self, state: LatencyState, observation: Observation) -> tuple[LatencyState, Decision]:
        waiting, latency = observation.waiting, observation.latency_seconds
        target = observation.target_seconds or self.config.target_seconds
        if latency is None:
            return state, self._decide(state, waiting, "hold: no measurement")
        if state.n is None:
            if latency <= target or waiting < self.config.floor:
                return state, self._decide(state, waiting, "admit all: not overloaded yet")
            start = max(waiting * law_factor(self._gain(target), target, latency), self.config.floor)
            state = LatencyState(start, state.nominal or start)
            return state, self._decide(state, waiting, f"start at n = {start:.6g}: latency {latency:.3f} s")
        if waiting < state.n:
            return state, self._decide(state, waiting, "hold: not overloaded")
        n = bounded(state.n * law_factor(self._gain(target), target, latency), self.config.floor, waiting)
        # A floor above what waits cannot happen here: waiting >= n >= floor.
        verb = "raise" if n > state.n else "lower" if n < state.n else "keep"
        state = LatencyState(n, state.nominal or n)
        return state, self._decide(state, waiting, f"{verb} n: latency {latency:.3f} s, target {target:g} s")

    def _gain(self, target_seconds: float) -> float:
        if self.config.gain is not None:
            return self.config.gain
        return choose_gain(target_seconds, self.config.tick_seconds, self.config.delay_ticks)

    def _decide(self, state: LatencyState, waiting: float, reason: str) -> Decision:
        if state.n is None:
            return Decision(waiting, 1.0, reason)
        scale = state.n / state.nominal if state.nominal else 1.0
        return Decision(bounded(state.n, self.config.floor, waiting), scale, reason)
