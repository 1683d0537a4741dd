"""What is skipped when too many tuples wait: the oldest, never a tuple twice decided, and no more than asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from floodway.planning.lag import Waiting, left_waiting, skip_positions

PARTITIONS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=8)


def waiting_of(spans: list[tuple[int, int]]) -> list[Waiting]:
    return [Waiting("t" if i % 2 else "u", i, end, end + more) for i, (end, more) in enumerate(spans)]


@given(PARTITIONS, st.integers(1, 50_000))
def test_the_newest_are_left_and_no_more_is_skipped(spans: list[tuple[int, int]], most: int) -> None:
    waiting = waiting_of(spans)
    total = left_waiting(waiting, None)
    found = skip_positions(waiting, most, None)
    left = left_waiting(waiting, found)
    if total <= most:
        assert found is None and left == total
    else:
        assert most - len(waiting) < left <= most
        # Each partition loses the same part.
        for one in waiting:
            assert abs(left_waiting([one], found) - most * left_waiting([one], None) / total) <= 1


@given(PARTITIONS, st.integers(1, 5_000), st.integers(0, 3_000))
def test_positions_only_grow_and_end_when_they_are_passed(
    spans: list[tuple[int, int]], most: int, arrived: int
) -> None:
    first = skip_positions(waiting_of(spans), most, None)
    later = [Waiting(one.topic, one.partition, one.end, one.latest + arrived) for one in waiting_of(spans)]
    second = skip_positions(later, most, first)
    if first is not None:
        assert second is not None
        for topic, positions in first.items():
            assert all(new >= old for new, old in zip(second[topic], positions, strict=True))
    passed = [Waiting(one.topic, one.partition, one.latest, one.latest) for one in later]
    assert skip_positions(passed, most, second) is None


@given(PARTITIONS, st.integers(1, 5_000), st.lists(st.lists(st.integers(0, 2_000), min_size=8, max_size=8), max_size=6))
def test_what_is_skipped_is_not_skipped_for_a_second_time(
    spans: list[tuple[int, int]], most: int, batches: list[list[int]]
) -> None:
    """Batches pass the skipped tuples of some partitions sooner: the newest of the others stay."""
    waiting = waiting_of(spans)
    skip = skip_positions(waiting, most, None)
    for batch in batches:
        left = left_waiting(waiting, skip)
        moved = [
            Waiting(one.topic, one.partition, min(one.end + more, one.latest), one.latest)
            for one, more in zip(waiting, batch, strict=False)
        ]
        read = left - left_waiting(moved, skip)
        skip = skip_positions(moved, most, skip)
        assert left_waiting(moved, skip) == left - read
        waiting = moved
