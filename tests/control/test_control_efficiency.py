"""What an executor adds: measured where their number changes, from batches that are clear of the change."""

from __future__ import annotations

import pytest

from floodway.control.loop import LEAST_EFFICIENCY, LOOKED, MOST_EFFICIENCY, Efficiency


def fed(*stretches: tuple[int | None, float | None, int]) -> Efficiency:
    """After stretches of batches: executors, capacity, how many."""
    found = Efficiency()
    for executors, capacity, batches in stretches:
        for _ in range(batches):
            found.take(executors, capacity)
    return found


def test_nothing_is_measured_before_a_change() -> None:
    assert fed((4, 1000.0, 50)).measured is None
    assert fed((None, 1000.0, 50), (4, None, 50), (4, 1000.0, 50)).measured is None
    assert fed((4, 1000.0, LOOKED), (5, 1200.0, LOOKED - 1)).measured is None
    assert fed((4, 1000.0, LOOKED - 1), (5, 1200.0, LOOKED)).measured is None
    assert fed((4, 1000.0, LOOKED), (5, 1200.0, 3), (4, 1000.0, 50)).measured is None


@pytest.mark.parametrize("change", [(4, 5), (5, 4), (2, 8)])
def test_who_comes_or_goes_is_compared_with_the_others(change: tuple[int, int]) -> None:
    before, after = change
    gained = 1.0 + 0.7 * (after / before - 1.0)
    assert fed((before, 1000.0, 20), (after, 1000.0 * gained, 20)).measured == pytest.approx(0.7)


def test_batches_near_the_change_do_not_count() -> None:
    half = LOOKED // 2
    # Executors were there before they were counted, and the estimate follows some batches later.
    found = fed((4, 1000.0, 20), (4, 1300.0, half), (6, 1100.0, half), (6, 1400.0, half))
    assert found.measured == pytest.approx(0.8)


def test_those_that_come_one_by_one_are_measured_together() -> None:
    assert fed((2, 1000.0, 20), (3, 1300.0, 2), (4, 1600.0, 20)).measured == pytest.approx(0.6)


def test_it_stays_within_bounds() -> None:
    assert fed((2, 1000.0, 20), (3, 900.0, 20)).measured == LEAST_EFFICIENCY
    assert fed((2, 1000.0, 20), (3, 3000.0, 20)).measured == MOST_EFFICIENCY
