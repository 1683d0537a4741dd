"""Operators whose tuples and whose state take far more bytes than a file declares by default."""

from __future__ import annotations

from typing import Any


def widened(frame: Any) -> Any:
    """500 bytes more in every tuple."""
    return frame.selectExpr("*", "rpad(cast(id AS string), 500, '-') AS body")


def distinct_ids(frame: Any) -> Any:
    """No tuple twice within 10 s: each is held for so long."""
    return frame.withWatermark("_arrival", "10 seconds").dropDuplicates(["id", "_arrival"])
