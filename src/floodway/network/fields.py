"""Typed reading of one entry of a network file: every fault goes to a report, and reading goes on.

A faulty value is replaced by a harmless one, so that one mistake gives one message and the checks of the whole graph
still run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from floodway import units
from floodway.errors import Problem, did_you_mean, nearest
from floodway.network.yaml_lines import Located, join

MAX_NUMBER = 1e15  # Products of a few such numbers stay finite.
MAX_NAME = 100
MAX_PROBLEMS = 100
_TOLD = 3
MEASURE = "measure"

_NUMERIC = re.compile(r"[-+0-9.eE]*[0-9][-+0-9.eE]*")


class Unit(StrEnum):
    """What a number may be written in instead: text with a unit of this kind."""

    DURATION = "duration"
    RATE = "rate"
    SIZE = "size"

    def read(self, text: str) -> float | None:
        """The number that a text stands for, in seconds, tuples per second or bytes."""
        return {Unit.DURATION: units.seconds, Unit.RATE: units.rate, Unit.SIZE: units.size}[self](text)

    @property
    def hint(self) -> str:
        """How to write one."""
        return {Unit.DURATION: units.DURATION_HINT, Unit.RATE: units.RATE_HINT, Unit.SIZE: units.SIZE_HINT}[self]


@dataclass
class ProblemReport:
    """All problems found so far, and the line of every key that was read."""

    problems: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether there are more problems than anyone reads: then looking for more is in vain."""
        return len(self.problems) >= MAX_PROBLEMS

    def add(self, key: str, message: str, *, line: int | None = None) -> None:
        """Note a problem; without a line, the key's own line is taken."""
        if not self.full:
            self.problems.append(Problem(key, self.lines.get(key) if line is None else line, message))

    def unknown_everywhere(self, what: str, uses: Mapping[str, list[str]], known: Iterable[str]) -> None:
        """Note unknown names by the keys that use them; a name used all over is told a few times only."""
        names = list(known)
        for name, keys in uses.items():
            for key in keys[:_TOLD]:
                self.unknown(key, what, name, names)
            if len(keys) > _TOLD:
                self.add(keys[_TOLD], f"the same unknown {what} {shorten(name)}, {len(keys) - _TOLD} times more")

    def unknown(self, key: str, what: str, name: str, known: Iterable[str]) -> None:
        """Note a name that nothing has, with the nearest that exist."""
        if not self.full:
            self.add(key, f"unknown {what} {shorten(name)}; {did_you_mean(name, known)}")


