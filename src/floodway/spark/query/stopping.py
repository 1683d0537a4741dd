"""Stopping a streaming query between two batches, so that none is left half written."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from floodway.spark.query.journal import committed_batches

_POLL_SECONDS = 0.02


def stop_between_batches(query: StreamingQuery, checkpoint: Path, grace_seconds: float) -> None:
    """Stop when the query waits for data, or right after its next commit: an overloaded one never waits.

    After `grace_seconds` it is stopped wherever it is; a batch cut short is repeated by the next start.
    """
    deadline = time.monotonic() + grace_seconds
    before = _last_commit(checkpoint)
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        if _last_commit(checkpoint) != before:
            break
        time.sleep(_POLL_SECONDS)
    query.stop()


def _last_commit(checkpoint: Path) -> int:
    return max(committed_batches(checkpoint), default=-1)
