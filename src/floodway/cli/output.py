"""What every command shares: reading `name=value` options and printing one JSON object."""

from __future__ import annotations

import json
import math
from typing import Any

import typer

from floodway.errors import InputError


def print_json(body: dict[str, Any]) -> None:
    """Print exactly one JSON object on stdout; infinities and NaN become null, as JSON has neither."""
    typer.echo(json.dumps(_clean(body)))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def parse_pairs(text: str, *, option: str) -> dict[str, float]:
    """Read `s1=1,s2=0.5` into numbers.

    >>> parse_pairs("s1=1,s2=0.5", option="--rates")
    {'s1': 1.0, 's2': 0.5}
    """
    pairs: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, number = part.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not equals or not name or not math.isfinite(value) or value < 0:
            raise InputError(
                f"{option}: {part!r} is not name=number with a finite number of at least 0",
                hint=f"Write {option} s1=1,s2=0.5",
            )
        if name in pairs:
            raise InputError(f"{option}: {name!r} is given twice", hint="Give each name once")
        pairs[name] = value
    return pairs
