"""Random Drop and arc drops as expressions: keep reached, nested, independent between arcs, weighted."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.spark.query.drops import arc_drop, arc_kept, hash_ppm

pytestmark = pytest.mark.spark
SIZE = 40_000


def ids(df: DataFrame) -> set[int]:
    return {row.id for row in df.select("id").collect()}


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(SIZE)


def passed(df: DataFrame, keep_ppm: int, salt: int = 0) -> set[int]:
    return ids(df.filter(hash_ppm(df, salt) < keep_ppm))


def test_the_keep_asked_for_is_reached_and_fates_are_nested(numbers: DataFrame) -> None:
    kept = {ppm: passed(numbers, ppm, salt=5) for ppm in (0, 100_000, 600_000, 1_000_000)}
    assert len(kept[100_000]) / SIZE == pytest.approx(0.1, abs=0.006)
    assert len(kept[600_000]) / SIZE == pytest.approx(0.6, abs=0.01)
    assert set() == kept[0] <= kept[100_000] <= kept[600_000] <= kept[1_000_000] == set(range(SIZE))
    assert passed(numbers, 100_000, salt=5) == kept[100_000]
    assert passed(numbers, 100_000, salt=6) != kept[100_000]


def test_weights_multiply_and_arcs_are_independent(numbers: DataFrame) -> None:
    frame = (
        numbers.withColumn("_id", fn.col("id"))
        .withColumn("_keep:a->b", fn.lit(500_000))
        .withColumn("_keep:a->c.d", fn.lit(400_000))
    )
    both = arc_drop(arc_drop(frame, "a->b"), "a->c.d")
    assert both.count() / SIZE == pytest.approx(0.2, abs=0.01)
    assert {row._weight for row in both.collect()} == {5.0}
    assert frame.filter(arc_kept(frame, "a->b")).count() == arc_drop(frame, "a->b").count()
    with pytest.raises(InputError, match="option `arcs`"):
        arc_drop(frame, "a->x")


def test_the_identity_decides_not_the_payload(numbers: DataFrame) -> None:
    frame = numbers.withColumn("_id", fn.col("id")).withColumn("noise", fn.rand(1))
    other = numbers.withColumn("_id", fn.col("id")).withColumn("noise", fn.rand(2))
    assert passed(frame, 300_000) == passed(other, 300_000)
