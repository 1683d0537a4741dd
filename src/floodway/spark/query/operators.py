"""Operators as DataFrame functions: those named by `run:`, and what stands in for an operator that names none.

Without `run`, a map, filter or delay busy-waits its cost for every tuple and passes its selectivity's share on,
decided by hash: so any network file runs as it stands, with the load it describes. An aggregate without `run` counts
tuples by window and group; a union needs nothing; a join has count windows (`count_join.py`).

What a function makes of its inputs must carry the arrival of the oldest tuple that is in it: latency counts from there.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, types
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import to_arrow_schema

from floodway.errors import InputError
from floodway.functions import named_function
from floodway.network.model import Operator, OperatorKind
from floodway.spark.log.schema import ARRIVAL, EVENT_TIME
from floodway.spark.query.count_join import (
    ARRIVED,
    IDENTITY,
    SIDE,
    SIDES,
    ColumnSource,
    CountJoin,
    JoinWindows,
    join_batches,
)
from floodway.spark.query.drops import column, hash_ppm, identity_columns
from floodway.spark.query.python_pass.steps import ID, in_one_pass, is_default, step_of
from floodway.units import PPM


def apply_operator(operator: Operator, inputs: list[DataFrame], windows: JoinWindows | None = None) -> DataFrame:
    """What an operator makes of its inputs; `windows` are those of a join by count, None where it has none before."""
    if operator.run is not None:
        return _checked(operator, load_function(operator)(*inputs), inputs)
    if operator.kind is OperatorKind.UNION:
        return delay(merged(inputs), operator)
    if operator.kind is OperatorKind.AGGREGATE:
        return count_windows(inputs[0], operator)
    if operator.kind is OperatorKind.JOIN:
        return join_by_count(operator, inputs[0], inputs[1], windows)
    return delay(inputs[0], operator)


def apply_chain(chain: Sequence[Operator], inputs: list[DataFrame], windows: JoinWindows | None = None) -> DataFrame:
    """What operators that follow each other (`steps.chains`) make of the inputs of the first.

    Those that need Python run in one pass there. Where nothing else does, Spark's own expressions are quicker.
    """
    if len(chain) == 1:
        return apply_operator(chain[0], inputs, windows)
    head = inputs[0] if is_default(chain[0]) else merged(inputs)
    steps = [step_of(operator, "") for operator in chain]
    needing = [step for step in steps if step.cost_seconds > 0]
    if len(needing) > 1 and (not any(step.draws for step in steps) or has_id(head)):
        return head.mapInArrow(in_one_pass(steps), head.schema)
    frame = apply_operator(chain[0], inputs, windows)
    for operator in chain[1:]:
        frame = delay(frame, operator)
    return frame


def has_id(df: DataFrame) -> bool:
    """Whether tuples are told apart by a number that Python can hash as Spark does."""
    return ID in df.columns and isinstance(df.schema[ID].dataType, types.LongType)


def merged(inputs: list[DataFrame]) -> DataFrame:
    """The tuples of all inputs; columns that one of them lacks are null there."""
    found = inputs[0]
    for other in inputs[1:]:
        found = found.unionByName(other, allowMissingColumns=True)
    return found


def load_function(operator: Operator) -> Callable[..., Any]:
    """The function that `run: package.module:function` names; one clear error when it cannot be had."""
    return named_function(f"operators.{operator.name}.run", operator.run or "")


def delay(df: DataFrame, operator: Operator) -> DataFrame:
    """Busy-wait `cost` CPU-seconds a tuple, then pass `selectivity` of the tuples (long paper, section 8.1).

    A selectivity above 1 repeats tuples: its whole part for all, one more for its fraction.
    """
    waiting = replace(step_of(operator, ""), selectivity=1.0)
    waited = df.mapInArrow(in_one_pass([waiting]), df.schema) if waiting.cost_seconds > 0 else df
    whole, fraction = divmod(1.0 if operator.selectivity is None else operator.selectivity, 1.0)
    if fraction == 0.0 and whole == 1.0:
        return waited
    extra = hash_ppm(waited, operator.name) < round(fraction * PPM)
    if whole == 0.0:
        return waited.filter(extra)
    copies = fn.lit(int(whole)) + extra.cast("int")
    return waited.withColumn("_copy", fn.explode(fn.sequence(fn.lit(1), copies))).drop("_copy")


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


def join_by_count(operator: Operator, left: DataFrame, right: DataFrame, windows: JoinWindows | None) -> DataFrame:
    """Join by count windows, in one task: who came last is a matter of all tuples."""
    if operator.windows is None or left.isStreaming or right.isStreaming:
        raise InputError(
            f"operators.{operator.name}: a join by count cannot follow an aggregate or another function's join",
            hint="Name a function with `run: package.module:function`; it gets both DataFrames",
        )
    for name, frame in zip(operator.inputs, (left, right), strict=True):
        if ARRIVAL not in frame.columns:
            raise InputError(
                f"operators.{operator.name}: what comes from {name} has no column {ARRIVAL!r}",
                hint="Let the functions before it keep the column",
            )
    taken = _taken(operator, left, right)
    kinds = {side: {f.name: f.dataType for f in frame.schema} for side, frame in zip(SIDES, (left, right), strict=True)}
    fields = [types.StructField(one.name, kinds[one.side][one.column]) for one in taken]
    own = [types.StructField("_id", types.LongType()), types.StructField(ARRIVAL, kinds["left"][ARRIVAL])]
    schema = types.StructType([*fields, *own, types.StructField("_weight", types.DoubleType())])
    first, second = operator.windows
    join = CountJoin(
        (int(first), int(second)),
        1.0 if operator.selectivity is None else operator.selectivity,
        zlib.crc32(operator.name.encode()),
        operator.cost or 0.0,
    )
    tagged = _tagged(left, 0).unionByName(_tagged(right, 1), allowMissingColumns=True).coalesce(1)
    arrow = to_arrow_schema(schema, timezone="UTC")
    return tagged.mapInArrow(join_batches(join, taken, arrow, windows), schema)


def _tagged(df: DataFrame, side: int) -> DataFrame:
    """The rows of one side, each in a struct, with what the join looks at beside it."""
    identity = fn.xxhash64(*[column(name) for name in identity_columns(df)])
    weight = fn.col("_weight").cast("double") if "_weight" in df.columns else fn.lit(1.0)
    return df.select(
        fn.lit(side).alias(SIDE),
        identity.alias(IDENTITY),
        fn.unix_micros(ARRIVAL).alias(ARRIVED),
        weight.alias("_weighed"),
        fn.struct(*[column(name) for name in df.columns]).alias(SIDES[side]),
    )


def _taken(operator: Operator, left: DataFrame, right: DataFrame) -> list[ColumnSource]:
    """The columns of a result: those of both sides but for what the join makes itself."""
    made = {"_id", ARRIVAL, "_weight"}
    found = {name: ColumnSource(name, "left", name) for name in left.columns if name not in made}
    for name in right.columns:
        if name not in made and not (name in found and name.startswith("_")):
            new = f"{operator.inputs[1]}_{name}" if name in found else name
            found[new] = ColumnSource(new, "right", name)
    return list(found.values())


def _checked(operator: Operator, result: Any, inputs: list[DataFrame]) -> DataFrame:
    if not isinstance(result, DataFrame):
        raise InputError(
            f"operators.{operator.name}.run: {operator.run} returned a {type(result).__name__}",
            hint="It must return a DataFrame",
        )
    if any(ARRIVAL in frame.columns for frame in inputs) and ARRIVAL not in result.columns:
        raise InputError(
            f"operators.{operator.name}.run: what {operator.run} returns has no column {ARRIVAL!r}, "
            "so nobody can tell how late its results are",
            hint=f"Keep the column; in an aggregate min({ARRIVAL}), in a join the least of both",
        )
    return result