class Fields:
    """The keys of one mapping, read one by one; `finish` reports those that nobody asked for."""

    def __init__(self, located: Located, path: str, report: ProblemReport, *, what: str) -> None:
        self.path = path
        self.report = report
        self.what = what
        self._known: dict[str, None] = {}
        self._values: dict[str, Located] = {}
        self._faulty: set[str] = set()
        self._missing: dict[str, str] = {}
        self._broken = not isinstance(located.value, dict) and located.value is not None
        value = located.value
        if isinstance(value, dict):
            self._values = value
            report.lines.update((join(path, key), item.key_line) for key, item in value.items())
        elif value is not None:
            report.add(path, f"must be a mapping of settings such as {{key: value}}, not {describe(value)}")

    def get(self, key: str) -> Located | None:
        """The raw value of a key, None when it is not given."""
        self._known[key] = None
        return self._values.get(key)

    def has(self, key: str) -> bool:
        """Whether the key is given, with whatever value."""
        return key in self._values

    def fault(self, key: str, message: str, found: Located | None = None) -> None:
        """Report something wrong with a key's value, the first thing only."""
        if key in self._faulty:
            return
        self._faulty.add(key)
        path = join(self.path, key)
        lines = self.report.lines
        line = found.line if found is not None else lines.get(path, lines.get(self.path, 1))
        self.report.add(path, message, line=line)

    def missing(self, key: str, remedy: str) -> None:
        """Note a key that must be there; `finish` reports it, unless a mistyped key was meant for it."""
        if not self._broken:
            self._missing[key] = remedy

    def number(
        self,
        key: str,
        *,
        low: float = 0.0,
        high: float = MAX_NUMBER,
        above: bool = False,
        why: str = "",
        unit: Unit | None = None,
    ) -> float | None:
        """A finite number with low <= number <= high (low < number with `above`); None when not given.

        With a unit, text such as `2s` is a number too.
        """
        found = self.get(key)
        return None if found is None else self._number(key, found, found.value, low, high, above, why, unit)

    def measured(self, key: str, *, high: float = MAX_NUMBER, why: str = "", unit: Unit | None = None) -> float | None:
        """A number of at least 0, or None for `measure` and for an empty value: to be measured."""
        found = self.get(key)
        if found is None or found.value is None or found.value == MEASURE:
            return None
        return self._number(key, found, found.value, 0.0, high, False, why, unit)

    def whole(self, key: str, default: int, *, low: int = -(10**9), high: int = 10**9) -> int:
        """A whole number in [low, high]."""
        found = self.get(key)
        if found is None:
            return default
        value = self._number(key, found, found.value, low, high, False, "")
        if value is None:
            return default
        if value != int(value):
            self.fault(key, f"must be a whole number, not {value:g}", found)
        return int(value)

    def counts(self, key: str) -> tuple[float, ...] | None:
        """A list of whole numbers of at least 1."""
        found = self.get(key)
        if found is None:
            return None
        items = found.value if isinstance(found.value, list) else [found]
        counts = [self._number(key, item, item.value, 1, MAX_NUMBER, False, "") for item in items]
        if any(count is not None and count != int(count) for count in counts):
            self.fault(key, "must hold whole numbers of tuples, such as [100, 100]", found)
        return tuple(1.0 if count is None else count for count in counts)

    def duration(self, key: str) -> float | None:
        """Seconds above 0, as a number or as text with a unit: 250ms, 2s, 1m."""
        return self.number(key, above=True, unit=Unit.DURATION)

    def target(self, key: str) -> tuple[float | None, float | None]:
        """Seconds above 0 of a latency target, and its quantile: 2s, or p95 < 3s."""
        found = self.get(key)
        if found is None or not isinstance(found.value, str) or "<" not in found.value:
            return self.duration(key), None
        given = units.latency_target(found.value)
        if given is None or (given[1] or 0.5) < units.LEAST_QUANTILE or (given[1] or 0.5) > units.MOST_QUANTILE:
            self.fault(key, f"must be a target such as 2s or p95 < 3s, not {describe(found.value)}", found)
            return None, None
        return given

    def text(self, key: str, *, pattern: str = r"(?s).+", shape: str = "text") -> str | None:
        """Text of a given shape."""
        found = self.get(key)
        if found is None:
            return None
        if not isinstance(found.value, str) or not re.fullmatch(pattern, found.value):
            self.fault(key, f"must be {shape}, not {describe(found.value)}", found)
            return None
        return found.value

    def names(self, key: str) -> tuple[str, ...] | None:
        """One name or a list of names; None when missing or unusable (then it is reported)."""
        found = self.get(key)
        if found is None:
            return None
        items = found.value if isinstance(found.value, list) else [found]
        if not items or any(not item.text for item in items):
            self.fault(key, "must be a name or a list of names, such as s1 or [s1, s2]", found)
            return None
        return tuple(item.text or "" for item in items)

    def settings(self, key: str) -> dict[str, str]:
        """A mapping of plain values, each kept as its own spelling (Spark's settings are text)."""
        found = self.get(key)
        if found is None:
            return {}
        if not isinstance(found.value, dict) or any(item.text is None for item in found.value.values()):
            self.fault(key, "must be a mapping of plain values, such as {spark.sql.shuffle.partitions: 4}", found)
            return {}
        return {name: item.text or "" for name, item in found.value.items()}

    def finish(self) -> None:
        """Report the keys that were given but mean nothing here, and those that are missing."""
        meant: list[str] = []
        for key in self._values:
            if key not in self._known and not self.report.full:
                self.report.unknown(join(self.path, key), f"key in {self.what}:", key, self._known)
                meant += nearest(key, self._known)
        for key, remedy in self._missing.items():
            if key not in meant:
                self.fault(key, f"is missing; {remedy}")

    def _number(
        self,
        key: str,
        found: Located,
        value: object,
        low: float,
        high: float,
        above: bool,
        why: str,
        unit: Unit | None = None,
    ) -> float | None:
        # A quoted number is text without a unit: refused, so that nobody wonders about the quotes.
        if unit is not None and isinstance(value, str) and not _NUMERIC.fullmatch(value):
            written, value = value, unit.read(value)
            if value is None:
                hint = unit.hint[0].lower() + unit.hint[1:].replace('"', "")
                self.fault(key, f"{shorten(written)} is not a {unit}; {hint}", found)
                return None
        bound = f"a number above {low:g}" if above else f"a number of at least {low:g}"
        if high < MAX_NUMBER:
            bound = f"a number from {low:g} to {high:g}"
        because = f" ({why})" if why else ""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fault(key, f"must be {bound}{because}, not {describe(value)}", found)
            return None
        number = float(value)
        if not math.isfinite(number):
            self.fault(key, f"must be {bound} and finite{because}, not {number}", found)
            return None
        if number < low or (above and number <= low) or number > high:
            limit = f" and at most {MAX_NUMBER:g}" if number > high == MAX_NUMBER else ""
            self.fault(key, f"must be {bound}{limit}{because}, not {number:g}", found)
            return None
        return number


def describe(value: object) -> str:
    """What a wrong value is, in words.

    >>> describe("1.0"), describe(None), describe([])
    ("the text '1.0' (remove the quotes)", 'nothing (give a value or leave the key out)', 'a list')
    """
    if value is None:
        return "nothing (give a value or leave the key out)"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        numeric = _NUMERIC.fullmatch(value)
        return f"the text {shorten(value)}{' (remove the quotes)' if numeric else ''}"
    return f"{value}"


def shorten(text: str) -> str:
    """Quote a text, cut to a length that fits a message."""
    return repr(text if len(text) <= MAX_NAME else text[:MAX_NAME] + "…")
