"""Seconds in which a job ran are those of its batches, however long; those in which it stood still are not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from floodway.job.ledger.timeline import PAUSE_SECONDS, Running


def noted(*seconds: int, query: str = "q") -> Running:
    running = Running()
    for second in seconds:
        running.note(query, second)
    return running


def test_batches_that_get_longer_and_longer_are_no_pauses() -> None:
    ends = [0, 10, 40, 150, 500, 1500]
    assert noted(*ends).spans == [(0, 1500)]


def test_slow_batches_cost_one_pause_until_they_are_known() -> None:
    running = noted(*range(0, 1000, 100))
    assert running.spans == [(0, 0), (100, 900)]


def test_a_week_between_two_runs_does_not_count() -> None:
    week = 7 * 86_400
    running = noted(*range(20), *range(week, week + 20))
    assert (running.spans, running.count()) == ([(0, 19), (week, week + 19)], 40)


def test_queries_whose_ledgers_are_read_one_after_the_other_ran_together() -> None:
    running = noted(*range(0, 100))
    for second in range(50, 200):
        running.note("other", second)
    assert running.spans == [(0, 199)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3 * PAUSE_SECONDS)), max_size=40))
def test_spans_are_in_order_apart_and_hold_every_batch(batches: list[tuple[str, int]]) -> None:
    running = Running()
    for query, second in batches:
        running.note(query, second)
    covered = [second for first, last in running.spans for second in range(first, last + 1)]
    assert covered == sorted(set(covered))
    assert {second for _, second in batches} <= set(covered)
    assert len(covered) == running.count()
    assert all(after[0] > before[1] + 1 for before, after in zip(running.spans, running.spans[1:], strict=False))
