"""What a micro-batch costs, learned while running: P = a + c n, a fixed overhead and a cost per unit of work.

Least squares over (n, P) pairs with exponential forgetting, around the weighted means (n~, P~):

    c = (w S_nP / S_nn + (1 - w) c0),   c0 = (P~ - a) / n~
    a = P~ - c n~

w, the trust in the measured slope S_nP / S_nn, is 0 while n varies by less than a sixth of its mean (V is the
relative variance of n) and rises towards 1 as it varies more: w = 1 - V0 / V above V0 = 1/36. A job in a steady state
shows the same n again and again; forgetting would then lose the slope, and what little n varies is the controller's
own answer to noise in P, which tilts the line. So the overhead found before stands, only the cost follows the data,
and the line always passes through the present operating point. Both stay positive: 0 <= a, 0 < c <= P~ / n~.

Batches that are nearly all overhead say nothing about c either; there a guess of it, if the caller gives one, holds.
Without it a starving job could not find out that work is cheap.

With nothing known a starts at 0: then c is too high, and a step up in load admits too little, never too much.

A single surprise (a garbage collection pause) is clipped to a quarter of what was expected. A second one in the same
direction is taken for a change, and the past is forgotten at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from floodway.control.base import State, clamp

FORGETTING = 0.8
"""Weight of the past at each batch: about five batches count."""

FORGET_AT_ONCE = 0.1
SURPRISE = 0.25
NEARBY = 0.3
LEAST_VARIATION = 1.0 / 36.0
LEAST_SLOPE = 0.05


@dataclass(frozen=True, slots=True)
class BatchModel(State):
    """Weighted sums and the line they give: `overhead` a in seconds, `cost` c in seconds per unit of work.

    `cost` is None before the first batch; `surprise` is the sign of the last batch's surprise, 0 for none; `trust`
    the greatest trust w that any slope deserved so far.
    """

    overhead: float = 0.0
    cost: float | None = None
    weight: float = 0.0
    mean_work: float = 0.0
    mean_seconds: float = 0.0
    spread: float = 0.0
    covariance: float = 0.0
    surprise: int = 0
    trust: float = 0.0

    @property
    def variation(self) -> float:
        """V: the relative variance of n."""
        return self.spread / self.weight / self.mean_work**2 if self.weight > 0.0 and self.mean_work > 0.0 else 0.0

    def seconds(self, work: float) -> float | None:
        """The expected duration of a batch with this much work, None before the first batch."""
        return None if self.cost is None else self.overhead + self.cost * work

    def work(self, seconds: float) -> float | None:
        """The work that fills a batch of this duration (0 below the overhead), None before any batch."""
        return None if self.cost is None else max(0.0, (seconds - self.overhead) / self.cost)


ModelT = TypeVar("ModelT", bound=BatchModel)


def learn(model: ModelT, work: float, seconds: float) -> ModelT:
    """The model after one more batch that did `work` in `seconds`; batches without work say nothing.

    >>> model = BatchModel()
    >>> for n in (100.0, 300.0, 200.0, 100.0, 300.0):
    ...     model = learn(model, n, 0.5 + 0.01 * n)
    >>> round(model.overhead, 1), round(model.cost or 0, 3)
    (0.5, 0.01)
    """
    if work <= 0.0 or seconds <= 0.0:
        return model
    expected = model.seconds(work)
    decay, surprise = FORGETTING, 0
    if expected is not None and abs(work - model.mean_work) <= NEARBY * model.mean_work:
        limit = SURPRISE * expected
        if abs(seconds - expected) > limit:
            surprise = 1 if seconds > expected else -1
            if surprise == model.surprise:
                decay = FORGET_AT_ONCE
            else:
                seconds = expected + surprise * limit
    past = decay * model.weight
    weight = past + 1.0
    step_work, step_seconds = work - model.mean_work, seconds - model.mean_seconds
    mean_work = model.mean_work + step_work / weight
    mean_seconds = model.mean_seconds + step_seconds / weight
    # Weighted sums about the moving mean; past / weight is 0 for the first batch, which has no spread.
    spread = decay * model.spread + past / weight * step_work * step_work
    covariance = decay * model.covariance + past / weight * step_work * step_seconds
    return replace(
        model,
        weight=weight,
        mean_work=mean_work,
        mean_seconds=mean_seconds,
        spread=spread,
        covariance=covariance,
        surprise=surprise,
        **_line(model, weight, mean_work, mean_seconds, spread, covariance),
    )


def _line(
    model: BatchModel, weight: float, mean_work: float, mean_seconds: float, spread: float, covariance: float
) -> dict[str, float]:
    steepest = mean_seconds / mean_work
    believed = max(mean_seconds - model.overhead, 0.0) / mean_work
    variation = spread / weight / mean_work**2
    trust = max(0.0, 1.0 - LEAST_VARIATION / variation) if variation > 0.0 else 0.0
    slope = trust * covariance / spread + (1.0 - trust) * believed if trust > 0.0 else believed
    cost = clamp(slope, LEAST_SLOPE * steepest, steepest)
    return {
        "cost": cost,
        "overhead": max(0.0, mean_seconds - cost * mean_work),
        "trust": max(model.trust, trust),
    }
