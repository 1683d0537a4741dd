"""Moments as people write them: ISO 8601 with a time zone, seconds of the epoch, or "2 hours ago"."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from floodway.errors import InputError
from floodway.units import duration_us


def moment_us(
    key: str, given: str | float | None, clock_us: Callable[[], int] = lambda: time.time_ns() // 1000
) -> int | None:
    """Microseconds of the epoch; None stays None.

    >>> moment_us("since", "2026-01-01T00:00:00Z"), moment_us("since", "90s ago", lambda: 100_000_000)
    (1767225600000000, 10000000)
    """
    if given is None:
        return None
    if isinstance(given, int | float):
        return round(given * 1e6)
    text = given.strip()
    if text.endswith("ago"):
        return clock_us() - duration_us(key, text.removesuffix("ago").strip())
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InputError(
            f"{key} {given!r} is no moment",
            hint='Write "2026-11-16T12:00:00Z" (with its time zone), "2 hours ago", or seconds of the epoch',
        )
    return round(found.timestamp() * 1e6)
