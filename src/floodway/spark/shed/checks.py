"""Look at the stream that a shed is applied to, before anything is written: refuse options that do not fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import NumericType

from floodway.errors import InputError
from floodway.spark.query.drops import WEIGHT, can_hash, has_positions, identity_columns
from floodway.spark.shed.options import ShedOptions, names_of

if TYPE_CHECKING:
    from floodway.job.options.accuracy import Accuracy

TIMESTAMP = "timestamp"
"""The column that says how old a tuple is, where the user does not name one: Kafka's."""

_TIMESTAMPS = ("timestamp", "timestamp_ntz")

_ONE_TO_ONE = frozenset({"Project", "SubqueryAlias", "EventTimeWatermark", "View"})
"""Nodes of a plan that hand on as many rows as they get."""


def check_columns(df: DataFrame, shed: str, options: ShedOptions) -> None:
    """InputError for an option that names no column of the stream, or one of another type."""
    taken = [name for name in df.columns if name.startswith("_floodway_")]
    if taken:
        raise InputError(
            f"the stream already has columns {', '.join(taken)}",
            hint="Rename them; the names are Floodway's.",
        )
    named = {"arrival": options.arrival, "window": None if options.window is None else options.window.time_column}
    for option, name in named.items():
        if name is not None and name not in df.columns:
            raise InputError(
                f"shed {shed!r}: {option}= names {name!r}, which is no column of the stream",
                hint=f"Choose from {', '.join(df.columns)}.",
            )
    if options.arrival is not None:
        kind = df.schema[options.arrival].dataType.simpleString()
        if kind not in _TIMESTAMPS:
            raise InputError(
                f"shed {shed!r}: arrival= names {options.arrival!r}, which is of type {kind}, not a timestamp",
                hint=f"The stream has {_timestamps(df)}.",
            )
    keys = names_of(options.key) or ()
    missing = [name for name in keys if name not in df.columns]
    if missing:
        raise InputError(
            f"shed {shed!r}: key= names {', '.join(map(repr, missing))}, no column of the stream",
            hint=f"Choose from {', '.join(df.columns)}.",
        )
    if options.window is None:
        identity_columns(df, names_of(options.key) or names_of(options.identity))
    if options.share_by is not None:
        _check_key(df, shed, "share_by", options.share_by)
    if options.rare_by is not None:
        _check_key(df, shed, "rare_by", options.rare_by)
    if options.skip_when_lag is not None and not has_positions(df):
        raise InputError(
            f"shed {shed!r}: skip_when_lag= skips by Kafka's positions, and the stream has no columns topic, partition "
            "and offset of their types",
            hint="Put the line right after a Kafka source, or use max_age=",
        )
    if options.max_age is not None:
        _check_timestamp(df, shed, options.timestamp or TIMESTAMP)
    if options.accuracy is not None:
        _check_accuracy(df, shed, options.accuracy)
    _check_numbers(df, shed, options)


def _check_accuracy(df: DataFrame, shed: str, accuracy: Accuracy) -> None:
    if accuracy.by is not None:
        _check_key(df, shed, "accuracy: by", accuracy.by)
    if accuracy.argument == "*":
        return
    try:
        kind = df.select("*", fn.expr(accuracy.argument).alias("_floodway_value")).schema["_floodway_value"].dataType
    except AnalysisException as error:
        what = f"shed {shed!r}: accuracy= estimates {accuracy.aggregate!r}, and that is of no expression of the stream"
        raise InputError(what, hint=f"Choose from {', '.join(df.columns)}.") from error
    if accuracy.function != "count" and not isinstance(kind, NumericType):
        raise InputError(
            f"shed {shed!r}: accuracy= estimates {accuracy.aggregate!r}, of type {kind.simpleString()}, not a number",
            hint="Cast it.",
        )


def _check_key(df: DataFrame, shed: str, option: str, key: str) -> None:
    hint = f"Choose from {', '.join(df.columns)}."
    try:
        kind = df.select(fn.expr(key)).schema[0].dataType
    except AnalysisException as error:
        what = f"shed {shed!r}: {option}= is no column or expression of the stream: {key}"
        raise InputError(what, hint=hint) from error
    if kind.typeName() == "void":
        raise InputError(f"shed {shed!r}: {option}= is always null: {key}", hint=hint)
    if not can_hash(kind):
        raise InputError(f"shed {shed!r}: {option}= is of type {kind.simpleString()}, which has no keys", hint=hint)


def _check_timestamp(df: DataFrame, shed: str, timestamp: str) -> None:
    kinds = {field.name: field.dataType.simpleString() for field in df.schema}
    kind = kinds.get(timestamp)
    if kind not in _TIMESTAMPS:
        what = "is no column of the stream" if kind is None else f"is of type {kind}"
        raise InputError(
            f"shed {shed!r}: max_age= needs to know how old a tuple is, and {timestamp!r} {what}",
            hint=f"Name a column of type timestamp by timestamp=; the stream has {_timestamps(df)}.",
        )


def _timestamps(df: DataFrame) -> str:
    """The columns of type timestamp, in words."""
    found = (field.name for field in df.schema if field.dataType.simpleString() in _TIMESTAMPS)
    return ", ".join(found) or "no column of this type"


def _check_numbers(df: DataFrame, shed: str, options: ShedOptions) -> None:
    given = {"utility=": options.utility, f"column {WEIGHT}": f"`{WEIGHT}`" if WEIGHT in df.columns else None}
    for what, value in given.items():
        number = fn.expr(value) if isinstance(value, str) else value
        try:
            kind = None if number is None else df.select(number).schema[0].dataType
        except AnalysisException as error:
            raise InputError(
                f"shed {shed!r}: {what} is no column or expression of the stream: {value}",
                hint=f"Choose from {', '.join(df.columns)}.",
            ) from error
        if kind is not None and not isinstance(kind, NumericType):
            raise InputError(
                f"shed {shed!r}: {what} is of type {kind.simpleString()}, not a number",
                hint="Cast it, or rename the column.",
            )


def stands_on_source(df: DataFrame) -> bool:
    """Whether every row that a source hands over is a row of this DataFrame; False where the plan is not to be had."""
    plan: Any = getattr(df, "_jdf", None)  # Spark Connect has none
    if plan is None:
        return False
    node = plan.queryExecution().analyzed()
    while str(node.nodeName()) in _ONE_TO_ONE:
        node = node.children().apply(0)
    return str(node.nodeName()).startswith("StreamingRelation")
