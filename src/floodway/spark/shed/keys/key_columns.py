"""Shares by key as columns of the stream: the key of a tuple, its quota, and what a batch tells of its keys.

What is told has the same size whatever the batch holds (`planning/shares.py`): a quantile summary of the keys'
hashes (Spark's `percentile_approx`), a histogram with one bin per tracked key, which is exact because there are no more
values than bins, and the name of one key.

A sample of a batch's tuples with their groups (`planning/estimates/group_sample.py`) in one observed metric.

Spark's `percentile_approx` hands back as they are the whole numbers that points are packed in (`group_keeps.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.job.options.accuracy import Accuracy
from floodway.spark.query.drops import column, literal
from floodway.spark.shed.control_columns import AIMED, KEEP, QUOTAS
from floodway.spark.shed.keys.group_keeps import GROUP_BITS, LEAST_LOG, LOG_STEPS, MAGNITUDES, VALUES
from floodway.spark.shed.keys.quotas import KEY_BITS, MOST_KEYS, MOST_NAME, MOST_STEPS, STEPS
from floodway.spark.shed.quantiles import quantiles
from floodway.units import PPM

KEY = "_floodway_key"
KEY_AT = "_floodway_key_at"
QUOTA = "_floodway_quota"
OVER = "_floodway_over"
LEVEL = "_floodway_level"
OTHERS = "_floodway_others"
COUNTED_KEY = "_floodway_counted_key"
COUNTED_AT = "_floodway_counted_at"
ASKED_NAME = "_floodway_asked_name"

LEVELS = tuple((i + 0.5) / 1000 for i in range(1000))
ACCURACY = 20_000


def with_quota(df: DataFrame, key: Column) -> DataFrame:
    """The stream with `key`, the hash of every tuple's key, its place among the tracked ones (0: none), and its quota.

    A tuple is *over* its share if its key's quota is below that of the keys which are not tracked.
    """
    quotas, limit = fn.col(QUOTAS), fn.lit(PPM)
    found = df.withColumns({KEY: key, LEVEL: _between(quotas["levels"]), OTHERS: fn.floor(_between(quotas["others"]))})
    at = fn.coalesce(_position(quotas["keys"], fn.col(KEY)), fn.lit(0).cast("bigint"))
    base = fn.get(quotas["bases"], (fn.col(KEY_AT) - 1).cast("int"))
    own = fn.floor(fn.least(limit.cast("double"), limit * fn.col(LEVEL) / base + 0.5))
    quota = fn.when(base.isNotNull(), own).otherwise(fn.col(OTHERS))
    moved = fn.when(fn.col(KEEP) < limit, quota).cast("int")
    placed = found.withColumn(KEY_AT, at).withColumn(QUOTA, fn.coalesce(moved, fn.col(KEEP)))
    return placed.withColumn(OVER, fn.coalesce(fn.col(QUOTA) < fn.col(OTHERS), fn.lit(False)))


def key_hash(key: Column, bits: int = KEY_BITS) -> Column:
    """The upper bits of the hash of a key; null is a key as any other."""
    return fn.shiftrightunsigned(fn.xxhash64(key), 64 - bits)


def key_inputs(share_by: str, counted: Column) -> dict[str, Column]:
    """The columns that `key_metrics` are of; tuples that do not count are null."""
    asked = fn.col(KEY) == fn.col(QUOTAS)["asked"]
    name = fn.substring(fn.coalesce(fn.expr(share_by).cast("string"), fn.lit("null")), 1, MOST_NAME)
    return {
        COUNTED_KEY: fn.when(counted, fn.col(KEY)),
        COUNTED_AT: fn.when(counted, fn.col(KEY_AT).cast("double")),  # of a whole number Spark would cut 7.999 to 7
        ASKED_NAME: fn.when(asked, name),
    }


def key_metrics() -> list[Column]:
    """What a batch tells of its keys."""
    return [
        quantiles(fn.col(COUNTED_KEY), LEVELS, ACCURACY).alias("key_points"),
        fn.histogram_numeric(fn.col(COUNTED_AT), fn.lit(MOST_KEYS + 1)).alias("key_counts"),
        fn.max(ASKED_NAME).alias("key_name"),
    ]


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


def _between(values: Column) -> Column:
    """What `Quotas.in_batch` takes of values by step: those of the keep in force, on the line between two steps."""
    at = fn.least(fn.col(KEEP) / fn.greatest(fn.col(AIMED), fn.lit(1)) * STEPS, fn.lit(float(MOST_STEPS)))
    step = fn.floor(at).cast("int")
    low, high = fn.get(values, step), fn.get(values, fn.least(step + 1, fn.lit(MOST_STEPS)))
    return low + (at - step) * (high - low)


POINT = "_floodway_point"
_SALT = "floodway sample"
_HASHES = 1 << 53


def aggregated(accuracy: Accuracy) -> Column:
    """The value of a tuple for the aggregate; null where it does not count."""
    if accuracy.argument == "*":
        return fn.lit(1.0)
    given = fn.expr(accuracy.argument)
    if accuracy.function == "count":
        return fn.when(given.isNotNull(), fn.lit(1.0))
    value = given.cast("double")
    return fn.when(fn.abs(value) < float("inf"), value)  # not for NaN, which is the largest of all


def group_hash(by: str) -> Column:
    """29 bits of the hash of a group's value; null is a group as any other."""
    return key_hash(fn.expr(by), GROUP_BITS)


def sample_inputs(accuracy: Accuracy, identity: Sequence[str], counted: Column) -> dict[str, Column]:
    """The column that `sample_metrics` are of: the point of a tuple that is in the sample, null for any other."""
    value = aggregated(accuracy)
    sizes = fn.col(QUOTAS)["sizes"]
    drawn = key_hash(fn.struct(*[column(name) for name in identity], fn.lit(_SALT)))
    chance = (fn.abs(value) + fn.get(sizes, fn.lit(0))) / fn.get(sizes, fn.lit(1))
    # The first batch finds no sizes: all its tuples are in the sample.
    sampled = counted & value.isNotNull() & fn.coalesce(drawn < chance * fn.lit(float(_HASHES)), fn.lit(True))
    exponent = fn.log2(fn.abs(value)) + fn.lit(LEAST_LOG)
    magnitude = fn.least(fn.greatest(fn.floor(exponent * LOG_STEPS), fn.lit(0)), fn.lit(MAGNITUDES - 1))
    code = fn.coalesce(magnitude, fn.lit(0)) + fn.when(value < 0, MAGNITUDES).otherwise(0)
    return {POINT: fn.when(sampled, fn.col(KEY) * VALUES + code)}


def sample_metrics() -> list[Column]:
    """The points of a batch's sample, and how many tuples they are drawn from."""
    return [quantiles(fn.col(POINT), LEVELS, ACCURACY).alias("sample"), fn.count(POINT).alias("sampled")]
