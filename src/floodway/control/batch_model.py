"""What a micro-batch costs, learned while running: P = a + c n, a fixed overhead and a cost per unit of work.

Least squares over (n, P) pairs with exponential forgetting, around the weighted means (n~, P~):

    c = (S_nP + L c0) / (S_nn + L),   c0 = (P~ - a) / n~,   L = W (n~ / 10)^2
    a = P~ - c n~

A job in a steady state shows the same n again and again, and forgetting would then lose the slope. The ridge
L bounds that: as long as n varies by less than about a tenth, the overhead found before stands and only the
cost follows the data, so the line always passes through the present operating point. Both stay positive: 0
<= a, 0 < c <= P~ / n~.

With nothing known a starts at 0: then c is too high, and a step up in load admits too little, never too much.

A single surprise (a garbage collection pause) is clipped to a quarter of what was expected. A second one in
the same direction is taken for a change, and the past is forgotten at once.
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
RIDGE = 0.1
LEAST_SLOPE = 1e-3


@dataclass(frozen=True, slots=True)
class BatchModel(State):
    """Weighted sums and the line they give: `overhead` a in seconds, `cost` c in seconds per unit of work.

    `cost` is None before the first batch; `surprise` is the sign of the last batch's surprise, 0 for none.
    """

    overhead: float = 0.0
    cost: float | None = None
    weight: float = 0.0
    mean_work: float = 0.0
    mean_seconds: float = 0.0
    spread: float = 0.0
    covariance: float = 0.0
    surprise: int = 0

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
        **_line(model.overhead, weight, mean_work, mean_seconds, spread, covariance),
    )


def _line(
    overhead: float, weight: float, mean_work: float, mean_seconds: float, spread: float, covariance: float
) -> dict[str, float]:
    steepest = mean_seconds / mean_work
    ridge = weight * (RIDGE * mean_work) ** 2
    believed = max(mean_seconds - overhead, 0.0) / mean_work
    slope = (covariance + ridge * believed) / (spread + ridge)
    cost = clamp(slope, LEAST_SLOPE * steepest, steepest)
    return {"cost": cost, "overhead": max(0.0, mean_seconds - cost * mean_work)}
