"""Durations as people write them: seconds as a number, or text with a unit."""

from __future__ import annotations

import re

from floodway.errors import InputError

_UNITS = {
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("week", "weeks"), 604_800_000_000),
}
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]+)")


def duration_us(key: str, value: str | float, *, zero: bool = False) -> int:
    """Microseconds from `2`, `"2s"`, `"250ms"` or `"10 minutes"`; `key` names the argument in the error.

    >>> duration_us("window", "10 seconds"), duration_us("target_latency", 0.25)
    (10000000, 250000)
    """
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip().lower())
        unit = _UNITS.get(match[2]) if match else None
        amount = round(float(match[1]) * unit) if match and unit else None
    else:
        amount = None if isinstance(value, bool) else round(value * 1e6)
    if amount is None or amount < 0 or (amount == 0 and not zero):
        raise InputError(
            f"{key}={value!r} is not a duration",
            hint='Write seconds or a unit: 0.25, "250ms", "2s", "10 minutes".',
        )
    return amount
