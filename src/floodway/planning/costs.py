"""What one tuple costs each operator, from CPU time that was only measured in sums.

Operators that Spark fuses into one stage cannot be told apart by a clock. Two things can: calibration of each alone
(`slope`: CPU against the number of tuples, so that what a job costs anyway drops out), and regression over the
micro-batches of a running node (`CostRefiner`). For batch b with n_bi tuples at operator i and y_b CPU-seconds in
all, it minimises

    Σ_b λ^age ((y_b − c_0 − Σ_i n_bi c_i) / s_b)²  +  Σ_i ((c_i − p_i) / (τ p_i))²      subject to c ≥ 0

with p the calibrated costs (the prior), τ their relative spread, s_b the noise of a measurement (the clock ticks of
/proc, and a share of the batch's CPU), λ the forgetting a batch, and c_0 what every batch costs whatever it holds. In
directions in which the batches do not differ (two operators that always see the same tuples) the second term decides:
what was calibrated keeps its proportions, and the sum follows the measurement.

The non-negative least squares problem is solved by an active set on the normal equations: C. L. Lawson, R. J. Hanson,
"Solving Least Squares Problems", 1974, chapter 23; on the Gram matrix as R. Bro, S. de Jong, "A fast
non-negativity-constrained least squares algorithm", J. Chemometrics 11, 1997.

>>> from random import Random
>>> rng = Random(7)
>>> refiner = CostRefiner({"parse": 1e-3, "join": 1e-3}, warmup_batches=0)
>>> for _ in range(50):
...     counts = {"parse": rng.randint(500, 1500), "join": rng.randint(100, 1000)}
...     refiner.observe(counts, 0.05 + 2e-3 * counts["parse"] + 5e-4 * counts["join"])
>>> {name: round(cost, 4) for name, cost in refiner.costs().items()}
{'parse': 0.002, 'join': 0.0005}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError

LEAST_COST = 1e-6
"""CPU-seconds a tuple: the scale on which a prior of 0 may move; what calibration can overlook is below it."""

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Beliefs:
    """How far to trust what: `prior_spread` is τ, noise is `noise_seconds` plus `noise_share` of a batch's CPU.

    `forgetting` is λ: 0.98 lets a batch count half after 34 others.
    """

    prior_spread: float = 1.0
    noise_seconds: float = 0.02
    noise_share: float = 0.05
    forgetting: float = 0.98
    overhead_seconds: float = 0.05

    def __post_init__(self) -> None:
        positive = (self.prior_spread, self.noise_seconds, self.overhead_seconds)
        if not all(value > 0 and math.isfinite(value) for value in positive) or not self.noise_share >= 0:
            raise InputError(f"{self} has a spread or noise that is not above 0", hint="Use positive numbers")
        if not 0 < self.forgetting <= 1:
            raise InputError(f"forgetting {self.forgetting} is not in (0, 1]", hint="Use 0.98, or 1 to forget nothing")


class CostRefiner:
    """Refines calibrated costs (CPU-seconds per input tuple) while a node runs.

    The first `warmup_batches` teach nothing: interpreted code, workers that start and plans that are compiled make
    them dear for reasons that never come back.
    """

    def __init__(self, prior: Mapping[str, float], *, beliefs: Beliefs | None = None, warmup_batches: int = 2) -> None:
        wrong = [name for name, cost in prior.items() if not (math.isfinite(cost) and cost >= 0)]
        if wrong:
            raise InputError(f"cost of {wrong[0]!r} is {prior[wrong[0]]}", hint="Costs are finite and at least 0")
        self._beliefs = beliefs or Beliefs()
        self._names = tuple(prior)
        overhead = self._beliefs.overhead_seconds
        self._prior: Vector = np.array([*prior.values(), overhead], dtype=np.float64)
        # All unknowns in units of their own prior: the problem is then well scaled whatever the operators cost.
        self._unit: Vector = np.maximum(self._prior, LEAST_COST)
        size = len(self._unit)
        self._gram: Vector = np.zeros((size, size))
        self._target: Vector = np.zeros(size)
        self._costs: Vector = self._prior.copy()
        self._warmup = warmup_batches
        self.batches = 0

    def observe(self, counts: Mapping[str, float], cpu_seconds: float) -> None:
        """Learn from one micro-batch: tuples that entered each operator (0 where absent), CPU of all of them together.

        A measurement that cannot be one (negative, not finite: a worker died between two readings) teaches nothing.
        """
        unknown = sorted(set(counts) - set(self._names))
        if unknown:
            raise InputError(f"no operator {unknown[0]!r} to refine", hint=f"Known: {', '.join(self._names)}")
        numbers = np.array([*(float(counts.get(name, 0.0)) for name in self._names), 1.0])
        measured = np.append(numbers, cpu_seconds)
        if not (np.all(np.isfinite(measured)) and np.all(measured >= 0)):
            return
        if self._warmup > 0:
            self._warmup -= 1
            return
        # The noise by what was expected, not by what came: else batches that chanced to be cheap would weigh more.
        noise = self._beliefs.noise_seconds + self._beliefs.noise_share * float(numbers @ self._costs)
        row = numbers * self._unit / noise
        self._gram = self._beliefs.forgetting * self._gram + np.outer(row, row)
        self._target = self._beliefs.forgetting * self._target + row * (cpu_seconds / noise)
        self.batches += 1
        trust = 1.0 / self._beliefs.prior_spread**2
        gram = self._gram + trust * np.eye(len(row))
        self._costs = self._unit * nnls(gram, self._target + trust * self._prior / self._unit)

    def costs(self) -> dict[str, float]:
        """CPU-seconds per input tuple as known now; the prior before the first batch."""
        return {name: float(cost) for name, cost in zip(self._names, self._costs, strict=False)}

    @property
    def overhead_seconds(self) -> float:
        """c_0: CPU-seconds a batch, whatever it holds."""
        return float(self._costs[-1])


def nnls(gram: Vector, target: Vector) -> Vector:
    """The x ≥ 0 that minimises ½ xᵀGx − tᵀx, G symmetric and positive definite.

    >>> nnls(np.eye(2), np.array([3.0, -1.0])).tolist()
    [3.0, 0.0]
    """
    size = len(target)
    x = np.zeros(size)
    free = np.zeros(size, dtype=bool)
    tolerance = 1e-12 * max(1.0, float(np.max(np.abs(target), initial=0.0)))
    for _ in range(10 * size + 10):
        gradient = target - gram @ x
        gradient[free] = -np.inf
        best = int(np.argmax(gradient))
        if gradient[best] <= tolerance:
            break
        free[best] = True
        x = _descend(gram, target, x, free)
    return x


def _descend(gram: Vector, target: Vector, x: Vector, free: NDArray[np.bool_]) -> Vector:
    """Solve on the free coordinates; those that would turn negative on the way are bound at 0 again."""
    while free.any():
        solved = np.zeros_like(x)
        solved[free] = np.linalg.solve(gram[np.ix_(free, free)], target[free])
        negative = free & (solved <= 0)
        if not negative.any():
            return solved
        reach = float(np.min(x[negative] / np.maximum(x[negative] - solved[negative], 1e-300)))
        x = x + reach * (solved - x)
        blocked = negative & (x <= 1e-15 * float(np.max(np.abs(x), initial=1.0)))
        # The first to reach 0 is bound even if rounding left it a hair above: each round must bind one.
        blocked |= negative & (x == np.min(x[negative]))
        free[blocked] = False
        x = np.where(free, x, 0.0)
    return np.zeros_like(x)


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Seconds a tuple by a straight line through (tuples, seconds): what a job costs anyway is in its intercept.

    >>> round(slope([1000, 2000, 4000], [1.5, 2.5, 4.5]), 6)
    0.001
    """
    if len(set(sizes)) < 2:
        raise InputError(f"sizes {list(sizes)} make no line", hint="Measure at two sizes at least")
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))
