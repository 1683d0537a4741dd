"""Take out what would be late anyway, so that no CPU is spent on it (buffer-preposed paper, section 4.3).

A tuple is purged when it would end after its deadline (equation 15):

    age + f > T_d,        age = now - t_g

f is the time from now to its end. Where tuples end one after the other, f = i * ET_p(k) for the i-th tuple from the
front, counting only those retained. Where the tuples of a micro-batch end together, f is the length of the batch,
which depends on what is purged: `batch_seconds` solves for it.

The cost of a tuple is foreseen by single exponential smoothing (equation 10), in CPU-seconds:

    ET_p(k) = alpha * T_p(k-1) + (1 - alpha) * ET_p(k-1)

The paper writes T_t = t_a - t_g for the age, which forgets the time already spent waiting; see decision 0041.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from floodway.errors import InputError

DEFAULT_ALPHA = 0.1
BISECTIONS = 50


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """ET_p in seconds of CPU per tuple (or per unit of work), and its smoothing constant.

    >>> round(CostEstimate(0.010).observe(0.020).seconds, 6)
    0.011
    >>> CostEstimate(0.010).observe(None).seconds      # nothing was processed: no evidence, no change
    0.01
    """

    seconds: float
    alpha: float = DEFAULT_ALPHA

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise InputError(f"a tuple cost of {self.seconds} s", hint="Give a finite cost of at least 0 seconds")
        if not 0 < self.alpha <= 1:
            raise InputError(f"a smoothing constant of {self.alpha}", hint="Give 0 < alpha <= 1; the paper has 0.1")

    def observe(self, mean_cost_seconds: float | None) -> CostEstimate:
        """The estimate after a cycle with this mean cost per tuple; None or a senseless value leaves it alone."""
        if mean_cost_seconds is None or not math.isfinite(mean_cost_seconds) or mean_cost_seconds < 0:
            return self
        return replace(self, seconds=self.alpha * mean_cost_seconds + (1 - self.alpha) * self.seconds)


def late_before(now: float, finish_seconds: float, deadline_seconds: float) -> float:
    """Tuples generated before this time are late if they end `finish_seconds` from now.

    A tuple generated in the future (a clock that jumped back) has age 0, so it is late only where no age would do.

    >>> late_before(10.0, 0.5, 2.0), late_before(10.0, 3.0, 2.0)
    (8.5, inf)
    """
    return math.inf if finish_seconds > deadline_seconds else now + finish_seconds - deadline_seconds


def purged(
    waiting: Iterable[tuple[float, float]], *, now: float, cost_seconds: float, busy_seconds: float = 0.0
) -> list[bool]:
    """Which of the `waiting` (t_g, T_d), in service order, to purge where they end one after the other.

    `busy_seconds` is what the CPU still owes to the tuple it is at. A negative T_d is always purged.

    >>> purged([(0.0, 0.25), (0.0, 1.0), (0.9, 0.25)], now=1.0, cost_seconds=0.1)
    [True, True, False]
    """
    flags = []
    finish = busy_seconds + cost_seconds
    for generated, deadline in waiting:
        late = generated < late_before(now, finish, deadline)
        flags.append(late)
        if not late:
            finish += cost_seconds
    return flags


def batch_seconds(overhead_seconds: float, budget_seconds: float, work_seconds: Callable[[float], float]) -> float:
    """The f for which a batch takes just as long as what f leaves in it: f = overhead + min(budget, work(f)).

    `work_seconds(f)` is the CPU of what a batch of length f does not purge; it falls as f grows, so f is unique.

    >>> round(batch_seconds(0.3, 1.0, lambda f: 2.0 - f), 3)
    1.15
    """
    low, high = overhead_seconds, overhead_seconds + budget_seconds
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        length = overhead_seconds + min(budget_seconds, work_seconds(middle))
        low, high = (middle, high) if length > middle else (low, middle)
    return high
