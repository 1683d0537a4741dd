from __future__ import annotations

import math

import pytest

from floodway.buffering.cleaner import CostEstimate, purged
from floodway.errors import InputError


def test_smoothing_follows_equation_10() -> None:
    estimate = CostEstimate(0.010, alpha=0.1)
    for seen in (0.020, 0.030):
        estimate = estimate.observe(seen)
    assert estimate.seconds == pytest.approx(0.1 * 0.030 + 0.9 * (0.1 * 0.020 + 0.9 * 0.010))


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf, -1.0])
def test_no_evidence_changes_nothing(nothing: float | None) -> None:
    assert CostEstimate(0.01).observe(nothing) == CostEstimate(0.01)


def test_bad_estimates_are_refused() -> None:
    with pytest.raises(InputError, match="tuple cost"):
        CostEstimate(-1.0)
    with pytest.raises(InputError, match="smoothing constant"):
        CostEstimate(0.1, alpha=0.0)


def test_i_counts_only_what_is_retained() -> None:
    # Each tuple costs 1 s and may take 2 s: two can be kept, and the expired one takes no place.
    waiting = [(-9.0, 2.0), (0.0, 2.0), (0.0, 2.0), (0.0, 2.0)]
    assert purged(waiting, now=0.0, cost_seconds=1.0) == [True, False, False, True]


def test_age_counts_the_time_already_waited() -> None:
    assert purged([(0.0, 1.0)], now=0.89, cost_seconds=0.1) == [False]
    assert purged([(0.0, 1.0)], now=0.91, cost_seconds=0.1) == [True]


def test_busy_time_delays_everything() -> None:
    assert purged([(0.0, 1.0)], now=0.0, cost_seconds=0.5, busy_seconds=0.6) == [True]


def test_tuples_from_the_future_are_fresh_and_negative_deadlines_always_purged() -> None:
    assert purged([(100.0, 1.0), (0.0, -1.0), (0.0, math.inf)], now=0.0, cost_seconds=0.1) == [
        False,
        True,
        False,
    ]
