"""Counts over time, downsampled with age: nothing is lost in the sums, rates stay right, memory is bounded."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from floodway.job.ledger.fold import Counts
from floodway.job.ledger.timeline import DAY, HOUR, MOST_LATEST, STEPS, WINDOW_SECONDS, Downsampled, Timeline

NEVER, EVER = 0, 2**40


@dataclass(slots=True)
class Sum:
    """A cell that remembers which seconds it holds."""

    seconds: tuple[int, ...] = ()

    def merge(self, other: Sum) -> None:
        self.seconds += other.seconds


@given(st.lists(st.one_of(st.integers(0, 2 * HOUR), st.integers(0, 100 * DAY)), max_size=60))
@example([12 * 60, 12 * 60 + 59, HOUR + 13 * 60, 3 * DAY])  # after a pause a second skips the cells of a minute
@example([100 * DAY, 5, 3 * HOUR, 100 * DAY - 5])
def test_every_second_is_in_one_cell_and_its_cell_is_as_long_as_its_age_allows(seconds: list[int]) -> None:
    downsampled = Downsampled(Sum)
    for second in seconds:
        downsampled.at(second).seconds += (second,)
    cells = downsampled.cells()
    assert sorted(one for cell in cells for one in cell.seconds) == sorted(seconds)
    for cell in cells:
        age = max(seconds) - min(cell.seconds)
        longest = next((step for step, most in STEPS[:-1] if age <= most), DAY)
        assert max(cell.seconds) - min(cell.seconds) < longest
        assert downsampled.before(max(cell.seconds) + 1) is cell
    assert downsampled.between(NEVER, EVER) == cells


def test_memory_is_bounded_and_sums_are_exact() -> None:
    downsampled, step = Downsampled(Counts), 7
    for second in range(0, 120 * DAY, HOUR // 4):
        downsampled.at(second).offered["s"] += step
    for second in range(120 * DAY, 120 * DAY + 3 * HOUR):
        downsampled.at(second).offered["s"] += step
    assert len(downsampled) < HOUR + 60 + DAY // 60 + 7 * DAY // 600 + 90 * 24 + 120
    assert sum(cell.offered["s"] for cell in downsampled.cells()) == step * (120 * 96 + 3 * HOUR)


def test_a_cell_is_moved_once_per_length(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up, begin = 0, Downsampled._begin

    def count(self: Downsampled[Counts], second: int) -> int:
        nonlocal looked_up
        looked_up += 1
        return begin(self, second)

    monkeypatch.setattr(Downsampled, "_begin", count)
    downsampled, cells = Downsampled(Counts), 0
    for second in range(0, 9 * DAY, 60):
        downsampled.at(second).offered["s"] += 1
        cells += 1
    # Once when it is added to, then once when it becomes longer, whatever else there is.
    assert looked_up <= len(STEPS) * cells


def test_windows_side_by_side_share_no_tuple_and_leave_none_out_however_old() -> None:
    timeline, total = Timeline(Counts), 0
    for second in range(0, 3 * DAY, 3):
        if not DAY < second < DAY + 5000:  # a pause
            for cell in timeline.at("q", second):
                cell.offered["s"] += 30
            total += 30
    windows = [timeline.window(end, 1000) for end in range(1000, 3 * DAY + 1000, 1000)]
    assert sum(counts.offered["s"] for counts, _ in windows) == total
    assert sum(seconds for _, seconds in windows) == timeline.running.count()
    rates = [counts.offered["s"] / seconds for counts, seconds in windows if seconds]
    assert rates == pytest.approx([10.0] * len(rates), rel=0.01)


def test_what_was_counted_between_two_looks_came_between_them() -> None:
    timeline, half_an_hour = Timeline(Counts), 1800
    timeline.saw(Counts(), since=100, second=101)
    counts = Counts()
    counts.offered["s"] = 20 * half_an_hour
    timeline.saw(counts, since=101, second=101 + half_an_hour)
    found, seconds = timeline.window(102 + half_an_hour, 10)
    assert found.offered["s"] / seconds == pytest.approx(20.0, rel=0.01)


def test_counts_that_start_over_have_no_difference() -> None:
    before, now = Counts(), Counts()
    before.offered["s"], before.kept["s"], before.dropped["s", "shedder"] = 10, 6, 4
    now.offered["s"], now.kept["s"], now.dropped["s", "shedder"] = 30, 25, 5
    came = now.since(before)
    assert came is not None
    assert (came.offered["s"], came.kept["s"], came.dropped["s", "shedder"]) == (20, 19, 1)
    assert before.since(now) is None
    assert Counts().since(now) is None


def counted(timeline: Timeline[Counts], query: str, seconds: range, offered: int) -> None:
    for second in seconds:
        for cell in timeline.at(query, second):
            cell.offered["s"] += offered


@pytest.mark.parametrize("back", [60, HOUR, DAY])
def test_a_clock_set_back_hides_no_batch_behind_those_before_it(back: int) -> None:
    timeline, start = Timeline(Counts), 10 * DAY
    counted(timeline, "quiet", range(start, start + 20), 7)
    counted(timeline, "q", range(start, start + 200), 30)
    counted(timeline, "q", range(start + 200 - back, start + 250 - back), 900)
    end = start + 250 - back
    assert timeline.end(at_seconds=end + 0.5) == end
    found, seconds = timeline.latest(end)
    assert found.offered["s"] / seconds == pytest.approx(900.0)
    total, _ = timeline.window(start + 200, 2 * DAY)
    assert total.offered["s"] == 20 * 7 + 200 * 30 + 50 * 900, "what is charted leaves nothing out"


def test_a_query_that_is_new_since_the_clock_was_set_back_is_seen() -> None:
    timeline = Timeline(Counts)
    counted(timeline, "before", range(DAY, DAY + 20), 30)
    counted(timeline, "after", range(DAY - HOUR, DAY - HOUR + 20), 900)
    end = timeline.end(at_seconds=DAY - HOUR + 20.5)
    assert end == DAY - HOUR + 20
    found, seconds = timeline.latest(end)
    assert found.offered["s"] / seconds == pytest.approx(900.0)
    assert timeline.end() == DAY + 20, "without a clock the latest stamp is the latest"


def test_batches_that_are_counted_later_than_they_came_are_not_the_latest() -> None:
    timeline = Timeline(Counts)
    counted(timeline, "q", range(DAY, DAY + 20), 30)
    for cell in timeline.at("q", DAY - HOUR, is_newest=False):
        cell.offered["s"] += 900
    assert timeline.end() == DAY + 20
    found, seconds = timeline.latest(DAY + 20)
    assert found.offered["s"] / seconds == pytest.approx(30.0)


def test_what_is_known_of_the_latest_batches_is_bounded() -> None:
    timeline = Timeline(Counts)
    for run in range(2 * MOST_LATEST):
        counted(timeline, f"run {run}", range(DAY + run, DAY + run + 2 * WINDOW_SECONDS), 30)
    assert len(timeline._latest) == MOST_LATEST
    assert max(map(len, timeline._latest.values())) <= WINDOW_SECONDS + 1
