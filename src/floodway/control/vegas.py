"""The Vegas limit of admission control: estimate the queue from the least latency, and keep it short.

    queue  = n (1 - l_least / l)
    n(t+1) = n(t) + step   if queue < alpha
             n(t) - step   if queue > beta,      else n(t)

in requests of `unit` work, with step = log10(n / unit), alpha = 3 step and beta = 6 step. l is the latency of the last
batch, l_least the least seen; every `probe` batches it is measured anew, because a machine may have become slower.

There is no target: the law keeps latency near what it is without load. On micro-batches that is a batch of little more
than its fixed cost, so most of the work is turned away. Kept as a peer; what it shares with other limits is in
`limit.py`. The probe comes after a fixed number of batches, not a random one.

TCP Vegas (Brakmo, Peterson, 1995) as used in Netflix's concurrency-limits, after the description in its README.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from floodway.control.base import LEAST_SECONDS, optional_positive, positive
from floodway.control.limit import LimitController, LimitState

ALPHA, BETA = 3.0, 6.0


@dataclass(frozen=True, slots=True)
class VegasConfig:
    """`probe` is batches between two measurements of the least latency.

    `requests` is how many requests the first limit counts as; `nominal` is the n at which g = 1, and n's start.
    """

    probe: float = 30.0
    requests: float = 100.0
    floor: float = 1.0
    nominal: float | None = None

    def __post_init__(self) -> None:
        for key in ("probe", "requests", "floor"):
            positive(f"vegas.{key}", getattr(self, key))
        optional_positive("vegas.nominal", self.nominal)


@dataclass(frozen=True, slots=True)
class VegasState(LimitState):
    """The limit, the least latency and its age in batches."""

    least_seconds: float | None = None
    age: int = 0


def vegas_step(requests: float, least_seconds: float, latency_seconds: float) -> float:
    """By how many requests the limit changes.

    >>> vegas_step(100.0, 1.0, 1.02), vegas_step(100.0, 1.0, 1.1), vegas_step(100.0, 1.0, 2.0)
    (2.0, 0.0, -2.0)
    """
    step = max(1.0, math.log10(max(requests, 1.0)))
    queue = requests * (1.0 - least_seconds / max(latency_seconds, LEAST_SECONDS))
    return step if queue < ALPHA * step else -step if queue > BETA * step else 0.0


@dataclass(frozen=True, slots=True)
class VegasController(LimitController[VegasState]):
    """The limit from the ratio of the least latency to that of now."""

    config: VegasConfig = VegasConfig()
    name: ClassVar[str] = "vegas"

    @property
    def limits(self) -> VegasConfig:
        return self.config

    def initial(self) -> VegasState:
        return VegasState(self.config.nominal, self.config.nominal)

    def remembered(self, state: VegasState, latency: float) -> VegasState:
        if state.least_seconds is None or latency <= state.least_seconds or state.age >= self.config.probe:
            return replace(state, least_seconds=latency, age=0)
        return replace(state, age=state.age + 1)

    def limit(self, state: VegasState, n: float, unit: float, latency: float) -> tuple[float, str]:
        least = state.least_seconds or latency
        change = unit * vegas_step(n / unit, least, latency)
        return n + change, f"latency {latency:.3f} s, {least:.3f} s at the least"
