"""Errors that Spark or a Python worker wrapped, in one line."""

from __future__ import annotations

import re

_RAISED = re.compile(r"^floodway\.[\w.]*?(\w+Error): (.+)$", re.MULTILINE)


def own_message(error: BaseException) -> str | None:
    """Floodway's own message inside an error that Spark or a Python worker wrapped; None if there is none.

    >>> own_message(RuntimeError("Traceback\\nfloodway.spark.log.errors.MissingLogError: no log at x\\n at y"))
    'no log at x'
    """
    found = _RAISED.findall(str(error))
    return str(found[-1][1]).strip() if found else None


def explain(error: BaseException) -> str:
    """The one line that matters in an error that Spark wrapped: Floodway's own message, or the first line."""
    return own_message(error) or str(error).strip().splitlines()[0]
