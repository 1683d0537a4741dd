"""JSON that others wrote: whatever is wrong with it is a `ValueError`."""

from __future__ import annotations

import json
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
