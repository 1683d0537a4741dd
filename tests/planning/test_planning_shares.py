"""Fair shares against a linear program, and what holds for any counts; heavy keys against an exact count."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.errors import InputError
from floodway.planning.shares import KeyLoads, fair_shares
from tests.oracles.max_min import max_min_shares

COUNTS = st.dictionaries(st.integers(0, 50), st.floats(0.5, 1e4), min_size=1, max_size=12)
WEIGHTS = st.dictionaries(st.integers(0, 50), st.floats(0.2, 5.0), max_size=6)


@given(COUNTS, st.floats(0.05, 1.0), WEIGHTS)
def test_shares_are_those_of_the_linear_program(
    counts: dict[int, float], part: float, weights: dict[int, float]
) -> None:
    budget = part * sum(counts.values())
    found = fair_shares(budget, counts, weights=weights)
    expected = max_min_shares(budget, counts, weights)
    for key, count in counts.items():
        assert found.keeps[key] * count == pytest.approx(expected[key], rel=1e-6, abs=1e-6)


@given(COUNTS, st.floats(0.0, 1e4), st.floats(0.0, 1e5), st.floats(0.0, 1e3), WEIGHTS)
def test_the_budget_is_used_and_not_exceeded(
    counts: dict[int, float], others: float, budget: float, largest: float, weights: dict[int, float]
) -> None:
    found = fair_shares(budget, counts, others=others, largest_other=largest, weights=weights)
    kept = sum(found.keeps[key] * count for key, count in counts.items()) + found.others * others
    # With keys that are not told apart a weight may leave heavy keys less than there is.
    assert kept <= min(budget, sum(counts.values()) + others) * (1 + 1e-9) + 1e-6
    if not weights:
        assert kept == pytest.approx(min(budget, sum(counts.values()) + others), rel=1e-9, abs=1e-6)
    assert all(0.0 <= keep <= 1.0 for keep in [*found.keeps.values(), found.others])


@given(st.integers(1, 400), st.floats(0.01, 0.99))
def test_keys_that_are_not_told_apart_lose_less_than_a_noisy_one(keys: int, part: float) -> None:
    found = fair_shares(part * 1000.0, {0: 900.0}, others=100.0, largest_other=100.0 / keys)
    assert found.others >= found.keeps[0] * (1 - 1e-9)
    if found.others < 1.0:
        assert found.keeps[0] * 900.0 <= 100.0 / keys * (1 + 1e-9) or found.keeps[0] == pytest.approx(part)


def test_one_noisy_key_of_a_hundred_pays_alone() -> None:
    counts = {0: 9000.0} | dict.fromkeys(range(1, 100), 1000.0 / 99)
    found = fair_shares(10_000 / 3, counts)
    assert all(found.keeps[key] == 1.0 for key in range(1, 100))
    assert found.keeps[0] == pytest.approx((10_000 / 3 - 1000) / 9000)


@pytest.mark.parametrize("budget", [-1.0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(budget: float) -> None:
    with pytest.raises(InputError, match="cannot be shared"):
        fair_shares(budget, {"a": 1.0})


def points_of(keys: list[int], levels: int) -> list[int]:
    """What a quantile summary without error says."""
    ordered = sorted(keys)
    return [ordered[int((i + 0.5) / levels * len(ordered))] for i in range(levels)]


@given(st.integers(0, 2**32), st.integers(2, 60))
def test_every_key_above_the_limit_is_found_and_then_counted(seed: int, most: int) -> None:
    random.seed(seed)
    sizes = {random.randrange(2**53): random.randrange(1, 400) for _ in range(80)}
    sizes[random.randrange(2**53)] = 5000
    keys = [key for key, size in sizes.items() for _ in range(size)]
    loads = KeyLoads(most)
    loads.add(len(keys), points_of(keys, 200), {})
    always = set(sizes)
    for _ in range(3):
        tracked = loads.tracked()
        always &= tracked.keys()
        assert len(tracked) <= most
        assert all(size / len(keys) <= loads.limit for key, size in sizes.items() if key not in tracked)
        loads.add(len(keys), points_of(keys, 200), {key: sizes[key] for key in tracked})
    assert always
    assert {key: share for key, share in loads.tracked().items() if key in always} == pytest.approx(
        {key: sizes[key] / len(keys) for key in always & loads.tracked().keys()}
    )


def test_without_tuples_nothing_is_known() -> None:
    loads = KeyLoads(4)
    loads.add(0, [], {})
    loads.add(10, [], {})
    assert (loads.offered, loads.tracked(), loads.limit) == (0, {}, 1.0)
