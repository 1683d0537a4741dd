"""From the text of a flag to its value: each function makes a parser that refuses with the flag's name and a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from floodway import units
from floodway.errors import InputError
from floodway.network.suggest import did_you_mean
from floodway.planning.plan import Objective

Parse = Callable[[str], Any]


def choice(flag: str, known: Iterable[str]) -> Parse:
    """One of these words."""
    words = tuple(known)

    def parse(text: str) -> str:
        if text not in words:
            raise InputError(f"{flag} {text!r} is not known", hint=suggestion(text, words))
        return text

    return parse


def suggestion(text: str, words: Iterable[str]) -> str:
    """The nearest word, or all of them, as a sentence of its own.

    >>> suggestion("bach", ["batch", "pid"])
    'Did you mean batch?'
    """
    found = did_you_mean(text, words)
    return found[0].upper() + found[1:]


def objective(flag: str) -> Parse:
    """An objective by name."""
    known = choice(flag, [one.value for one in Objective])
    return lambda text: Objective(known(text))


def duration(flag: str, *, zero: bool = False) -> Parse:
    """Seconds above 0, or from 0 on."""

    def parse(text: str) -> float:
        found = units.seconds(text)
        if found is None or found < 0 or (found == 0 and not zero):
            bound = "of at least 0" if zero else "above 0"
            raise InputError(f"{flag} {text} is not a duration {bound}", hint=units.DURATION_HINT)
        return found

    return parse


def rate(flag: str, *, zero: bool = False) -> Parse:
    """Tuples per second above 0, or from 0 on."""

    def parse(text: str) -> float:
        found = units.rate(text)
        if found is None or found < 0 or (found == 0 and not zero):
            raise InputError(f"{flag} {text} is not a rate above 0", hint=units.RATE_HINT)
        return found

    return parse


def size(flag: str) -> Parse:
    """A size in bytes above 0."""

    def parse(text: str) -> int:
        found = units.size(text)
        if found is None or found < 1:
            raise InputError(f"{flag} {text} is not a size above 0", hint=units.SIZE_HINT)
        return int(found)

    return parse


def whole(flag: str) -> Parse:
    """A whole number of at least 0."""

    def parse(text: str) -> int:
        if not text.isdecimal():
            raise InputError(f"{flag} {text} is not a whole number of at least 0", hint="Give a number such as 1000")
        return int(text)

    return parse


def share(flag: str) -> Parse:
    """A number above 0 and at most 1."""

    def parse(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not 0 < found <= 1:
            raise InputError(f"{flag} {text} is not a share above 0 and at most 1", hint="Give a number such as 0.95")
        return found

    return parse


def durations(flag: str) -> Parse:
    """`s1=2s,s2/0=500ms` in seconds."""
    return named(flag, units.seconds, "duration", "2s")


def rates(flag: str) -> Parse:
    """`s1=100,s2=5k/s` in tuples per second."""
    return named(flag, units.rate, "rate", "100")


def shares(flag: str) -> Parse:
    """`s1=0.5,a1->b1=0.2`."""
    return named(flag, _number, "number", "0.5")


def named(flag: str, read: Callable[[str], float | None], what: str, example: str) -> Parse:
    """Quantities of at least 0 by name, each name once."""

    def parse(text: str) -> dict[str, float]:
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

    return parse


def settings(flag: str) -> Parse:
    """Lines of `key=value`."""

    def parse(text: str) -> dict[str, str]:
        found = {}
        for pair in text.splitlines():
            key, equals, value = pair.partition("=")
            if not (key and equals):
                raise InputError(f"{flag}: {pair!r} is not key=value", hint=f"Write {flag} spark.driver.memory=1g")
            found[key] = value
        return found

    return parse


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def pairs(values: Mapping[str, object], *, between: str) -> str:
    """The text of named values again."""
    return between.join(f"{name}={value}" for name, value in values.items())
