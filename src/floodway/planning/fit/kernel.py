"""The join of `index.py` as one compiled call: the best pair of a left and a right half row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from floodway.planning.compiled import compiled
from floodway.planning.program import Matrix, Vector


def _earned(rates: Matrix, value: Vector, observed: Vector) -> Vector:
    """Sum of v_i·min(F_i, r_i) of every half row; `rates` is inputs × halves."""
    total = np.zeros(rates.shape[1])
    for i in range(len(value)):
        for half in range(len(total)):
            total[half] += value[i] * min(rates[i, half], observed[i])
    return total


def _join(
    left: Vector, right: Vector, set_of: NDArray[np.int64], members: NDArray[np.int64], starts: NDArray[np.int64]
) -> tuple[int, int]:
    """Left and right half with the largest sum; the right halves that go with a left one are its set's members."""
    best_of = np.empty(len(starts) - 1, dtype=np.int64)
    for group in range(len(best_of)):
        best = members[starts[group]]
        for at in range(starts[group] + 1, starts[group + 1]):
            if right[members[at]] > right[best]:
                best = members[at]
        best_of[group] = best
    one = 0
    most = -np.inf
    for half in range(len(left)):
        total = left[half] + right[best_of[set_of[half]]]
        if total > most:
            one = half
            most = total
    return one, best_of[set_of[one]]


earned = compiled(_earned)
join = compiled(_join)
