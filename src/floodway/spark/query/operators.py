"""Operators as DataFrame functions: those named by `run:`, and what stands in for an operator that names none.

Without `run`, a map, filter or delay busy-waits its cost for every tuple and passes its selectivity's share on,
decided by hash: so any network file runs as it stands, with the load it describes. An aggregate without `run` counts
tuples by window and group; a union needs nothing; a join has no default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.functions import named_function
from floodway.network.model import Operator, OperatorKind
from floodway.spark.query.drops import hash_ppm

ARRIVAL = "_arrival"
EVENT_TIME = "event_time"
PPM = 1_000_000


def apply_operator(operator: Operator, inputs: list[DataFrame]) -> DataFrame:
    """What an operator makes of its inputs."""
    if operator.run is not None:
        return _checked(operator, load_function(operator)(*inputs))
    if operator.kind is OperatorKind.UNION:
        merged = inputs[0]
        for other in inputs[1:]:
            merged = merged.unionByName(other, allowMissingColumns=True)
        return delay(merged, operator)
    if operator.kind is OperatorKind.AGGREGATE:
        return count_windows(inputs[0], operator)
    if operator.kind is OperatorKind.JOIN:
        raise InputError(
            f"operators.{operator.name}: a join has no default function",
            hint="Name one with `run: package.module:function`; it gets both DataFrames",
        )
    return delay(inputs[0], operator)


def load_function(operator: Operator) -> Callable[..., Any]:
    """The function that `run: package.module:function` names; one clear error when it cannot be had."""
    return named_function(f"operators.{operator.name}.run", operator.run or "")


def delay(df: DataFrame, operator: Operator) -> DataFrame:
    """Busy-wait `cost` CPU-seconds a tuple, then pass `selectivity` of the tuples (long paper, section 8.1).

    A selectivity above 1 repeats tuples: its whole part for all, one more for its fraction.
    """
    cost = operator.cost or 0.0
    waited = df.mapInArrow(_busy_wait(cost), df.schema) if cost > 0 else df
    whole, fraction = divmod(1.0 if operator.selectivity is None else operator.selectivity, 1.0)
    if fraction == 0.0 and whole == 1.0:
        return waited
    extra = hash_ppm(waited, operator.name) < round(fraction * PPM)
    if whole == 0.0:
        return waited.filter(extra)
    copies = fn.lit(int(whole)) + extra.cast("int")
    return waited.withColumn("_copy", fn.explode(fn.sequence(fn.lit(1), copies))).drop("_copy")


def _busy_wait(cost_seconds: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # CPU time, not wall time: two operators on one core must take twice as long.
            until = time.thread_time() + cost_seconds * batch.num_rows
            while time.thread_time() < until:
                pass
            yield batch

    return wait


def count_windows(df: DataFrame, operator: Operator) -> DataFrame:
    """Count tuples by event-time window and group; a window's arrival is its oldest tuple's."""
    if operator.window is None or EVENT_TIME not in df.columns:
        raise InputError(
            f"operators.{operator.name}: the default aggregate needs `window` and a column {EVENT_TIME!r}",
            hint="Give both, or name a function with `run: package.module:function`",
        )
    size = f"{round(operator.window * 1e6)} microseconds"
    slide = f"{round((operator.slide or operator.window) * 1e6)} microseconds"
    return (
        df.withWatermark(EVENT_TIME, size)
        .groupBy(fn.window(EVENT_TIME, size, slide), *operator.group_by)
        .agg(
            fn.count(fn.lit(1)).alias("count"),
            fn.sum("_weight").alias("estimate"),
            fn.min(ARRIVAL).alias(ARRIVAL),
        )
        .select(fn.col("window.start").alias(EVENT_TIME), *operator.group_by, "count", "estimate", ARRIVAL)
    )


def _checked(operator: Operator, result: Any) -> DataFrame:
    if not isinstance(result, DataFrame):
        raise InputError(
            f"operators.{operator.name}.run: {operator.run} returned a {type(result).__name__}",
            hint="It must return a DataFrame",
        )
    return result
