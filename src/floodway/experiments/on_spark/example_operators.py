"""Operators of the examples: some that wait for every tuple, and some whose tuples or state take many bytes.

One that waits does so as one that calls a service does: it takes time, and none of the CPU. Five Spark applications on
two cores cannot each be given a CPU to work on; each can be given time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any


def widened(frame: Any) -> Any:
    """500 bytes more in every tuple."""
    return frame.selectExpr("*", "rpad(cast(id AS string), 500, '-') AS body")


def distinct(frame: Any) -> Any:
    """No tuple twice within 10 s: each is held for so long, with 500 bytes more."""
    return widened(frame).withWatermark("_arrival", "10 seconds").dropDuplicates(["body", "_arrival"])


def ms_2(frame: Any) -> Any:
    """2 ms for every tuple."""
    return _waiting(frame, 0.002)


def ms_10(frame: Any) -> Any:
    """10 ms for every tuple."""
    return _waiting(frame, 0.010)


def ms_20(frame: Any) -> Any:
    """20 ms for every tuple."""
    return _waiting(frame, 0.020)


def ms_30(frame: Any) -> Any:
    """30 ms for every tuple."""
    return _waiting(frame, 0.030)


def ms_60(frame: Any) -> Any:
    """60 ms for every tuple."""
    return _waiting(frame, 0.060)


def _waiting(frame: Any, seconds: float) -> Any:
    return frame.mapInArrow(_wait(seconds), frame.schema)


def _wait(seconds: float) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(seconds * batch.num_rows)
            yield batch

    return wait
