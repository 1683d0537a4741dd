"""Durations, rates and sizes as people write them."""

from __future__ import annotations

import math

import pytest

from floodway.errors import InputError
from floodway.units import duration_us, rate, seconds, size


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2", 2.0),
        (".5", 0.5),
        ("1e-3", 1e-3),
        ("500us", 5e-4),
        ("500 µs", 5e-4),
        ("250ms", 0.25),
        ("2s", 2.0),
        ("1m", 60.0),
        ("1 min", 60.0),
        ("10 minutes", 600.0),
        ("1h", 3600.0),
        ("1d", 86400.0),
        ("2 weeks", 1_209_600.0),
        (" 3S ", 3.0),
        (4, 4.0),
    ],
)
def test_durations(text: str | float, found: float) -> None:
    assert seconds(text) == pytest.approx(found)


@pytest.mark.parametrize("text", ["", "s", "2 parsecs", "1,5s", "two", "nan", "inf", "1e999s", math.nan, True])
def test_what_is_no_duration(text: str | float) -> None:
    assert seconds(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [("100", 100.0), ("5k", 5e3), ("5k/s", 5e3), ("2.5M/s", 2.5e6), ("90/min", 1.5), ("3600/h", 1.0), (7, 7.0)],
)
def test_rates(text: str | float, found: float) -> None:
    assert rate(text) == pytest.approx(found)


@pytest.mark.parametrize("text", ["", "5q", "5/parsec", "/s", "k"])
def test_what_is_no_rate(text: str) -> None:
    assert rate(text) is None


@pytest.mark.parametrize(
    ("text", "found"), [("100", 100.0), ("64MB", 64e6), ("1 GiB", 2.0**30), ("2k", 2e3), ("10MB/s", 1e7), (5, 5.0)]
)
def test_sizes(text: str | float, found: float) -> None:
    assert size(text) == pytest.approx(found)


@pytest.mark.parametrize("text", ["", "5XB", "MB", "5MBs"])
def test_what_is_no_size(text: str) -> None:
    assert size(text) is None


def test_microseconds_name_their_argument() -> None:
    assert duration_us("window", "10 seconds") == 10_000_000
    assert duration_us("lateness", 0, zero=True) == 0
    with pytest.raises(InputError, match="window='soon' is not a duration"):
        duration_us("window", "soon")
    with pytest.raises(InputError, match="window=0 is not a duration"):
        duration_us("window", 0)
