"""Estimates from weighted survivors: unbiased, bounds that hold, the same numbers in numpy and in Spark."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from scipy import stats

from floodway.planning.estimates.accuracy import student95
from floodway.spark.measure.estimates import (
    avg_estimate,
    count_estimate,
    estimate_avg,
    estimate_count,
    estimate_sum,
    sum_estimate,
)
from floodway.spark.query.drops import hash_ppm

TRIALS = 500


def population(kind: str, size: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(7)
    return rng.normal(10.0, 3.0, size) if kind == "normal" else rng.exponential(2.0, size)


@pytest.mark.parametrize(
    ("kind", "size", "keep"),
    [
        ("normal", 5000, 0.5),
        ("normal", 5000, 0.05),
        ("exponential", 5000, 0.2),
        ("exponential", 200, 0.2),
        ("normal", 50, 0.2),
        ("normal", 20, 0.5),
    ],
)
def test_bounds_hold_in_93_of_100_trials(kind: str, size: int, keep: float) -> None:
    values = population(kind, size)
    rng = np.random.default_rng(11)
    held = np.zeros(3)
    for _ in range(TRIALS):
        kept = rng.random(size) < keep
        weights = np.full(int(kept.sum()), 1.0 / keep)
        average = avg_estimate(values[kept], weights)
        assert average is not None
        held += (
            count_estimate(weights).holds(size),
            sum_estimate(values[kept], weights).holds(values.sum()),
            average.holds(values.mean()),
        )
    assert min(held) >= 0.93 * TRIALS, dict(zip(("count", "sum", "avg"), held / TRIALS, strict=True))


def test_bounds_hold_when_the_keep_changes_on_the_way() -> None:
    values = population("normal", 3000)
    keeps = np.repeat([1.0, 0.5, 0.1], 1000)
    rng = np.random.default_rng(13)
    held = np.zeros(2)
    for _ in range(TRIALS):
        kept = rng.random(3000) < keeps
        weights = 1.0 / keeps[kept]
        held += (
            count_estimate(weights).holds(3000),
            sum_estimate(values[kept], weights).holds(values.sum()),
        )
    assert min(held) >= 0.93 * TRIALS


def test_estimates_are_unbiased() -> None:
    values = population("exponential", 400)
    rng = np.random.default_rng(17)
    sums, counts = [], []
    for _ in range(TRIALS):
        kept = rng.random(400) < 0.3
        weights = np.full(int(kept.sum()), 1 / 0.3)
        counts.append(count_estimate(weights).value)
        sums.append(sum_estimate(values[kept], weights).value)
    for found, truth in ((counts, 400.0), (sums, float(values.sum()))):
        error = abs(np.mean(found) - truth) / (np.std(found) / math.sqrt(TRIALS))
        assert error < 4.0


def test_nothing_dropped_is_exact() -> None:
    ones = np.ones(5)
    assert count_estimate(ones).low == count_estimate(ones).high == 5.0
    assert sum_estimate([1, 2, 3, 4, 5], ones).low == 15.0
    average = avg_estimate([1, 2, 3, 4, 5], ones)
    assert average is not None
    assert (average.low, average.value, average.high) == (3.0, 3.0, 3.0)


def test_what_little_survives_says_little() -> None:
    alone = avg_estimate([3.0], [10.0])
    assert alone is not None
    assert (alone.low, alone.high) == (-math.inf, math.inf)
    assert avg_estimate([], []) is None
    one = count_estimate([10.0])
    assert one.low >= 1.0
    assert one.high > 50.0


def test_student_against_scipy() -> None:
    for degrees in (1, 2, 3, 4, 5, 10, 30, 1000):
        assert float(student95(np.array(float(degrees)))) == pytest.approx(stats.t.ppf(0.975, degrees), rel=0.01)


@pytest.mark.spark
def test_spark_gives_the_same_numbers(spark: SparkSession) -> None:
    rows = [(i % 3, float(i % 7), 1.0 if i % 5 == 0 else 4.0) for i in range(200)]
    rows += [(3, 2.0, 1.0), (4, 2.0, 8.0), (5, 1.0, 2.0), (5, 4.0, 2.0)]
    frame = spark.createDataFrame(rows, "g int, x double, _weight double")
    found = frame.groupBy("g").agg(
        estimate_count().alias("n"), estimate_sum("x").alias("s"), estimate_avg("x").alias("a")
    )
    for row in found.collect():
        x = [value for group, value, _ in rows if group == row.g]
        w = [weight for group, _, weight in rows if group == row.g]
        average = avg_estimate(x, w)
        assert average is not None
        for column, here in ((row.n, count_estimate(w)), (row.s, sum_estimate(x, w)), (row.a, average)):
            assert (column.value, column.low, column.high) == pytest.approx((here.value, here.low, here.high))


@pytest.mark.spark
def test_nulls_and_nothing_at_all(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1.0, 2.0), (None, 2.0)], "x double, _weight double")
    row = frame.agg(estimate_sum("x").alias("s"), estimate_avg("x").alias("a")).first()
    assert row is not None
    assert row.s.value == 2.0
    assert row.a.value == 1.0
    empty = frame.filter("x > 5").agg(estimate_count().alias("n"), estimate_avg("x").alias("a")).first()
    assert empty is not None
    assert empty.n.value == 0.0
    assert empty.a.value is None


@pytest.mark.spark
def test_survivors_of_a_random_drop_tell_the_whole(spark: SparkSession) -> None:
    frame = spark.range(40_000).withColumn("x", (fn.col("id") % 100).cast("double"))
    kept = frame.filter(hash_ppm(frame, 3, ["id"]) < 200_000).withColumn("_weight", fn.lit(5.0))
    row = kept.agg(estimate_count().alias("n"), estimate_sum("x").alias("s"), estimate_avg("x").alias("a")).first()
    assert row is not None
    # One draw of each; bounds doubled, to fail for a wrong estimate and not for an unlucky salt.
    for found, truth in ((row.n, 40_000.0), (row.s, 49.5 * 40_000), (row.a, 49.5)):
        assert abs(found.value - truth) <= 2 * (found.high - found.value)
