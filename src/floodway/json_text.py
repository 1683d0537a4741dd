"""JSON that others wrote, where whatever is wrong is a `ValueError`; and records and numbers as JSON has them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def load_json(text: str | bytes) -> Any:
    """The value in a JSON text.

    >>> load_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: it is nested too deeply
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def plain_fields(record: Any, *without: str) -> dict[str, Any]:
    """The fields of a dataclass but for some, as JSON can hold them: objects by their own `to_dict`."""
    return {one.name: _plain(getattr(record, one.name)) for one in fields(record) if one.name not in without}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def finite(value: Any) -> Any:
    """The same without infinities and NaN, which JSON lacks: they become null."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
