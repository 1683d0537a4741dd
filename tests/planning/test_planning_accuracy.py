"""Keeps for an accuracy: the width formula against simulation, sums from a sample, and the choice of keeps."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.planning.estimates.accuracy import Function, Moments, needed_keeps, widths
from floodway.planning.estimates.group_sample import LEAST_OTHERS, WANTED, GroupSample, Points, Sizes, strata


def moments(values: np.ndarray) -> Moments:
    return Moments(*(np.array([(values**power).sum()]) for power in range(4)))


@pytest.mark.parametrize("function", ["count", "sum", "avg"])
def test_at_the_keep_needed_the_error_is_within_the_width(function: Function) -> None:
    random = np.random.default_rng(3)
    values = np.ones(4000) if function == "count" else random.lognormal(0.0, 1.0, 4000)
    held = moments(values).of(function)
    keep = needed_keeps(held, 0.05)
    assert 0.0 < keep[0] < 1.0 and widths(held, keep)[0] == pytest.approx(0.05, rel=1e-3)
    truth = values.mean() if function == "avg" else values.sum()
    within = 0
    for _ in range(500):
        kept = values[random.random(len(values)) < keep[0]]
        found = kept.mean() if function == "avg" else kept.sum() / keep[0]
        within += abs(found - truth) <= 0.05 * truth
    assert within >= 0.95 * 500
    # It is not kept in vain: at a quarter of it the error is often larger.
    less = [values[random.random(len(values)) < keep[0] / 4].sum() * 4 / keep[0] for _ in range(200)]
    if function != "avg":
        assert sum(abs(found - truth) <= 0.05 * truth for found in less) < 0.85 * 200


def test_nothing_narrows_the_bounds_of_a_group_whose_values_cancel() -> None:
    nothing = Moments(np.array([100.0]), np.array([0.0]), np.array([100.0]), np.array([0.0]))
    assert widths(nothing, np.array([0.9]))[0] == np.inf and widths(nothing, np.array([1.0]))[0] == 0.0
    assert needed_keeps(nothing, 0.5)[0] == pytest.approx(1.0)


def test_a_sample_finds_the_groups_that_hold_the_value() -> None:
    """Ten of a thousand groups have 80% of the value and 1% of the tuples."""
    random = np.random.default_rng(4)
    groups = np.repeat(np.arange(1000), 50)
    values = np.where(groups < 10, 400.0, 1.0) * random.uniform(0.5, 1.5, len(groups))
    sample, sizes = GroupSample(), None
    for _ in range(6):
        chance = np.ones(len(values)) if sizes is None else sizes.chance(values)
        chosen = np.flatnonzero(random.random(len(values)) < chance)
        points = chosen[(np.arange(1000) + 0.5).astype(int) * len(chosen) // 1000]
        sample.add(Points(groups[points], values[points], len(chosen), sizes), seconds=2.0)
        sizes = sample.sizes()
        # Fewer where large values are in it for certain.
        assert sizes is not None and WANTED / 2 < sizes.chance(values).sum() < 1.2 * WANTED
    found = sample.groups(over_seconds=4.0)
    assert found is not None
    heavy = np.isin(found.names, np.arange(10))
    assert heavy.sum() == 10 and found.points[heavy].min() > 60
    for group, total in zip(found.names[heavy], found.moments.total[heavy], strict=True):
        assert total == pytest.approx(2 * values[groups == group].sum(), rel=0.2)
    assert found.moments.tuples.sum() == pytest.approx(2 * len(groups), rel=0.2)
    assert found.moments.squares.sum() == pytest.approx(2 * (values**2).sum(), rel=0.2)


def test_few_tuples_are_no_more_evidence_than_they_are() -> None:
    sample = GroupSample()
    sample.add(Points(np.array([7] * 900 + [8] * 100), np.ones(1000), sampled=10), seconds=1.0)
    found = sample.groups()
    assert found is not None
    assert found.points.tolist() == pytest.approx([9.0, 1.0]) and found.moments.tuples.tolist() == pytest.approx([9, 1])
    assert found.smaller(2.0).tuples.tolist() == pytest.approx([3.0, 0.0])
    assert Sizes(0.0, 2.0).chance(np.array([-1.0, 5.0])).tolist() == [0.5, 1.0]


shares = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6)


@given(shares, shares, st.floats(0.0, 1.0), st.integers(1, 4), st.booleans())
def test_keeps_are_what_groups_need_or_say_so(
    sizes: list[float], needs: list[float], keep: float, most: int, firm: bool
) -> None:
    count = min(len(sizes), len(needs))
    n = np.array(sizes[:count]) / (sum(sizes[:count]) * 1.25)
    p = np.array(needs[:count])
    found = strata(keep, np.arange(count), n, p, most=most, firm=firm)
    own = dict(zip(found.names.tolist(), found.keeps.tolist(), strict=True))
    keeps = np.array([own.get(group, found.others) for group in range(count)])
    assert len(own) <= most
    if firm or keep >= found.needed:
        assert (keeps >= p - 1e-9).all()
    assert found.keep == pytest.approx(float((n * keeps).sum()) + (1.0 - n.sum()) * found.others)
    assert found.keep == pytest.approx(max(keep, found.needed) if firm else keep, abs=1e-6)
    # No other choice of the groups with a keep of their own needs fewer tuples.
    best = min(
        float((n * np.where(np.isin(np.arange(count), chosen), p, others)).sum()) + (1.0 - n.sum()) * others
        for size in range(min(most, count) + 1)
        for chosen in combinations(range(count), size)
        for others in [max([LEAST_OTHERS, *np.delete(p, list(chosen))])]
    )
    assert found.needed == pytest.approx(min(1.0, best))
