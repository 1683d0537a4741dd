"""A latency target: seconds that the mean, or a percentile, of the latencies is to stay below."""

from __future__ import annotations

import re
from dataclasses import dataclass

from floodway import units
from floodway.errors import InputError

HINT = 'Write a duration for the mean, "2s", or a percentile below one: "p95 < 3s"'
_TEXT = re.compile(r"(?:(mean|p[0-9]{1,2}(?:\.[0-9])?)\s*(?:<=|<)\s*)?(.+)")


@dataclass(frozen=True, slots=True)
class Target:
    """The mean latency is to be `seconds`, or with a `quantile` that share of the tuples is to be no later.

    >>> Target.of("--target", "2s"), str(Target.of("--target", "p95 < 3000ms"))
    (Target(seconds=2.0, quantile=None), 'p95 < 3s')
    """

    seconds: float
    quantile: float | None = None

    @classmethod
    def of(cls, key: str, value: str | float | Target) -> Target:
        """From `2`, `"2s"`, `"mean < 2s"` or `"p95 < 3s"`; `key` names the argument in the error."""
        if isinstance(value, Target):
            return value
        match = _TEXT.fullmatch(value.strip().lower()) if isinstance(value, str) else None
        which = (match[1] or "mean") if match else "mean"
        seconds = units.seconds(match[2] if match else value)
        if seconds is None or seconds <= 0.0:
            raise InputError(f"{key} {value} is not a duration above 0", hint=HINT)
        quantile = None if which == "mean" else round(float(which[1:]) / 100.0, 4)
        if quantile is not None and not 0.5 <= quantile <= 0.999:
            raise InputError(f"{key} {value}: {which} is not between p50 and p99.9", hint=HINT)
        return cls(seconds, quantile)

    def __str__(self) -> str:
        return f"{self.seconds:g}s" if self.quantile is None else f"p{100.0 * self.quantile:g} < {self.seconds:g}s"
