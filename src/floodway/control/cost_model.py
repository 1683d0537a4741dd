"""What a micro-batch costs, learned while running: P = a + s N + c n.

a is a fixed overhead, s the cost of every tuple that is offered (read, hashed, counted) and c what a tuple that is kept
costs on top of it. A steady job shows the same N and n again and again, and only their sum is measured; what can still
be learnt then is how the three costs change together. So the model is a Kalman filter over relative changes of the
three, with the shares of a batch as its row:

    w = (a, s N, c n) / P^,   e = P / P^ - 1,   S = w' V w + R,   K = V w / S
    (a, s, c) *= 1 + K e,     V -= K K' S

Between two batches V grows along (1, 1, 1): a compiler that warms up and a busy machine change all costs by one
factor, by much at first and by little later. It hardly grows in other directions. In a steady state an error moves
a, s and c together, then, and what was learnt about their ratios while the load varied stays. Shares have no unit, so
work may be counted in anything. R is what the errors show beyond w' V w.

*Start.* The first batch is split by a prior: a is the given overhead or else 0.3 of the batch, 0.3 s at most; s is
0.07 of c. Until V has shrunk errors count nearly in full, so a slow first batch is corrected by the second.

*Outliers.* An error beyond 2.5 standard deviations (a garbage collection pause) is cut to that. A second one of the
same sign in a row is a change: V grows along (1, 1, 1), and it counts nearly in full.

The cost model of two terms, l = N c_s + n c_p: Kalyvianaki et al., Overload Management with Latency Guarantees,
section 3; the overhead and the filter are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

from floodway.control.base import LEAST_SECONDS, LEAST_WORK, Forecast, State, clamp

NOISE = 0.1
"""First guess of the relative standard deviation of a batch's duration, sqrt(R)."""

NOISE_RANGE = (0.03, 0.3)
NOISE_GAIN = 0.1
DRIFT = (0.1, 0.02)
"""Standard deviation of a common change of all costs from one batch to the next, relative: at first, and later."""

DRIFT_DECAY = 0.95
RATIO_DRIFT = 0.002
"""Standard deviation of a change of one cost by itself from one batch to the next, relative."""

CHANGE = 0.5
"""Standard deviation of a common change that has shown twice."""

OUTLIER = 2.5
OVERHEAD_SHARE = 0.3
OVERHEAD_SECONDS = 0.3
OFFERED_RATIO = 0.07
OFFERED_RANGE = (0.001, 2.0)
"""Bounds of s / c: where a dropped tuple costs more than twice what a kept one costs on top, shedding is of no use."""

PRIOR = (1.0, 0.7, 0.5)
"""Relative standard deviations of a, s and c before the first batch."""

MOST_VARIANCE = 9.0
LEAST_FACTOR = 0.1
"""What one batch may leave of a cost: none becomes 0 or negative."""

KNOWN = 0.25
"""Relative standard deviation of an expected duration below which it counts as known."""

Vector = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class CostModel(State):
    """a, s and c (`cost` is None before the first batch), V, the covariance of their relative errors, and R.

    `overhead` in seconds, `cost` and `offered_cost` in seconds per unit of work, `noise` is R, `drift` the deviation of
    the next common change. `surprise` is the sign of the last batch's outlier, 0 for none.
    """

    overhead: float = 0.0
    cost: float | None = None
    offered_cost: float = 0.0
    var_a: float = PRIOR[0] ** 2
    var_s: float = PRIOR[1] ** 2
    var_c: float = PRIOR[2] ** 2
    cov_as: float = 0.0
    cov_ac: float = 0.0
    cov_sc: float = 0.0
    noise: float = NOISE**2
    drift: float = DRIFT[0]
    surprise: int = 0

    def expected(self, work: float, offered: float | None = None) -> float | None:
        """The expected duration of a batch in seconds, None before the first one."""
        if self.cost is None:
            return None
        return self.overhead + self.offered_cost * (work if offered is None else offered) + self.cost * work

    def knows(self, work: float, offered: float | None = None) -> bool:
        """Whether batches so far tell what one of this work takes."""
        shares = self._shares(work, work if offered is None else offered)
        return self.cost is not None and _dot(shares, self._spread(shares)) <= KNOWN**2

    def model_forecast(self, fits: float | None = None) -> Forecast | None:
        """The model as a forecast, None before the first batch."""
        return None if self.cost is None else Forecast(self.overhead, self.cost, self.offered_cost, fits)

    def _shares(self, work: float, offered: float) -> Vector:
        """w."""
        parts = self.overhead, self.offered_cost * offered, (self.cost or 0.0) * work
        total = max(sum(parts), LEAST_SECONDS)
        return parts[0] / total, parts[1] / total, parts[2] / total

    def _spread(self, shares: Vector) -> Vector:
        """V w."""
        a, s, c = shares
        return (
            self.var_a * a + self.cov_as * s + self.cov_ac * c,
            self.cov_as * a + self.var_s * s + self.cov_sc * c,
            self.cov_ac * a + self.cov_sc * s + self.var_c * c,
        )


ModelT = TypeVar("ModelT", bound=CostModel)


