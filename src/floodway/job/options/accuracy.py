"""An accuracy target: how narrow the bounds of an estimated aggregate are to be.

>>> Accuracy("sum(price)", by="page", within=0.01).argument
'price'
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from floodway.errors import InputError
from floodway.planning.estimates.accuracy import Function
from floodway.units import duration_us

Preference = Literal["accuracy", "latency"]

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_FUNCTIONS: dict[str, Function] = {"count": "count", "sum": "sum", "avg": "avg", "mean": "avg"}
_EXTREMES = ("max", "min", "max_by", "min_by", "first", "last", "any_value", "mode")
_QUANTILES = ("median", "percentile", "percentile_approx", "approx_percentile", "percentile_cont", "percentile_disc")
_DISTINCT = ("approx_count_distinct", "collect_set", "hll_sketch_agg")
_WORDS = re.compile(r"\s+(by|within|share|over|prefer)\s+", re.IGNORECASE)
TEXT_HINT = "Write sum(price) by page within 0.05 over 1m prefer latency"
HINT = 'Give count(*), or count, sum or avg of an expression: "sum(price)"'


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The 95% bounds of `aggregate`, a count, sum or avg, are to be no wider than `within` of its value.

    - `by`: a column or expression: the bounds are those of each of its values; left out, of all tuples together;
    - `share`: of these groups, the largest that together carry so much of the total count;
    - `over`: the length of the windows that the results are about ("1m"); left out, a batch is one;
    - `prefer`: where accuracy and latency cannot both be had, which of them is held.
    """

    aggregate: str
    by: str | None = None
    within: float = 0.01
    share: float = 0.8
    over: str | float | None = None
    prefer: Preference = "accuracy"

    def __post_init__(self) -> None:
        self._read()
        for name, most in (("within", 1.0), ("share", 1.0)):
            _check_share(name, getattr(self, name), most)
        if self.by is not None and not (isinstance(self.by, str) and self.by.strip()):
            raise InputError(f"accuracy: by={self.by!r} is no column or expression", hint='by="page", say')
        if self.prefer not in get_args(Preference):
            raise InputError(f"accuracy: prefer={self.prefer!r} is not known", hint='Write "accuracy" or "latency"')
        if self.over is not None:
            duration_us("accuracy: over", self.over)

    @classmethod
    def of(cls, text: str) -> Accuracy:
        """From text, as a setting has it.

        >>> Accuracy.of("sum(price) by page within 5% over 1m prefer latency") == Accuracy(
        ...     "sum(price)", by="page", within=0.05, over="1m", prefer="latency")
        True
        >>> Accuracy.of(Accuracy("count(*)", over="1m").text) == Accuracy("count(*)", over="1m")
        True
        """
        aggregate, *rest = _WORDS.split(text.strip())
        given: dict[str, Any] = dict(zip(rest[::2], rest[1::2], strict=True))
        if len(given) < len(rest) // 2:
            raise InputError(f"accuracy: {text!r} says something twice", hint=TEXT_HINT)
        for name in ("within", "share"):
            if name in given:
                given[name] = _share(text, name, given[name])
        return cls(aggregate, **given)

    @property
    def text(self) -> str:
        """The text that `of` reads."""
        over = "" if self.over is None else f" over {self.over}"
        return f"{self} within {self.within:g} share {self.share:g}{over} prefer {self.prefer}"

    @property
    def function(self) -> Function:
        """The aggregate's function."""
        return self._read()[0]

    @property
    def argument(self) -> str:
        """What the function is applied to; `*` for all tuples."""
        return self._read()[1]

    @property
    def over_seconds(self) -> float | None:
        """The length of a window; None: a batch."""
        return None if self.over is None else duration_us("accuracy: over", self.over) / 1e6

    def __str__(self) -> str:
        return f"{self.aggregate.strip()}{'' if self.by is None else f' by {self.by}'}"

    def _read(self) -> tuple[Function, str]:
        text = self.aggregate
        found = _CALL.fullmatch(text) if isinstance(text, str) else None
        if found is None or not _is_one_call(found[2]):
            raise InputError(f"accuracy: {text!r} is no aggregate", hint=HINT)
        name, argument = found[1].lower(), found[2].strip()
        distinct = re.match(r"distinct\b", argument, re.IGNORECASE) is not None
        if name not in _FUNCTIONS or distinct:
            raise InputError(f"accuracy: {text!r} cannot be estimated with bounds: {_why(name, distinct)}", hint=HINT)
        function = _FUNCTIONS[name]
        if not argument or (argument == "*" and function != "count"):
            raise InputError(f"accuracy: {text!r} is of no value", hint=HINT)
        return function, argument


def _share(text: str, name: str, value: str) -> float:
    percent = value.endswith("%")
    try:
        return float(value.removesuffix("%")) / (100.0 if percent else 1.0)
    except ValueError:
        raise InputError(f"accuracy: {text!r}: {name} {value} is no number", hint=TEXT_HINT) from None


def _why(name: str, distinct: bool) -> str:
    if distinct or name in _DISTINCT:
        return "a sample does not say how many values it has not seen"
    if name in _EXTREMES:
        return "it is one tuple's value, and that tuple may be dropped"
    if name in _QUANTILES:
        return "a weighted sum is needed, and a quantile is none"
    return f"{name} is none of count, sum and avg"


def _is_one_call(argument: str) -> bool:
    """Whether the parentheses round this text belong together: not those of "sum(a) / sum(b)"."""
    depth = 0
    for character in re.sub(r"'(?:[^'\\]|\\.)*'", "", argument):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


def _check_share(name: str, value: Any, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= most or math.isnan(value):
        raise InputError(f"accuracy: {name}={value!r} is no share in (0, {most:g}]", hint=f"{name}=0.05, say")
