"""A latency target: seconds that the mean, or a percentile, of the latencies is to stay below."""

from __future__ import annotations

from dataclasses import dataclass

from floodway import units
from floodway.control.percentile import Spread
from floodway.errors import InputError


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
        found = units.latency_target(value)
        if found is None:
            raise InputError(f"{key} {value} is not a duration above 0", hint=units.TARGET_HINT)
        seconds, quantile = found
        if quantile is not None and not units.LEAST_QUANTILE <= quantile <= units.MOST_QUANTILE:
            raise InputError(
                f"{key} {value}: p{100.0 * quantile:g} is not between p50 and p99.9", hint=units.TARGET_HINT
            )
        return cls(seconds, quantile)

    @property
    def mean_seconds(self) -> float:
        """The mean that it asks for, as far as that can be said before anything is measured."""
        return self.seconds if self.quantile is None else self.seconds / Spread().ratio(self.quantile)

    @classmethod
    def named(cls, key: str, text: str) -> dict[str, Target]:
        """From `q1=2s,q2=p95 < 8s`: a target by output, each once."""
        found: dict[str, Target] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, target = (word.strip() for word in part.partition("="))
            if not (name and equals) or name in found:
                what = "is given twice" if name in found else "is not OUTPUT=TARGET"
                raise InputError(f"{key}: {part!r} {what}", hint=f"Write {key} 'alerts=2s,reports=p95 < 8s'")
            found[name] = cls.of(f"{key} {name}=", target)
        return found

    def __str__(self) -> str:
        return units.target_text(self.seconds, self.quantile)
