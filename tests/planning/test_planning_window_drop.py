"""Window Drop as a pure policy: the subset guarantee, gaps, shapes for pipelines and fan-out, epochs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.errors import InputError
from floodway.planning.windows.window_drop import ALWAYS, Epoch, Epochs, WindowShape, fan_out, slot_ppm
from floodway.units import PPM
from tests.effort import tries

SALT = 7


@st.composite
def shapes(draw: st.DrawFn) -> WindowShape:
    slide = draw(st.integers(1, 6))
    return WindowShape(
        size_us=slide + draw(st.integers(0, 15)),
        slide_us=slide,
        offset_us=draw(st.integers(0, 5)),
        batch=draw(st.integers(1, 4)),
        max_gap=draw(st.none() | st.integers(1, 3)),
    )


def windows_of(shape: WindowShape, time_us: int) -> list[int]:
    """All window starts that contain a time, by scan."""
    first = (time_us - shape.offset_us) // shape.slide_us * shape.slide_us + shape.offset_us
    return [w for w in range(first, first - shape.size_us, -shape.slide_us) if w <= time_us < w + shape.size_us]


def batches_of(shape: WindowShape, time_us: int) -> set[int]:
    """Starts of the batches with a window that contains a time."""
    return {shape.batch_start(window) for window in windows_of(shape, time_us)}


@given(shapes(), st.integers(0, PPM))
@settings(max_examples=tries(100), deadline=None, derandomize=True)
def test_every_emitted_window_has_all_its_tuples(shape: WindowShape, keep_ppm: int) -> None:
    passed = {t for t in range(-60, 60) if any(shape.kept(start, keep_ppm, SALT) for start in batches_of(shape, t))}
    for start in range(-40, 40):
        if (start - shape.offset_us) % shape.slide_us == 0 and start + shape.size_us <= 60:
            emitted = shape.kept(shape.batch_start(start), keep_ppm, SALT)
            assert not emitted or set(range(start, start + shape.size_us)) <= passed


@given(shapes())
@settings(max_examples=tries(50), deadline=None, derandomize=True)
def test_fates_are_nested_so_lowering_only_removes_windows(shape: WindowShape) -> None:
    starts = [shape.offset_us + i * shape.batch_us for i in range(50)]
    kept = [{s for s in starts if shape.kept(s, keep, SALT)} for keep in (0, 200_000, 600_000, PPM)]
    assert kept[0] <= kept[1] <= kept[2] <= kept[3] == set(starts)


@pytest.mark.parametrize("gap", [1, 2, 5])
def test_no_gap_is_longer_than_asked(gap: int) -> None:
    shape = WindowShape(10, 10, batch=3, max_gap=gap)
    fates = [shape.kept(i * shape.batch_us, 0, SALT) for i in range(600)]
    longest = max(len(run) for run in "".join(".x"[not fate] for fate in fates).split("."))
    assert longest == gap


def test_the_keep_asked_for_is_reached_with_and_without_a_gap_bound() -> None:
    for shape in (WindowShape(10, 10), WindowShape(10, 10, batch=4), WindowShape(10, 10, max_gap=3)):
        kept = sum(shape.kept(i * shape.batch_us, 400_000, SALT) for i in range(20_000))
        assert kept / 20_000 == pytest.approx(0.4, abs=0.012)


def test_fan_out_covers_every_aggregate() -> None:
    aggregates = [WindowShape(10, 2), WindowShape(6, 3)]
    joint = fan_out(aggregates)
    for start in range(0, 60, joint.slide_us):
        for shape in aggregates:
            for window in range(start, start + joint.slide_us, shape.slide_us):
                assert window + shape.size_us <= start + joint.size_us
    with pytest.raises(InputError):
        fan_out([WindowShape(4, 2), WindowShape(4, 2, offset_us=1)])


@pytest.mark.parametrize("bad", [{"size_us": 0}, {"slide_us": 20}, {"batch": 0}, {"max_gap": 0}])
def test_shapes_that_are_none(bad: dict[str, int]) -> None:
    with pytest.raises(InputError, match="window"):
        WindowShape(**{"size_us": 10, "slide_us": 5, **bad})


def test_slots_are_even() -> None:
    slots = [slot_ppm(i * 10_000_000, SALT) for i in range(10_000)]
    assert all(0 <= slot < PPM for slot in slots)
    assert sum(slots) / len(slots) == pytest.approx(PPM / 2, rel=0.02)


def test_a_raise_passes_first_and_emits_after_confirmation() -> None:
    shape = WindowShape(10, 10)
    low = Epochs(shape, (Epoch(0, 0, 300_000, 300_000),))
    raising = low.lower_or_raise(800_000, seen_us=15, seq=100)
    assert raising.pending
    assert raising.latest == Epoch(100, 20, 800_000, 300_000)
    assert raising.lower_or_raise(900_000, seen_us=15, seq=200) is raising
    confirmed = raising.confirm(seen_us=34, seq=300)
    assert confirmed.latest == Epoch(300, 40, 800_000, 800_000)
    assert confirmed.confirm(seen_us=99, seq=400) is confirmed
    assert raising.lower_or_raise(100_000, seen_us=25, seq=200).latest == Epoch(200, 30, 100_000, 100_000)


def test_windows_before_a_trimmed_history_count_as_dropped() -> None:
    epochs = Epochs(WindowShape(10, 10))
    for i in range(5):
        epochs = epochs.lower_or_raise(900_000 - i, seen_us=100 * i, seq=i)
    trimmed = epochs.trimmed(2, 0)
    assert trimmed.at(0, 1000) is None
    assert trimmed.at(1000, 1000) == epochs.latest


@given(st.lists(st.tuples(st.integers(0, PPM), st.integers(0, 60)), max_size=40), st.integers(0, 45))
def test_no_batch_to_come_can_tell_a_trimmed_history(changes: list[tuple[int, int]], oldest_seq: int) -> None:
    epochs = Epochs(WindowShape(10, 10))
    for stamp, (keep, seen) in enumerate(changes):
        epochs = epochs.lower_or_raise(keep, seen_us=seen, seq=stamp)
        epochs = epochs.confirm(seen_us=seen, seq=stamp) if keep % 2 else epochs
    trimmed = epochs.trimmed(1000, oldest_seq)
    for window in range(-10, 90, 10):
        for stamp in range(oldest_seq, 50):
            assert trimmed.at(window, stamp) == epochs.at(window, stamp)


def test_a_window_that_is_open_for_long_needs_one_entry() -> None:
    epochs = Epochs(WindowShape(1000, 1000))
    for stamp in range(500):
        epochs = epochs.lower_or_raise(900_000 - stamp, seen_us=stamp, seq=stamp)
        epochs = epochs.trimmed(64, oldest_seq=stamp - 2)
    assert len(epochs.history) <= 5
    assert epochs.at(500, 500) == ALWAYS


@given(shapes(), st.integers(0, 10**6), st.integers(0, 3))
@settings(max_examples=tries(150), deadline=None, derandomize=True)
def test_subset_guarantee_with_rate_changes_and_late_news(shape: WindowShape, seed: int, delay: int) -> None:
    """Micro-batches with disordered event times; what a batch saw is heard of `delay` batches later."""
    rng = random.Random(seed)
    epochs, timeline = Epochs(shape), 0
    passed: dict[int, int] = {}
    offered: dict[int, int] = {}
    emitted: set[int] = set()
    seen: list[tuple[int, int]] = []
    clock = 0
    for number in range(30):
        clock += 10
        stamp = clock
        times = [timeline + rng.randint(-8, 25) for _ in range(rng.randint(0, 12))]
        timeline += rng.randint(0, 9)
        for t in times:
            offered[t] = offered.get(t, 0) + 1
            keeps = ((s, epochs.at(s, stamp)) for s in batches_of(shape, t))
            if any(epoch is not None and shape.kept(s, epoch.pass_ppm, SALT) for s, epoch in keeps):
                passed[t] = passed.get(t, 0) + 1
        for window in range(-60, 330):
            if (window - shape.offset_us) % shape.slide_us == 0 and rng.random() < 0.02:
                epoch = epochs.at(window, stamp)
                if epoch is not None and shape.kept(shape.batch_start(window), epoch.emit_ppm, SALT):
                    emitted.add(window)
                    span = range(window, window + shape.size_us)
                    assert all(passed.get(t, 0) == offered.get(t, 0) for t in span)
        seen.append((stamp, max(times, default=-1000)))
        heard = seen[: max(0, len(seen) - delay)]
        latest_seen = max((t for _, t in heard), default=None)
        clock += 1
        # New entries become valid strictly after the write, and before the next micro-batch begins.
        if epochs.pending and heard and heard[-1][0] >= epochs.latest.seq:
            before = [t for at, t in heard if at < epochs.latest.seq]
            epochs = epochs.confirm(seen_us=max(before, default=None), seq=clock + 1)
        elif number % 3 == 0:
            keep = rng.choice([0, 200_000, 500_000, PPM])
            epochs = epochs.lower_or_raise(keep, seen_us=latest_seen, seq=clock + 1)
