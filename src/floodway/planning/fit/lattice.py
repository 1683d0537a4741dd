"""All feasible combinations of sample points, input by input, without a Python loop over rows.

Every partial row carries the room it leaves on each resource; the next input may take any sample point up to
room/use, so rows that could only be thrown away are never made. A full table of one server and m inputs with K steps
each has C(K+m, m) rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from floodway.planning.program import FEASIBILITY_TOLERANCE, Matrix, Vector

Codes = NDArray[np.uint16]


def feasible_codes(points: Sequence[Vector], share: Matrix, most_rows: int) -> Codes | None:
    """Rows × inputs: which sample point each input takes, for all rows with share·rates <= 1; None if too many.

    >>> feasible_codes([np.array([0.0, 0.5, 1.0])] * 2, np.ones((1, 2)), 100).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0]]
    """
    codes = np.zeros((1, 0), dtype=np.uint16)
    room = np.full((1, len(share)), 1.0 + FEASIBILITY_TOLERANCE)
    for i, values in enumerate(points):
        use = share[:, i]
        needs = np.flatnonzero(use)
        if len(needs):
            most = (room[:, needs] / use[needs]).min(axis=1)
            counts = np.searchsorted(values, most, side="right")
        else:
            counts = np.full(len(codes), len(values))
        total = int(counts.sum())
        if total > most_rows:
            return None
        parent = np.repeat(np.arange(len(codes)), counts)
        code = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        room = room[parent] - values[code][:, None] * use
        codes = np.column_stack([codes[parent], code.astype(np.uint16)])
    return codes


def rates_of(points: Sequence[Vector], codes: Codes) -> Matrix:
    """The rates that codes stand for."""
    rates = np.empty(codes.shape)
    for i, values in enumerate(points):
        rates[:, i] = values[codes[:, i]]
    return rates
