"""Quantities as people write them: durations, rates and sizes, as plain numbers or with a unit.

>>> seconds("250ms"), seconds("10 minutes"), seconds(2), rate("5k/s"), rate("90/min"), size("1.5 GB")
(0.25, 600.0, 2.0, 5000.0, 1.5, 1500000000.0)
>>> seconds("2 parsecs") is None
True
"""

from __future__ import annotations

import math
import re

from floodway.errors import InputError

PPM = 1_000_000
"""Parts per million: a keep of one, everything."""
_MICROSECONDS = {
    **dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("week", "weeks"), 604_800_000_000),
}
_THOUSANDS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_NUMBER = r"([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
_DURATION = re.compile(rf"{_NUMBER}\s*([a-zµμ]*)")
_RATE = re.compile(rf"{_NUMBER}\s*([kKMGT]?)(?:/\s*([a-zµμ]+))?")
_SIZE = re.compile(rf"{_NUMBER}\s*([kKMGT]i?)?[bB]?(?:/s)?")

DURATION_HINT = 'Write seconds or a unit: 0.25, "250ms", "2s", "10 minutes"'
RATE_HINT = 'Write tuples per second or a unit: 500, "5k/s", "90/min"'
_TARGET = re.compile(r"(?:(mean|p[0-9]{1,2}(?:\.[0-9])?)\s*(?:<=|<)\s*)?(.+)")
LEAST_QUANTILE, MOST_QUANTILE = 0.5, 0.999
TARGET_HINT = 'Write a duration for the mean, "2s", or a percentile below one: "p95 < 3s"'
SIZE_HINT = 'Write bytes or a unit: 1000000, "64MB", "2GB"'


def seconds(value: str | float) -> float | None:
    """A duration in seconds; None if it is none. A number without a unit is seconds."""
    if not isinstance(value, str):
        return _number(value)
    match = _DURATION.fullmatch(value.strip().lower())
    if match is None:
        return None
    microseconds = _MICROSECONDS.get(match[2] or "s")
    return None if microseconds is None else _finite(float(match[1]) * microseconds / 1e6)


def latency_target(value: str | float) -> tuple[float, float | None] | None:
    """Seconds above 0, and the quantile that they are of, None for the mean; None if it is no target.

    >>> latency_target("2s"), latency_target("p95 < 3000ms"), latency_target("p95")
    ((2.0, None), (3.0, 0.95), None)
    """
    match = _TARGET.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    which = (match[1] or "mean") if match else "mean"
    found = seconds(match[2] if match else value)
    if found is None or found <= 0.0:
        return None
    return found, None if which == "mean" else round(float(which[1:]) / 100.0, 4)


def target_text(seconds: float, quantile: float | None) -> str:
    """A target as text again."""
    return f"{seconds:g}s" if quantile is None else f"p{100.0 * quantile:g} < {seconds:g}s"


def rate(value: str | float) -> float | None:
    """A rate in tuples per second; None if it is none."""
    if not isinstance(value, str):
        return _number(value)
    match = _RATE.fullmatch(value.strip())
    period = _MICROSECONDS.get(match[3] or "s") if match else None
    return None if match is None or period is None else _finite(float(match[1]) * _THOUSANDS[match[2]] * 1e6 / period)


def size(value: str | float) -> float | None:
    """A size in bytes (a bandwidth in bytes per second); None if it is none."""
    if not isinstance(value, str):
        return _number(value)
    match = _SIZE.fullmatch(value.strip())
    return None if match is None else _finite(float(match[1]) * {**_THOUSANDS, **_BINARY}[match[2] or ""])


def duration_us(key: str, value: str | float, *, zero: bool = False) -> int:
    """Microseconds from `2`, `"2s"`, `"250ms"` or `"10 minutes"`; `key` names the argument in the error.

    >>> duration_us("window", "10 seconds"), duration_us("target_latency", 0.25)
    (10000000, 250000)
    """
    found = seconds(value)
    amount = None if found is None else round(found * 1e6)
    if amount is None or amount < 0 or (amount == 0 and not zero):
        raise InputError(f"{key}={value!r} is not a duration", hint=f"{DURATION_HINT}.")
    return amount


def _number(value: float) -> float | None:
    return None if isinstance(value, bool) else _finite(float(value))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
