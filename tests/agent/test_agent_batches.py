from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from floodway.agent.loop.batches import BatchFigures, append_figures, latencies_of, read_figures
from floodway.spark.query.fragment_query import BatchReport
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.query.sinks import Written


def report(batch: int, ended: float) -> BatchReport:
    """Two tuples that arrived at 1000.0 and one at 1000.5 to an output, five to a link."""
    delivered = {
        "q1": Written(np.array([1_000_000, 1_000_500]), np.array([2, 1])),
        "a1->b1": Written(np.array([1_000_000]), np.array([5])),
    }
    return BatchReport("B.main", JournaledBatch(batch, 1_001_000, {}), 1001.0, ended, (), delivered)


def test_figures_count_latency_at_outputs_only() -> None:
    figures = BatchFigures.of(report(3, 1002.0), ["q1"], work_seconds=0.7, scale=0.9)
    assert figures.delivered == {"q1": 3, "a1->b1": 5}
    assert figures.latencies == ((1500, 1), (2000, 2))
    seconds, tuples = latencies_of([figures])
    assert np.average(seconds, weights=tuples) == pytest.approx((2 * 2.0 + 1.5) / 3)
    assert figures.ended_seconds - figures.cut_seconds == pytest.approx(1.0)


def test_a_repeated_batch_counts_once_and_a_torn_line_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "node" / "batches.jsonl"
    for batch, ended in ((0, 1002.0), (1, 1003.0), (1, 1010.0)):
        append_figures(path, BatchFigures.of(report(batch, ended), ["q1"], 0.5, 1.0))
    with path.open("a") as file:
        file.write('{"query": "B.main", "batch": 2, "cut_sec')
    found = read_figures(path)
    assert [(item.batch, item.ended_seconds) for item in found] == [(0, 1002.0), (1, 1010.0)]


def test_no_file_is_no_batch(tmp_path: Path) -> None:
    assert read_figures(tmp_path / "none.jsonl") == []
    seconds, tuples = latencies_of([])
    assert len(seconds) == len(tuples) == 0
