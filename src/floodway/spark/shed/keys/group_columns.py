"""A sample of a batch's tuples with their groups (`planning/estimates/group_sample.py`) in one observed metric.

Spark's `percentile_approx` hands back as they are the whole numbers that points are packed in (`group_points.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as fn

from floodway.job.options.accuracy import Accuracy
from floodway.spark.query.drops import column
from floodway.spark.shed.control_columns import QUOTAS
from floodway.spark.shed.keys.group_points import GROUP_BITS, LEAST_LOG, MAGNITUDES, STEPS, VALUES
from floodway.spark.shed.keys.key_columns import ACCURACY, KEY, LEVELS, key_hash
from floodway.spark.shed.quantiles import quantiles

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
    magnitude = fn.least(fn.greatest(fn.floor(exponent * STEPS), fn.lit(0)), fn.lit(MAGNITUDES - 1))
    code = fn.coalesce(magnitude, fn.lit(0)) + fn.when(value < 0, MAGNITUDES).otherwise(0)
    return {POINT: fn.when(sampled, fn.col(KEY) * VALUES + code)}


def sample_metrics() -> list[Column]:
    """The points of a batch's sample, and how many tuples they are drawn from."""
    return [quantiles(fn.col(POINT), LEVELS, ACCURACY).alias("sample"), fn.count(POINT).alias("sampled")]
