"""The arithmetic of the benchmarks of `shed` on Kafka, on batches whose figures are known."""

from __future__ import annotations

import pytest

from floodway.experiments.bench.kafka_job import BatchFigures, KafkaBatch, batches
from floodway.experiments.bench.kafka_shed import Capacity, batches_until
from floodway.experiments.bench.spark_common import BenchError


def ran(started: float, keep: float, seconds: float = 1.0, offered: int = 1000) -> KafkaBatch:
    return KafkaBatch(started, seconds, offered, round(keep * offered), started - 0.5)


def test_progress_without_records_is_no_batch() -> None:
    times = {"timestamp": "2026-01-01T00:00:10.000Z", "durationMs": {"triggerExecution": 250}}
    seen = {"numInputRows": 8, "observedMetrics": {"bench": {"kept": 6, "arrival": 1767225609.0}}, **times}
    (found,) = batches([seen, {"numInputRows": 0, **times}])
    assert (found.offered, found.kept, found.keep) == (8, 6, 0.75)
    assert found.latency == pytest.approx(1.25)


def test_latency_is_weighted_by_what_was_kept() -> None:
    figures = BatchFigures.of([ran(0.0, 0.2), ran(1.0, 0.2, seconds=2.0), ran(3.0, 0.6)])
    assert figures.latency == pytest.approx((200 * 1.5 + 200 * 2.5 + 600 * 1.5) / 1000)
    assert (figures.processed, figures.offered) == (250.0, 750.0)
    with pytest.raises(BenchError, match="only 1 batches"):
        BatchFigures.of([ran(0.0, 1.0)])


def test_a_step_is_answered_once_two_keeps_in_a_row_are_near_the_last_ones() -> None:
    keeps = [1.0, 1.0, 0.1, 0.2, 0.5, *[0.5] * 8]
    steps = [ran(float(number), keep) for number, keep in enumerate(keeps)]
    # The step comes at 0.5: the batch at 1.0 holds a part of it, the one at 2.0 meets it.
    assert batches_until(steps, 0.5) == 2
    assert batches_until([ran(float(number), 0.5) for number in range(13)], 0.5) == 0
    with pytest.raises(BenchError, match="after the step"):
        batches_until(steps[:6], 0.5)


def test_the_filter_is_tuned_to_the_latency_of_ours() -> None:
    capacity = Capacity(overhead=0.4, cost=1e-5)
    assert capacity.keep_change(3.0, 3.0, 100_000.0) == 0.0
    assert capacity.keep_change(3.0, 2.0, 100_000.0) < 0.0 < capacity.keep_change(2.0, 3.0, 100_000.0)
    with pytest.raises(BenchError, match="an empty batch takes"):
        capacity.rate(0.5)
