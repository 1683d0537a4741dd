"""Max-min fair shares by linear programs, one per level: raise the least share, fix who cannot rise, repeat."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import linprog


def max_min_shares(budget: float, counts: Mapping[int, float], weights: Mapping[int, float]) -> dict[int, float]:
    """What each key gets of the budget, in tuples; a key without a weight has 1."""
    fixed: dict[int, float] = {}
    while len(fixed) < len(counts):
        free = [key for key in counts if key not in fixed]
        # Variables: shares of the free keys, then the level t; maximise t with share >= w t, share <= count.
        above = np.hstack([-np.eye(len(free)), np.array([[weights.get(key, 1.0)] for key in free])])
        total = np.array([[1.0] * len(free) + [0.0]])
        solved = linprog(
            [0.0] * len(free) + [-1.0],
            A_ub=np.vstack([above, total]),
            b_ub=[0.0] * len(free) + [max(0.0, budget - sum(fixed.values()))],
            bounds=[(0.0, counts[key]) for key in free] + [(0.0, None)],
        )
        level = solved.x[-1]
        stuck = [key for key in free if counts[key] <= level * weights.get(key, 1.0) * (1 + 1e-9)]
        if not stuck:
            return fixed | {key: level * weights.get(key, 1.0) for key in free}
        fixed |= {key: counts[key] for key in stuck}
    return fixed
