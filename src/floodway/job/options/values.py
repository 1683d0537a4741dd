"""From the text of a flag to its value: what is refused names the flag and a remedy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from floodway import units
from floodway.errors import InputError, suggestion
from floodway.units import duration_us

if TYPE_CHECKING:
    from floodway.job.options.accuracy import Accuracy


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
        if self.quantile is None:
            return self.seconds
        from floodway.control.percentile import Spread

        return self.seconds / Spread().ratio(self.quantile)

    @classmethod
    def named(cls, key: str, text: str) -> dict[str, Target]:
        """From `q1=2s,q2=p95 < 8s`: a target by output, each once."""
        texts = _each_once(key, text.split(","), "OUTPUT=TARGET", "'alerts=2s,reports=p95 < 8s'")
        return {name: cls.of(f"{key} {name}=", target) for name, target in texts.items()}

    def __str__(self) -> str:
        return units.target_text(self.seconds, self.quantile)


def choice(flag: str, text: str, *, known: Iterable[str]) -> str:
    """One of these words."""
    words = tuple(known)
    if text not in words:
        raise InputError(f"{flag} {text!r} is not known", hint=suggestion(text, words))
    return text


def duration(flag: str, text: str, *, zero: bool = False) -> float:
    """Seconds above 0, or from 0 on."""
    found = units.seconds(text)
    if found is None or found < 0 or (found == 0 and not zero):
        bound = "of at least 0" if zero else "above 0"
        raise InputError(f"{flag} {text} is not a duration {bound}", hint=units.DURATION_HINT)
    return found


def rate(flag: str, text: str, *, zero: bool = False) -> float:
    """Tuples per second above 0, or from 0 on."""
    found = units.rate(text)
    if found is None or found < 0 or (found == 0 and not zero):
        raise InputError(f"{flag} {text} is not a rate above 0", hint=units.RATE_HINT)
    return found


def size(flag: str, text: str) -> int:
    """A size in bytes above 0."""
    found = units.size(text)
    if found is None or found < 1:
        raise InputError(f"{flag} {text} is not a size above 0", hint=units.SIZE_HINT)
    return int(found)


def whole(flag: str, text: str, *, least: int = 0) -> int:
    """A whole number of at least `least`."""
    if not text.isdecimal() or int(text) < least:
        what = f"{flag} {text} is not a whole number of at least {least}"
        raise InputError(what, hint="Give a number such as 1000")
    return int(text)


def share(flag: str, text: str) -> float:
    """A number above 0 and at most 1."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= 1:
        raise InputError(f"{flag} {text} is not a share above 0 and at most 1", hint="Give a number such as 0.95")
    return found


def durations(flag: str, text: str) -> dict[str, float]:
    """`s1=2s,s2/0=500ms` in seconds."""
    return named(flag, text, units.seconds, "duration", "2s")


def rates(flag: str, text: str) -> dict[str, float]:
    """`s1=100,s2=5k/s` in tuples per second."""
    return named(flag, text, units.rate, "rate", "100")


def shares(flag: str, text: str) -> dict[str, float]:
    """`s1=0.5,a1->b1=0.2`."""
    return named(flag, text, _number, "number", "0.5")


def named(flag: str, text: str, read: Callable[[str], float | None], what: str, example: str) -> dict[str, float]:
    """Quantities of at least 0 by name, each name once."""
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, amount = part.rpartition("=")
        value = read(amount)
        if not equals or not name or value is None or value < 0 or " " in name:
            spaced = len(part.split()) > 1 and all("=" in word for word in part.split())
            raise InputError(
                f"{flag}: {part!r} is not name={what}, finite and at least 0",
                hint=f"Put commas between them: {flag} {','.join(part.split())}"
                if spaced
                else f"Write {flag} s1={example}",
            )
        if name in found:
            raise InputError(f"{flag}: {name!r} is given twice", hint="Give each name once")
        found[name] = value
    return found


def columns(flag: str, text: str) -> dict[str, str]:
    """`clicks=tenant,orders=shop`: a column by stream, each stream once.

    >>> columns("--share-by", "clicks=tenant, orders=shop")
    {'clicks': 'tenant', 'orders': 'shop'}
    """
    return _each_once(flag, text.split(","), "STREAM=COLUMN", "clicks=tenant,orders=shop")


def accuracies(flag: str, text: str) -> dict[str, Accuracy]:
    """Lines of `clicks=sum(price) by page within 0.05`: a target by stream, each stream once."""
    from floodway.job.options.accuracy import Accuracy

    targets = _each_once(flag, text.splitlines(), "STREAM=TARGET", "'clicks=sum(price) by page within 1%'")
    return {stream: Accuracy.of(target) for stream, target in targets.items()}


def settings(flag: str, text: str) -> dict[str, str]:
    """Lines of `key=value`."""
    found = {}
    for pair in text.splitlines():
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise InputError(f"{flag}: {pair!r} is not key=value", hint=f"Write {flag} spark.driver.memory=1g")
        found[key] = value
    return found


def _each_once(flag: str, pieces: Iterable[str], form: str, example: str) -> dict[str, str]:
    """Texts by name, as `name=text`, each name once."""
    found: dict[str, str] = {}
    for piece in filter(None, map(str.strip, pieces)):
        name, _, value = (part.strip() for part in piece.partition("="))
        if not (name and value) or name in found:
            what = "is given twice" if name in found else f"is not {form}"
            raise InputError(f"{flag}: {piece!r} {what}", hint=f"Write {flag} {example}")
        found[name] = value
    return found


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def pairs(values: Mapping[str, object], *, between: str) -> str:
    """The text of named values again."""
    return between.join(f"{name}={value}" for name, value in values.items())


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
