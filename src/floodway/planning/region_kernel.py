"""The look-up in the region map as one compiled call.

NumPy needs about half a microsecond a call whatever the arrays hold, and a look-up is five calls: more than the
arithmetic they do. Compiled it is one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from floodway.planning.compiled import compiled
from floodway.planning.program import Matrix, Vector
from floodway.planning.regions import TOLERANCE


def _value(matrix: Matrix, row: int, rates: Vector) -> float:
    """matrix[row]·[r, 1]"""
    total = matrix[row, len(rates)]
    for i in range(len(rates)):
        total += matrix[row, i] * rates[i]
    return float(total)


def _feasible(rows: Matrix, start: int, end: int, rates: Vector) -> bool:
    row = start
    while row < end and value(rows, row, rates) >= -TOLERANCE:
        row += 1
    return row == end


def _locate(
    rates: Vector,
    bounds: Matrix,
    rows: Matrix,
    place: NDArray[np.int64],
    known: int,
    last: int,
    as_keeps: bool,
    flows: Vector,
) -> int:
    """The region of these rates, its flows written to `flows`; -1 if none of the `known` regions holds them.

    With `as_keeps`, flows over rates are written instead, between 0 and 1; a dry stream is kept whole.

    `bounds[i]` is s of region i; rows `place[i, 0]` to `place[i, 1]` are its checks and those up to `place[i, 2]` its
    flows, all over [r, 1]. A basis that is feasible is optimal, so the region found last is tried first, then the one
    with the least bound, then those that share it (where the optimum is degenerate).
    """
    if known == 0:
        return -1
    found = last
    if not feasible(rows, place[found, 0], place[found, 1], rates):
        least = np.inf
        for region in range(known):
            bound = value(bounds, region, rates)
            if bound < least:
                least = bound
                found = region
        if not feasible(rows, place[found, 0], place[found, 1], rates):
            found = -1
            for region in range(known):
                tied = value(bounds, region, rates) <= least * (1.0 + TOLERANCE)
                if tied and feasible(rows, place[region, 0], place[region, 1], rates):
                    found = region
                    break
            if found < 0:
                return -1
    first = place[found, 1]
    for row in range(first, place[found, 2]):
        flows[row - first] = value(rows, row, rates)
    if as_keeps:
        for i in range(len(rates)):
            flows[i] = max(flows[i], 0.0) / rates[i] if flows[i] < rates[i] else 1.0
    return found


value = compiled(_value)
feasible = compiled(_feasible)
locate = compiled(_locate)