def learn(
    model: ModelT, work: float, seconds: float, offered: float | None = None, cost_guess: float | None = None
) -> ModelT:
    """The model after one more batch that kept `work` of what it was offered; an empty one tells nothing.

    `cost_guess` is a guess of c for the first batch: where it explains only a part of that, the rest is overhead.

    >>> model = CostModel()
    >>> for n in (100.0, 300.0, 200.0, 100.0, 300.0, 200.0, 400.0):
    ...     model = learn(model, n, 0.5 + 0.01 * n)
    >>> round(model.overhead, 1), round(model.expected(1000.0) or 0.0)
    (0.4, 11)
    """
    waiting = work if offered is None else max(work, offered)
    if waiting < LEAST_WORK or seconds < LEAST_SECONDS:
        return model
    if model.cost is None:
        # The split is a guess, the sum is measured: the update below, with no error, says so in V.
        model = _first(model, work, seconds, waiting, cost_guess)
    error = seconds / max(model.expected(work, waiting) or 0.0, LEAST_SECONDS) - 1.0
    shares = model._shares(work, waiting)
    model, error = _outlier(_drifted(model, model.drift), shares, error)
    return _bounded(_updated(model, shares, error))


def _first(model: ModelT, work: float, seconds: float, offered: float, cost_guess: float | None) -> ModelT:
    """The first batch, split by the prior; a given overhead may explain nine tenths of it at most."""
    overhead = clamp(model.overhead, min(OVERHEAD_SHARE * seconds, OVERHEAD_SECONDS), 0.9 * seconds)
    units = work + OFFERED_RATIO * offered
    if cost_guess is not None:
        overhead = max(overhead, seconds - cost_guess * units)
    cost = (seconds - overhead) / units
    return replace(model, overhead=overhead, cost=cost, offered_cost=OFFERED_RATIO * cost)


def _drifted(model: ModelT, common: float) -> ModelT:
    """V grows along (1, 1, 1), and a little everywhere."""
    own, joint = RATIO_DRIFT**2, common**2
    return replace(
        model,
        var_a=model.var_a + joint + own,
        var_s=model.var_s + joint + own,
        var_c=model.var_c + joint + own,
        cov_as=model.cov_as + joint,
        cov_ac=model.cov_ac + joint,
        cov_sc=model.cov_sc + joint,
    )


def _outlier(model: ModelT, shares: Vector, error: float) -> tuple[ModelT, float]:
    limit = OUTLIER * math.sqrt(max(0.0, _dot(shares, model._spread(shares))) + model.noise)
    if abs(error) <= limit:
        return replace(model, surprise=0), error
    sign = 1 if error > 0.0 else -1
    if sign == model.surprise:
        return _drifted(model, CHANGE), error
    return replace(model, surprise=sign), sign * limit


def _updated(model: ModelT, shares: Vector, error: float) -> ModelT:
    """The filter's step. V is relative to the costs, so it is scaled by what they changed."""
    spread = model._spread(shares)
    known = max(0.0, _dot(shares, spread))
    variance = known + model.noise
    noise = model.noise + NOISE_GAIN * (max(0.0, error**2 - known) - model.noise)
    a, s, c = (max(1.0 + part / variance * error, LEAST_FACTOR) for part in spread)
    return replace(
        model,
        overhead=model.overhead * a,
        offered_cost=model.offered_cost * s,
        cost=(model.cost or 0.0) * c,
        var_a=(model.var_a - spread[0] ** 2 / variance) / (a * a),
        var_s=(model.var_s - spread[1] ** 2 / variance) / (s * s),
        var_c=(model.var_c - spread[2] ** 2 / variance) / (c * c),
        cov_as=(model.cov_as - spread[0] * spread[1] / variance) / (a * s),
        cov_ac=(model.cov_ac - spread[0] * spread[2] / variance) / (a * c),
        cov_sc=(model.cov_sc - spread[1] * spread[2] / variance) / (s * c),
        noise=clamp(noise, NOISE_RANGE[0] ** 2, NOISE_RANGE[1] ** 2),
        drift=DRIFT[1] + DRIFT_DECAY * (model.drift - DRIFT[1]),
    )


def _bounded(model: ModelT) -> ModelT:
    """s / c within its range, and no relative variance above 9: rows and columns are scaled, so V stays one."""
    cost = model.cost or 0.0
    a, s, c = (math.sqrt(min(1.0, MOST_VARIANCE / max(v, LEAST_WORK))) for v in (model.var_a, model.var_s, model.var_c))
    return replace(
        model,
        offered_cost=clamp(model.offered_cost, OFFERED_RANGE[0] * cost, OFFERED_RANGE[1] * cost),
        var_a=model.var_a * a * a,
        var_s=model.var_s * s * s,
        var_c=model.var_c * c * c,
        cov_as=model.cov_as * a * s,
        cov_ac=model.cov_ac * a * c,
        cov_sc=model.cov_sc * s * c,
    )


def _dot(left: Vector, right: Vector) -> float:
    return left[0] * right[0] + left[1] * right[1] + left[2] * right[2]
