"""Keeps of windows over event time: one keep for a window's whole life, and what windows cost in tuples."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.planning.windows.window_drop import WindowShape, slot_ppm
from floodway.planning.windows.window_keeps import (
    FIRST_US,
    MOST_ENTRIES,
    WindowKeeps,
    from_numbers,
    passed_share,
    pipelined,
    window_ppm,
)
from floodway.units import PPM
from tests.effort import tries
from tests.planning.whole_windows import is_whole

SECOND = 1_000_000


@st.composite
def shapes(draw: st.DrawFn) -> WindowShape:
    slide = draw(st.integers(1, 6))
    size = slide + draw(st.integers(0, 15))
    return WindowShape(size, slide, draw(st.integers(0, 5)), draw(st.integers(1, 3)))


def by_scan(keeps: WindowKeeps, time_us: int) -> bool:
    """Whether a tuple lies in some kept window, by trying all windows."""
    shape = keeps.shape
    first = (time_us - shape.offset_us) // shape.slide_us * shape.slide_us + shape.offset_us
    starts = range(first, first - shape.size_us, -shape.slide_us)
    return any(is_whole(keeps, start) for start in starts if start <= time_us < start + shape.size_us)


@given(shapes(), st.lists(st.tuples(st.integers(0, PPM), st.integers(-40, 60)), max_size=8), st.integers(0, 3))
@settings(max_examples=tries(100), deadline=None, derandomize=True)
def test_tuples_pass_iff_one_of_their_windows_is_kept(
    shape: WindowShape, changes: list[tuple[int, int]], salt: int
) -> None:
    keeps, seen = WindowKeeps(shape, salt), FIRST_US
    for keep_ppm, at in changes:
        seen = max(seen, at)
        keeps = keeps.changed(keep_ppm, seen_us=seen)
    times = np.arange(-50, 80, dtype=np.int64)
    # Batches of windows pass as a whole, so a tuple may pass for a window of its batch that does not hold it.
    for time_us, passed in zip(times.tolist(), keeps.passes(times).tolist(), strict=True):
        assert passed or not by_scan(keeps, time_us)
        if shape.batch == 1:
            assert passed == by_scan(keeps, time_us)


@given(shapes(), st.integers(0, 10**6))
@settings(max_examples=tries(100), deadline=None, derandomize=True)
def test_a_window_that_has_begun_keeps_its_fate(shape: WindowShape, seed: int) -> None:
    rng = random.Random(seed)
    keeps, seen = WindowKeeps(shape), FIRST_US
    fates: dict[int, bool] = {}
    for step in range(25):
        keeps = keeps.changed(rng.choice([0, 100_000, 500_000, 900_000, PPM]), seen_us=seen)
        keeps = from_numbers(keeps.numbers())  # a restart
        seen = max(seen, 3 * step + rng.randint(-10, 10))
        for start in range(shape.offset_us - 10 * shape.slide_us, seen + 1, shape.slide_us):
            fate = is_whole(keeps, start)
            assert fates.setdefault(start, fate) == fate


@pytest.mark.parametrize("shape", [WindowShape(10, 5), WindowShape(12, 5), WindowShape(30, 1, batch=4)])
@pytest.mark.parametrize("keep_ppm", [100_000, 500_000, 900_000])
def test_what_windows_cost_in_tuples_is_what_the_formula_says(shape: WindowShape, keep_ppm: int) -> None:
    keeps = WindowKeeps(shape).changed(keep_ppm, seen_us=FIRST_US)
    passed = keeps.passes(np.arange(300_000, dtype=np.int64)).mean()
    assert passed == pytest.approx(passed_share(shape, keep_ppm / PPM), abs=0.02)


@given(shapes(), st.integers(0, PPM))
@settings(max_examples=tries(100), deadline=None, derandomize=True)
def test_the_planned_share_of_tuples_is_used_and_not_exceeded(shape: WindowShape, tuple_ppm: int) -> None:
    found = window_ppm(shape, tuple_ppm)
    assert passed_share(shape, found / PPM) * PPM <= tuple_ppm + 1
    assert found == PPM or passed_share(shape, (found + 1) / PPM) * PPM > tuple_ppm


def test_windows_by_themselves_cost_what_they_keep() -> None:
    assert window_ppm(WindowShape(10 * SECOND, 10 * SECOND), 400_000) == 400_000
    # Half of the tuples of windows that overlap by half: 1 - sqrt(1/2) of the windows.
    assert window_ppm(WindowShape(10 * SECOND, 5 * SECOND), 500_000) == pytest.approx(292_893, abs=1)


def test_the_history_stays_bounded_and_what_it_forgets_is_dropped() -> None:
    keeps = WindowKeeps(WindowShape(10, 10))
    for step in range(3 * MOST_ENTRIES):
        keeps = keeps.changed(PPM if step % 2 else 500_000, seen_us=100 * step)
    assert len(keeps.history) == MOST_ENTRIES
    assert not any(is_whole(keeps, start) for start in range(0, keeps.history[0][0], 10))


def test_salts_choose_other_windows_and_one_salt_nests() -> None:
    starts = range(0, 2000, 10)
    low, high, other = (
        {s for s in starts if is_whole(WindowKeeps(WindowShape(10, 10), salt, ((FIRST_US, ppm),)), s)}
        for salt, ppm in ((0, 300_000), (0, 600_000), (1, 600_000))
    )
    assert low < high
    assert high != other
    assert high == {s for s in starts if slot_ppm(s, 0) < 600_000}


@given(st.integers(1, 6), st.integers(0, 9), st.integers(1, 6), st.integers(0, 9))
@settings(max_examples=tries(200), deadline=None, derandomize=True)
def test_a_pipeline_needs_the_windows_of_its_first_aggregate(d1: int, more1: int, d2: int, more2: int) -> None:
    first, second = WindowShape(d1 + more1, d1), WindowShape(d2 + more2, d2)
    joint = pipelined(first, second)
    reach = 0
    for start in range(0, 60 * d2, d2):
        inner = [w for w in range(-60 * d1, 1200, d1) if start <= w < start + second.size_us]
        reach = max([reach, *(w + first.size_us - start for w in inner)])
    assert reach <= joint.size_us
    if d1 == 1:  # the paper's windows slide by one unit, and ω1 + ω2 - 1 is exact
        assert reach == joint.size_us == first.size_us + second.size_us - 1


@pytest.mark.parametrize("numbers", [[], [1, 1, 0, 1], [1, 1, 0, 1, 0, 5]])
def test_numbers_that_are_no_keeps(numbers: list[int]) -> None:
    with pytest.raises(ValueError, match="no keeps of windows"):
        from_numbers(numbers)
