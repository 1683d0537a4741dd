from __future__ import annotations

import pytest

from floodway.buffering.ranges import MOST_RANGES, Cursor, Range
from floodway.errors import InputError
from floodway.units import PPM


def test_advance_crosses_ranges_and_counts_kept_tuples() -> None:
    cursor = Cursor(10).extend(110).extend(310, keep_ppm=PPM // 4)
    assert cursor.waiting == 150
    passed, rest = cursor.advance(120)
    assert passed == (Range(10, 110, PPM), Range(110, 190, PPM // 4))
    assert (rest.head, rest.waiting, rest.tail) == (190, 30, 310)


def test_a_range_that_keeps_nothing_is_passed_for_free() -> None:
    cursor = Cursor(0).extend(100, keep_ppm=0).extend(200)
    passed, rest = cursor.advance(0)
    assert (rest.head, rest.waiting) == (100, 100)
    assert sum(part.kept for part in passed) == 0
    assert Cursor(0).extend(100, keep_ppm=0).advance(0)[1].head == 100


def test_equal_neighbours_become_one_range_and_many_stay_few() -> None:
    assert len(Cursor(0).extend(10).extend(20).ranges) == 1
    cursor = Cursor(0)
    for step in range(100):
        cursor = cursor.extend(100 * (step + 1), keep_ppm=10_000 * (step % 97))
    assert len(cursor.ranges) <= MOST_RANGES
    expected = sum(100 * 10_000 * (step % 97) // PPM for step in range(100))
    assert cursor.waiting == pytest.approx(expected, abs=2 * MOST_RANGES)


def test_offset_round_trip_holds_whole_numbers_only() -> None:
    cursor = Cursor(7).extend(50, keep_ppm=250_000).extend(80, keep_ppm=1)
    numbers = cursor.to_offset()
    assert numbers == [7, 50, 250_000, 80, 1]
    assert Cursor.from_offset(numbers) == cursor


def test_thin_multiplies_keep_rates() -> None:
    assert Cursor(0).extend(100, keep_ppm=500_000).thin(500_000).ranges == (Range(0, 100, 250_000),)


def test_bad_cursors_are_refused() -> None:
    with pytest.raises(InputError, match="before position 10"):
        Cursor(0).extend(10).extend(9)
    with pytest.raises(InputError, match="cannot advance 11"):
        Cursor(0).extend(10).advance(11)
    with pytest.raises(InputError, match="does not continue"):
        Cursor(0, (Range(1, 2, PPM),))
    with pytest.raises(InputError, match="keep between 0 and 1000000"):
        Cursor(0).extend(10, keep_ppm=PPM + 1)
    with pytest.raises(InputError, match="not a cursor"):
        Cursor.from_offset([1, 2])
