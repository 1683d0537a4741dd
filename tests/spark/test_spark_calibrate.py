"""CPU time and costs on real Spark, against operators whose cost is known because they busy-wait it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from floodway.errors import InputError
from floodway.network.model import Operator, OperatorKind
from floodway.planning.costs import CostRefiner
from floodway.spark.measure.calibrate import Effort, Input, measure_cost, release, steady_plans, take
from floodway.spark.measure.cpu import CpuMeter
from floodway.spark.query.operators import apply_operator
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.spark

QUICK = Effort(seconds=0.5, repeats=2)


def delay_operator(cost: float) -> Operator:
    return Operator("d", "A", ("s",), OperatorKind.DELAY, cost=cost)


def rows(spark: SparkSession, count: int) -> Input:
    return Input(spark.range(0, count, 1, 1).localCheckpoint(), count)


def busy(df: DataFrame, seconds_each: float) -> DataFrame:
    return apply_operator(delay_operator(seconds_each), [df])


def all_told(spark: SparkSession) -> None:
    """Wait until the status store has heard of all that tasks have done: Spark tells it in a thread of its own."""
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty(1000 * PATIENCE_SECONDS)


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.parametrize("cost", [3e-4, 4e-3])
def test_a_delay_is_measured_within_15_percent(spark: SparkSession, cost: float) -> None:
    found = measure_cost(CpuMeter(spark), lambda frames: busy(frames[0], cost), [rows(spark, 1000)], QUICK)
    print(f"delay {cost}: measured {found.cost:.3g} on {found.tuples} tuples, ratio {found.cost / cost:.3f}")
    assert found.cost == pytest.approx(cost, rel=0.15)


@pytest.mark.timing
@pytest.mark.slow
def test_the_identity_costs_next_to_nothing(spark: SparkSession) -> None:
    found = measure_cost(CpuMeter(spark), lambda frames: frames[0], [rows(spark, 1000)], Effort(0.2, 2, 50_000))
    assert 0 <= found.cost < 2e-6


@pytest.mark.timing
@pytest.mark.slow
def test_batches_of_a_running_node_correct_a_wrong_calibration_within_15_percent(spark: SparkSession) -> None:
    """What a batch costs anyway varies by tens of milliseconds beside other tests: the work must outweigh it."""
    truth = {"a": 1.2e-3, "b": 3.6e-3}
    meter, rng = CpuMeter(spark), np.random.default_rng(5)
    refiner = CostRefiner({"a": 2.9e-3, "b": 1.2e-3}, warmup_batches=4)
    for _ in range(18):
        counts = {"a": int(rng.integers(50, 500)), "b": int(rng.integers(20, 250))}
        before = meter.cpu_seconds()
        for name, count in counts.items():
            busy(spark.range(0, count, 1, 1), truth[name]).write.format("noop").mode("overwrite").save()
        refiner.observe(counts, meter.cpu_seconds() - before)
    found = refiner.costs()
    print(f"refined {found}, {refiner.overhead_seconds:.3f} s a batch")
    assert found == pytest.approx(truth, rel=0.15)


def test_counter_and_stages_tell_the_same_and_python_is_added(spark: SparkSession) -> None:
    counter, stages = CpuMeter(spark), CpuMeter(spark, from_stages=True)
    all_told(spark)
    before, stages_before, python = counter.executor_seconds(), stages.executor_seconds(), counter.python_seconds()
    busy(spark.range(0, 200, 1, 2), 2e-3).groupBy("id").count().write.format("noop").mode("overwrite").save()
    spent, waited = counter.executor_seconds() - before, counter.python_seconds() - python
    assert spent > 0
    all_told(spark)
    assert stages.executor_seconds() - stages_before == pytest.approx(spent, rel=1e-6)
    assert waited > 0.35  # 0.4 s of busy-waiting, less clock ticks
    # Workers may still collect their garbage; no reading falls.
    least, both = counter.executor_seconds() + counter.python_seconds(), counter.cpu_seconds()
    assert least <= both <= counter.executor_seconds() + counter.python_seconds()


def test_readings_go_on_from_where_they_were_when_a_worker_has_ended(spark: SparkSession) -> None:
    """A worker whose function fails is not used again; what it had used must not hide what its successor uses."""
    meter = CpuMeter(spark)

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ValueError("on purpose")

    busy(spark.range(0, 100, 1, 1), 2e-3).write.format("noop").mode("overwrite").save()
    before = meter.python_seconds()
    with pytest.raises(Exception, match="on purpose"):
        spark.range(0, 10, 1, 1).mapInArrow(failing, "id long").write.format("noop").mode("overwrite").save()
    after = meter.python_seconds()
    assert after >= before
    busy(spark.range(0, 150, 1, 1), 2e-3).write.format("noop").mode("overwrite").save()
    assert meter.python_seconds() - after > 0.25  # 0.3 s of busy-waiting, less clock ticks


def test_without_proc_it_says_where_to_measure(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Measure on Linux"):
        CpuMeter(spark, proc=tmp_path)


@pytest.mark.parametrize("count", [1, 7, 100, 101, 250])
def test_a_portion_has_exactly_so_many_rows_evenly_spaced(spark: SparkSession, count: int) -> None:
    portion = take(rows(spark, 100), count)
    ids = [row.id for row in portion.collect()]
    release(portion)
    assert len(ids) == count and ids == sorted(ids)
    assert portion.rdd.getNumPartitions() == 1
    if count <= 100:
        assert len(set(ids)) == count
    gaps = np.diff([*ids, ids[0] + 100])
    assert gaps.max() <= -(-100 // count)


def test_settings_are_put_back_even_after_a_failure(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.adaptive.enabled")

    def fail_inside() -> None:
        with steady_plans(spark):
            raise RuntimeError(spark.conf.get("spark.sql.adaptive.enabled"))

    with pytest.raises(RuntimeError, match="false"):
        fail_inside()
    assert spark.conf.get("spark.sql.adaptive.enabled") == before
