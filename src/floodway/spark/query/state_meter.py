"""What the state of a query takes, from what Spark says of its state stores after every batch.

    default store    bytes of its newest version; those of all versions do not fall when fewer rows are held
    RocksDB          rows held · bytes written / rows written, over all batches since the start
    another store    the memory that it says it uses

What RocksDB says it uses are its caches and write buffers: some megabytes, for ten rows as for ten thousand. How large
they may become is a setting of the session. A row is written with a head of some bytes, and removed by its key alone:
the mean of both is within a fifth of what keys and values take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_CURRENT = "stateOnCurrentVersionSizeBytes"
_WRITTEN = "rocksdbTotalBytesWritten"


class StateSize(NamedTuple):
    """What operators hold: bytes, and rows of state (of several operators, of all together)."""

    bytes: int
    rows: int


class StateMeter:
    """Measures one run of a query; `stateOperators` of its progress are always the same, in the same order."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[int, int]] = {}

    def size(self, operators: Sequence[Mapping[str, Any]]) -> StateSize:
        """What all of them hold after a batch.

        >>> rocks = {"numRowsTotal": 10, "numRowsUpdated": 2, "numRowsRemoved": 0, "memoryUsedBytes": 3_000_000}
        >>> StateMeter().size([{**rocks, "customMetrics": {"rocksdbTotalBytesWritten": 114}}])
        StateSize(bytes=570, rows=10)
        """
        held = sum(self._bytes(place, one) for place, one in enumerate(operators))
        return StateSize(held, sum(int(one["numRowsTotal"]) for one in operators))

    def _bytes(self, place: int, operator: Mapping[str, Any]) -> int:
        metrics = operator.get("customMetrics") or {}
        if _WRITTEN not in metrics:
            return int(metrics.get(_CURRENT, operator["memoryUsedBytes"]))
        size, rows = self._written.get(place, (0, 0))
        size += int(metrics[_WRITTEN])
        rows += int(operator["numRowsUpdated"]) + int(operator["numRowsRemoved"])
        self._written[place] = size, rows
        return round(int(operator["numRowsTotal"]) * size / max(rows, 1))
