"""What state takes, by the figures that Spark's state stores give after a batch."""

from __future__ import annotations

from typing import Any

from floodway.spark.query.state_meter import StateMeter, StateSize


def rocks(total: int, updated: int, removed: int, written: int, memory: int = 3_705_676) -> dict[str, Any]:
    """As Spark 4.2 tells of `dropDuplicates` in RocksDB."""
    metrics = {"rocksdbTotalBytesWritten": written, "rocksdbPinnedBlocksMemoryUsage": 2_373_540}
    counts = {"numRowsTotal": total, "numRowsUpdated": updated, "numRowsRemoved": removed}
    return {**counts, "memoryUsedBytes": memory, "customMetrics": metrics}


def test_in_rocksdb_state_falls_with_its_rows_and_its_caches_do_not_count() -> None:
    meter = StateMeter()
    assert meter.size([rocks(0, 0, 0, 0)]) == StateSize(0, 0)
    assert meter.size([rocks(4400, 400, 0, 22_800)]) == StateSize(4400 * 57, 4400)
    assert meter.size([rocks(4000, 0, 400, 15_600)]) == StateSize(4000 * 48, 4000)
    assert meter.size([rocks(500, 0, 0, 0)]) == StateSize(500 * 48, 500)
    assert meter.size([rocks(500, 0, 0, 0, memory=9_000_000)]) == StateSize(500 * 48, 500)


def test_operators_side_by_side_are_told_apart() -> None:
    meter = StateMeter()
    assert meter.size([rocks(100, 10, 0, 500), rocks(10, 10, 0, 5000)]) == StateSize(100 * 50 + 10 * 500, 110)


def test_the_default_store_tells_of_its_newest_version() -> None:
    found: dict[str, Any] = {"numRowsTotal": 7, "memoryUsedBytes": 900, "numRowsUpdated": 1, "numRowsRemoved": 0}
    assert StateMeter().size([{**found, "customMetrics": {"stateOnCurrentVersionSizeBytes": 400}}]).bytes == 400
    assert StateMeter().size([{**found, "customMetrics": {}}]).bytes == 900
    assert StateMeter().size([found]).bytes == 900
