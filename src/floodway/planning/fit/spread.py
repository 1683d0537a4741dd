"""Sample points along each input: the four spread rules of the two papers.

    absolute   s_i = ε/(m·sel_i)                    ε in score units                 (short paper, 3.2)
    fixed      at most B points, s_i·sel_i equal     B = prod B_i, B_i = ceil(R_i/s_i) + 1   (short paper,
    3.2) percent    next = previous·(1 − ε) from R down, 0 added, no gap below ε·R/m      (long paper,
    6.2.1) uniform    s_i = ε·R_i                           ε a part of the maximum feasible rate

Rates and R in tuples/s; sel is the score per tuple/s admitted.
"""

from __future__ import annotations

import math

import numpy as np

from floodway.errors import InputError
from floodway.planning.program import Vector

_ROUND = 1e-9
"""Points that exceed R by less than this part of a step belong to the grid: 20 steps of 0.05 reach 1.0."""


def steps(spread: float, top: float) -> Vector:
    """0, s, 2s, … up to `top`.

    >>> steps(0.1, 1 / 3).tolist()
    [0.0, 0.1, 0.2, 0.30000000000000004]
    """
    if not (math.isfinite(spread) and spread > 0):
        raise InputError(f"spread {spread} is not a positive number", hint="Choose a larger error bound")
    return np.asarray(np.arange(math.floor(top / spread + _ROUND) + 1) * spread, dtype=np.float64)


def absolute_spreads(epsilon: float, selectivity: Vector) -> Vector:
    """Spread of every input for a score error of at most ε.

    >>> absolute_spreads(0.1, np.array([0.5, 1.0])).tolist()
    [0.1, 0.05]
    """
    return np.asarray(_positive(epsilon) / (len(selectivity) * selectivity))


def fixed_size_spreads(rows: int, top: Vector, selectivity: Vector) -> Vector:
    """Spreads with the same error e = s_i·sel_i on every input and at most `rows` grid points.

    prod (R_i·sel_i/e + 1) falls with e: the least e that fits is found by bisection.

    >>> fixed_size_spreads(100, np.array([1.0, 1.0]), np.array([1.0, 1.0])).round(4).tolist()
    [0.1111, 0.1111]
    """
    if rows < 2 ** len(top):
        raise InputError(
            f"{rows} rows cannot hold two points on each of {len(top)} inputs",
            hint=f"Use at least {2 ** len(top)}",
        )
    reach = top * selectivity
    low, high = 0.0, float(reach.max())
    for _ in range(100):
        middle = (low + high) / 2
        if middle <= 0.0:
            break
        # A point on each axis at least: an input whose whole reach is below e still has 0 and R.
        points = np.prod(np.ceil(np.maximum(reach / middle, 1.0) * (1 - _ROUND)) + 1)
        low, high = (middle, high) if points > rows else (low, middle)
    return np.asarray(np.minimum(high / selectivity, top))


def percent_points(epsilon: float, top: float, inputs: int) -> Vector:
    """R, R(1−ε), R(1−ε)², … down to the floor ε·R/m, and 0; in rising order.

    >>> percent_points(0.5, 1.0, 2).tolist()
    [0.0, 0.25, 0.5, 1.0]
    """
    if not 0 < epsilon < 1:
        raise InputError(f"percent error {epsilon} is outside (0, 1)", hint="Use 0.05 for five percent")
    count = math.floor(math.log(epsilon / inputs) / math.log(1 - epsilon) + _ROUND) + 1
    points = top * (1 - epsilon) ** np.arange(max(count, 1))
    return np.concatenate([[0.0], points[::-1]])


def uniform_spreads(epsilon: float, top: Vector) -> Vector:
    """Spreads of ε parts of the maximum feasible rates."""
    return _positive(epsilon) * top


def _positive(epsilon: float) -> float:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"error bound {epsilon} is not a positive number", hint="Use 0.05 for five percent")
    return epsilon
