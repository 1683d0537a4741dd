"""A percentile as the target: the law inside steers the mean that puts the percentile there.

Tuples of a micro-batch wait for different times and end together, so their latencies lie evenly over a width W, about
the length of the batch before; batch means vary by s. With m the mean, the latency of a tuple is

    l = m + s z + W u,     z normal, u even on [-1/2, 1/2]

and its q-quantile is m + x with P(s z + W u <= x) = q. m, s and W follow the measured batches by exponential means, and
the law is given the target T m / (m + x) instead of T. In a steady state without noise W = m / 1.5 and p95 is 1.3 m: a
target "p95 < 3 s" is a mean of 2.3 s.

A latency that is far from the mean, as in a step of load, counts as one mean away: spread is what batches that
were planned alike show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar

from floodway.control.base import (
    BATCH_SHARE,
    LEAST_SECONDS,
    Decision,
    Decorator,
    Observation,
    State,
    WrappedState,
    clamp,
    within,
)

GAIN = 0.1
FARTHEST = 1.0
"""Share of the mean beyond which a batch's distance from it counts as no larger."""

LEAST_SPREAD = 0.01
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Spread(State):
    """m in seconds (None before the first batch), s^2 and W relative to m."""

    mean_seconds: float | None = None
    variance: float = 0.0
    width: float = 1.0 / BATCH_SHARE

    def ratio(self, quantile: float) -> float:
        """The quantile over the mean.

        >>> round(Spread().ratio(0.95), 2)
        1.3
        """
        return 1.0 + quantile_of_sum(quantile, max(math.sqrt(self.variance), LEAST_SPREAD), self.width)

    def after(self, latency_seconds: float, width_seconds: float | None) -> Spread:
        """With one more batch."""
        if self.mean_seconds is None:
            return replace(self, mean_seconds=latency_seconds)
        mean = max(self.mean_seconds, LEAST_SECONDS)
        away = clamp(latency_seconds / mean - 1.0, -FARTHEST, FARTHEST)
        width = self.width if width_seconds is None else min(width_seconds / max(latency_seconds, LEAST_SECONDS), 2.0)
        return Spread(
            mean_seconds=mean + GAIN * (latency_seconds - mean),
            variance=self.variance + GAIN * (away**2 - self.variance),
            width=self.width + GAIN * (width - self.width),
        )


def quantile_of_sum(quantile: float, deviation: float, width: float) -> float:
    """x with P(deviation z + width u <= x) = quantile; by halving.

    >>> round(quantile_of_sum(0.95, 1e-6, 1.0), 3), round(quantile_of_sum(0.95, 1.0, 1e-6), 3)
    (0.45, 1.645)
    """
    width = max(width, 1e-9)
    low, high = -width - 8.0 * deviation, width + 8.0 * deviation
    for _ in range(50):
        middle = (low + high) / 2.0
        below = _integral((middle + width / 2.0) / deviation) - _integral((middle - width / 2.0) / deviation)
        low, high = (middle, high) if deviation / width * below < quantile else (low, middle)
    return (low + high) / 2.0


def _integral(z: float) -> float:
    """The integral of the normal distribution function up to z."""
    return z * _NORMAL.cdf(z) + _NORMAL.pdf(z)


@dataclass(frozen=True, slots=True)
class Percentile(Decorator[Spread]):
    """A law for the mean that holds a quantile instead: the observation's target is that of the quantile."""

    quantile: float
    target_seconds: float
    name: ClassVar[str] = "percentile"
    signal: ClassVar[str] = "latency_seconds"
    prefix: ClassVar[str] = "percentile."

    def __post_init__(self) -> None:
        within("percentile.quantile", self.quantile, 0.01, 0.999)

    def own_initial(self) -> Spread:
        return Spread()

    def update(self, state: WrappedState[Spread], observation: Observation) -> tuple[WrappedState[Spread], Decision]:
        own = state.own
        if observation.latency_seconds is not None:
            own = own.after(observation.latency_seconds, observation.latency_width_seconds)
        target = (observation.target_seconds or self.target_seconds) / own.ratio(self.quantile)
        law, decision = self.law.update(state.law, replace(observation, target_seconds=target))
        reason = f"{decision.reason}; p{100.0 * self.quantile:g} is {own.ratio(self.quantile):.2f} times the mean"
        return WrappedState(law, own), replace(decision, reason=reason)
