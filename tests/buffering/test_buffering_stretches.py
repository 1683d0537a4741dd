from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.buffering.cursors import BatchPolicy, QueueView, count_before, sampled, schedule_batch, without_first
from floodway.buffering.marks import MOST_MARKS, ArrivalMarks
from floodway.buffering.queues import QueueClass
from floodway.buffering.ranges import Cursor
from floodway.units import PPM
from tests.buffering.carried_out import carried_out


def expand(count: int, times: list[float]) -> list[float]:
    return [part.first + place * part.gap for part in sampled(count, times) for place in range(part.count)]


@given(
    count=st.integers(0, 300),
    times=st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=20),
    cutoff=st.integers(-60, 60).map(float),
    skip=st.integers(0, 300),
)
def test_stretches_are_the_tuples_one_by_one(count: int, times: list[float], cutoff: float, skip: int) -> None:
    tuples = expand(count, times)
    assert len(tuples) == count
    assert np.all(np.diff(tuples) >= -1e-9)  # times that go back stand still
    assert count_before(sampled(count, times), cutoff) == pytest.approx(sum(t < cutoff - 1e-9 for t in tuples), abs=1)
    rest = without_first(sampled(count, times), skip)
    assert [part.first + i * part.gap for part in rest for i in range(part.count)] == pytest.approx(tuples[skip:])


def test_the_first_and_the_last_sample_are_the_first_and_the_last_tuple() -> None:
    assert expand(5, [0.0, 2.0, 10.0]) == pytest.approx([0.0, 1.0, 2.0, 6.0, 10.0])
    assert expand(2, [0.0, 2.0, 10.0]) == [0.0, 10.0]


def test_a_burst_at_the_head_is_purged_to_the_tuple() -> None:
    """900 tuples of the first second and 100 of the nine that follow: a straight line would purge 200."""
    times = (*np.linspace(0.0, 1.0, 10), *np.linspace(1.0, 10.0, 2)[1:])
    burst = QueueView("q", QueueClass("q", 2.0), 1000, limit=10_000, cost_seconds=0.0, waiting_times=times)
    assert schedule_batch([burst], 1.0, 4.0, BatchPolicy())["q"].expired == pytest.approx(911, abs=12)
    even = QueueView(
        "q", QueueClass("q", 2.0), 1000, limit=10_000, cost_seconds=0.0, oldest_generated=0.0, newest_generated=10.0
    )
    assert schedule_batch([even], 1.0, 4.0, BatchPolicy())["q"].expired == pytest.approx(200, abs=2)


def test_new_tuples_have_times_of_their_own() -> None:
    view = QueueView(
        "q",
        QueueClass("q", 1.0),
        waiting=100,
        arrived=100,
        limit=1000,
        cost_seconds=0.0,
        waiting_times=(0.0, 1.0),
        arrived_times=(9.5, 10.0),
    )
    decision = schedule_batch([view], 1.0, 10.0, BatchPolicy())["q"]
    assert (decision.expired, decision.take, decision.left) == (100, 100, 0)


def test_a_passage_is_the_decision_in_positions() -> None:
    view = QueueView(
        "q", QueueClass("q", 1.0), 100, limit=500, cost_seconds=0.01, waiting_times=(9.0, 10.0), adaptor_state=None
    )
    decision = schedule_batch([view], 0.5, 10.0, BatchPolicy())["q"]
    cursor = Cursor(1000).extend(1200, keep_ppm=PPM // 2)
    passage = decision.passage(cursor, 1200)
    ranges, rest = carried_out(decision, cursor, 1200)
    assert passage.read_from == passage.cleaned == 1000 + 2 * decision.expired
    assert (passage.end, passage.cursor) == (rest.head, cursor)
    assert passage.read_from == ranges[0].start


def test_positions_of_waiting_tuples_skip_what_was_dropped() -> None:
    cursor = Cursor(10).extend(110).extend(310, keep_ppm=500_000).extend(400, keep_ppm=0)
    assert [cursor.position(place) for place in (0, 99, 100, 150, 199, 200)] == [10, 109, 110, 210, 308, 400]


def test_marks_stay_few_and_forget_what_was_served() -> None:
    marks = ArrivalMarks()
    assert marks.times([5]) == [] and marks.newest is None and marks.rate(9.0, window_seconds=5.0) == 0.0
    for step in range(3 * MOST_MARKS):
        marks.note(step * 10, float(step))
    marks.note(5, 99.0)  # a position that was passed long ago
    assert marks.times([10 * 100, 10 * 12_000]) == pytest.approx([100.0, 12_000.0], abs=4)
    assert marks.rate(3.0 * MOST_MARKS, window_seconds=1000.0) == pytest.approx(10.0, rel=0.02)
    marks.forget_before(100_000)
    assert marks.times([100_000, 110_000]) == pytest.approx([10_000.0, 11_000.0], abs=4)
    assert marks.times([0])[0] >= 9_990.0
