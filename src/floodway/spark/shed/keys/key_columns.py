"""Shares by key as columns of the stream: the key of a tuple, its quota, and what a batch tells of its keys.

What is told has the same size whatever the batch holds (`planning/key_loads.py`): a quantile summary of the keys'
hashes (Spark's `percentile_approx`), a histogram with one bin per tracked key, which is exact because there are no more
values than bins, and the name of one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.spark.query.drops import literal
from floodway.spark.shed.control_columns import AIMED, KEEP, QUOTAS
from floodway.spark.shed.keys.quotas import LEAST_FACTOR, MOST_FACTOR, MOST_KEYS
from floodway.units import PPM

KEY = "_floodway_key"
KEY_AT = "_floodway_key_at"
QUOTA = "_floodway_quota"
OVER = "_floodway_over"

LEVELS = tuple((i + 0.5) / 1000 for i in range(1000))
ACCURACY = 20_000
KEY_BITS = 53
"""A whole number that survives JSON and doubles."""

MOST_NAME = 80
"""Characters of a key's name in the status."""


def with_quota(df: DataFrame, key: Column) -> DataFrame:
    """The stream with `key`, the hash of every tuple's key, its place among the tracked ones (0: none), and its quota.

    A tuple is *over* its share if its key's quota is below that of the keys which are not tracked.
    """
    quotas = fn.col(QUOTAS)
    own = fn.get(quotas["keeps"], (fn.col(KEY_AT) - 1).cast("int"))
    found = df.withColumn(KEY, key)
    placed = found.withColumn(KEY_AT, fn.coalesce(_position(quotas["keys"], fn.col(KEY)), fn.lit(0).cast("bigint")))
    return placed.withColumns(
        {
            QUOTA: fn.coalesce(_moved(fn.coalesce(own, quotas["others_ppm"])), fn.col(KEEP)),
            OVER: fn.coalesce(own < quotas["others_ppm"], fn.lit(False)),
        }
    )


def key_hash(key: Column, bits: int = KEY_BITS) -> Column:
    """The upper bits of the hash of a key; null is a key as any other."""
    return fn.shiftrightunsigned(fn.xxhash64(key), 64 - bits)


def key_metrics(share_by: str, counted: Column) -> list[Column]:
    """What a batch tells of the keys of the tuples that count."""
    asked = fn.col(KEY) == fn.col(QUOTAS)["asked"]
    name = fn.substring(fn.coalesce(fn.expr(share_by).cast("string"), fn.lit("null")), 1, MOST_NAME)
    return [
        fn.percentile_approx(fn.when(counted, fn.col(KEY)), list(LEVELS), ACCURACY).alias("key_points"),
        fn.histogram_numeric(fn.when(counted, fn.col(KEY_AT)), fn.lit(MOST_KEYS + 1)).alias("key_counts"),
        fn.max(fn.when(asked, name)).alias("key_name"),
    ]


def key_counts(histogram: Sequence[Any]) -> dict[int, int]:
    """Tuples by place among the tracked keys. A place stands in as many bins as partitions counted it."""
    found: dict[int, int] = {}
    for one in histogram:
        found[int(one["x"])] = found.get(int(one["x"]), 0) + round(one["y"])
    return found


def keep_of_key(key: Column, quotas: Sequence[tuple[int, int]], others_ppm: int) -> Column:
    """The quota of a tuple in a finished batch, by the hash of its key."""
    if not quotas:
        return fn.lit(others_ppm)
    keys, keeps = fn.lit([key for key, _ in quotas]), fn.lit([ppm for _, ppm in quotas])
    at = _position(keys.cast("array<bigint>"), key)
    return fn.coalesce(fn.get(keeps, (at - 1).cast("int")), fn.lit(others_ppm))


def hashed_weights(df: DataFrame, share_by: str, weights: Sequence[tuple[str, float]]) -> dict[int, float]:
    """The weights by the hash of their key, whose text Spark reads as a value of the key's type."""
    if not weights:
        return {}
    kind = df.select(fn.expr(share_by)).schema[0].dataType.simpleString()
    values = [fn.expr(f"try_cast({literal(name)} AS {kind})") for name, _ in weights]
    found = df.sparkSession.range(1).select(*[fn.when(value.isNotNull(), key_hash(value)) for value in values])
    hashes = found.collect()[0]
    for hashed, (name, _) in zip(hashes, weights, strict=True):
        if hashed is None:
            raise InputError(
                f"weights= names {name!r}, and share_by= is of type {kind}", hint="Name keys as the stream has them."
            )
    return {hashed: weight for hashed, (_, weight) in zip(hashes, weights, strict=True)}


def _position(keys: Column, key: Column) -> Column:
    return fn.call_function("array_position", keys, key)  # `array_position` of Spark 3.5 takes no column


def _moved(ppm: Column) -> Column:
    """`Quotas.moved` as a column."""
    whole, limit = fn.col(QUOTAS)["whole_ppm"], fn.lit(PPM)
    factor = (fn.col(KEEP) - whole) / fn.greatest(fn.col(AIMED) - whole, fn.lit(1))
    bounded = fn.least(fn.greatest(factor, fn.lit(LEAST_FACTOR)), fn.lit(MOST_FACTOR))
    moved = fn.floor(fn.least(limit.cast("double"), ppm * bounded)).cast("int")
    return fn.when((ppm >= limit) | (fn.col(KEEP) >= limit), limit).otherwise(moved)
