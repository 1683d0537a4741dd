"""The gradient limit of admission control: shrink by how much the latency of now exceeds the usual one.

    gradient = clamp(tolerance l_long / l, 0.5, 1)
    n'(t+1)  = n(t) gradient + queue,             queue = sqrt(n / unit) unit
    n(t+1)   = (1 - smoothing) n(t) + smoothing n'(t+1)

l is the latency of the last batch and l_long its exponential mean over `window` batches. While latency is usual the
limit grows by the queue, so that it finds more capacity by itself; when latency rises beyond `tolerance` times the
usual one, it shrinks by that ratio, to half at most. Where the long mean is more than twice the latency, after an
overload, it falls by a twentieth each time.

There is no target: the law looks for the knee of the latency curve, which on an engine with a fixed cost a batch lies
elsewhere than where a user wants it. Kept as a peer; what it shares with other limits is in `limit.py`.

The second gradient limit of Netflix's concurrency-limits, after "Performance Under Load" (Netflix TechBlog, 2018) and
the description in its README.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from floodway.control.base import LEAST_SECONDS, clamp, optional_positive, positive, within
from floodway.control.limit import LimitController, LimitState

RECOVERY = 0.95
STEEPEST = 0.5


@dataclass(frozen=True, slots=True)
class GradientConfig:
    """`tolerance` of the latency before the limit shrinks, `smoothing` of the limit, `window` in batches.

    `requests` is how many requests the first limit counts as; `nominal` is the n at which g = 1, and n's start.
    """

    tolerance: float = 1.5
    smoothing: float = 0.2
    window: float = 600.0
    requests: float = 100.0
    floor: float = 1.0
    nominal: float | None = None

    def __post_init__(self) -> None:
        within("gradient.tolerance", self.tolerance, 1.0, 1e3)
        for key in ("smoothing", "window", "requests", "floor"):
            positive(f"gradient.{key}", getattr(self, key))
        within("gradient.smoothing", self.smoothing, 0.0, 1.0)
        optional_positive("gradient.nominal", self.nominal)


@dataclass(frozen=True, slots=True)
class GradientState(LimitState):
    """The limit, the mean latency and how many it is of."""

    usual_seconds: float = 0.0
    samples: float = 0.0


def gradient(tolerance: float, usual_seconds: float, latency_seconds: float) -> float:
    """What is left of the limit, in [1/2, 1].

    >>> gradient(1.5, 2.0, 2.5), gradient(1.5, 2.0, 4.0), gradient(1.5, 2.0, 40.0)
    (1.0, 0.75, 0.5)
    """
    return clamp(tolerance * usual_seconds / max(latency_seconds, LEAST_SECONDS), STEEPEST, 1.0)


@dataclass(frozen=True, slots=True)
class GradientController(LimitController[GradientState]):
    """The limit from the ratio of the usual latency to that of now."""

    config: GradientConfig = GradientConfig()
    name: ClassVar[str] = "gradient"

    @property
    def limits(self) -> GradientConfig:
        return self.config

    def initial(self) -> GradientState:
        return GradientState(self.config.nominal, self.config.nominal)

    def remembered(self, state: GradientState, latency: float) -> GradientState:
        samples = min(state.samples + 1.0, self.config.window)
        usual = state.usual_seconds + (latency - state.usual_seconds) / samples
        return replace(state, samples=samples, usual_seconds=usual * RECOVERY if usual > 2.0 * latency else usual)

    def limit(self, state: GradientState, n: float, unit: float, latency: float) -> tuple[float, str]:
        slope = gradient(self.config.tolerance, state.usual_seconds, latency)
        wanted = n * slope + math.sqrt(n / unit) * unit
        reason = f"gradient {slope:.2f}: latency {latency:.3f} s, usually {state.usual_seconds:.3f} s"
        return n + self.config.smoothing * (wanted - n), reason
