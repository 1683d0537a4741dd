"""Fair shares against a linear program, and what holds for any counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from floodway.errors import InputError
from floodway.planning.shares import fair_shares

COUNTS = st.dictionaries(st.integers(0, 50), st.floats(0.5, 1e4), min_size=1, max_size=12)


def lexicographic(budget: float, counts: dict[int, float], weights: dict[int, float]) -> dict[int, float]:
    """Max-min by a linear program per level: raise the least share per weight, fix who cannot rise, repeat."""
    keys = list(counts)
    fixed: dict[int, float] = {}
    while len(fixed) < len(keys):
        free = [key for key in keys if key not in fixed]
        # Variables: shares of the free keys, then the level t; maximise t with share >= w t, share <= count.
        n = len(free)
        above = np.hstack([-np.eye(n), np.array([[weights.get(key, 1.0)] for key in free])])
        total = np.array([[1.0] * n + [0.0]])
        solved = linprog(
            [0.0] * n + [-1.0],
            A_ub=np.vstack([above, total]),
            b_ub=[0.0] * n + [max(0.0, budget - sum(fixed.values()))],
            bounds=[(0.0, counts[key]) for key in free] + [(0.0, None)],
        )
        level = solved.x[-1]
        stuck = [key for key in free if counts[key] <= level * weights.get(key, 1.0) * (1 + 1e-9)]
        if not stuck:
            return fixed | {key: level * weights.get(key, 1.0) for key in free}
        fixed |= {key: counts[key] for key in stuck}
    return fixed


@given(COUNTS, st.floats(0.05, 1.0), st.dictionaries(st.integers(0, 50), st.floats(0.2, 5.0), max_size=6))
def test_shares_are_those_of_the_linear_program(
    counts: dict[int, float], part: float, weights: dict[int, float]
) -> None:
    budget = part * sum(counts.values())
    found = fair_shares(budget, counts, weights=weights)
    expected = lexicographic(budget, counts, weights)
    for key, count in counts.items():
        assert found.keep(key) * count == pytest.approx(expected[key], rel=1e-6, abs=1e-6)


@given(COUNTS, st.floats(0.0, 1e4), st.floats(0.0, 1e5))
def test_the_budget_is_used_and_not_exceeded(counts: dict[int, float], others: float, budget: float) -> None:
    found = fair_shares(budget, counts, others=others, largest_other=min(counts.values()))
    kept = sum(found.keep(key) * count for key, count in counts.items()) + found.others * others
    assert kept == pytest.approx(min(budget, sum(counts.values()) + others), rel=1e-9, abs=1e-6)
    assert all(0.0 <= keep <= 1.0 for keep in [*found.keeps.values(), found.others])


def test_one_noisy_key_of_a_hundred_pays_alone() -> None:
    counts = {0: 9000.0} | dict.fromkeys(range(1, 100), 1000.0 / 99)
    found = fair_shares(10_000 / 3, counts)
    assert all(found.keep(key) == 1.0 for key in range(1, 100))
    assert found.keep(0) == pytest.approx((10_000 / 3 - 1000) / 9000)


@pytest.mark.parametrize("budget", [-1.0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(budget: float) -> None:
    with pytest.raises(InputError, match="cannot be shared"):
        fair_shares(budget, {"a": 1.0})


def test_a_weight_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="above 0"):
        fair_shares(1.0, {"a": 2.0}, weights={"a": 0.0})
