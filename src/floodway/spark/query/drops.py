"""Random Drop as DataFrame expressions: a tuple's fate is a hash of its identity, so a replay repeats it.

    slot = xxhash64(identity columns, salt) mod 1,000,000;   kept if slot < keep_ppm

Slots are even and independent between salts, and nested for one salt: what is kept at a keep is kept at any higher
one. `rand` would not do: Spark reseeds it in every micro-batch. Survivors carry `_weight`, the product of 1/keep over
all drops passed, for unbiased estimates (`floodway.spark.measure.estimates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.planning.windows.window_keeps import WindowKeeps

ID = "_id"
WEIGHT = "_weight"
_KAFKA_IDENTITY = {"topic": types.StringType(), "partition": types.IntegerType(), "offset": types.LongType()}


def identity_columns(df: DataFrame, identity: Sequence[str] | None = None) -> tuple[str, ...]:
    """What tells tuples apart: the given columns; else `_id`; else the Kafka connector's (topic, partition, offset);
    else all columns that Spark can hash, Floodway's own left out.
    """
    if identity is not None:
        chosen = (identity,) if isinstance(identity, str) else tuple(identity)
        unknown = [name for name in chosen if name not in df.columns]
        if unknown or not chosen:
            raise InputError(
                f"identity columns {', '.join(map(repr, unknown)) or '()'} are not in the stream",
                hint=f"Choose from {', '.join(df.columns)}.",
            )
        return chosen
    if ID in df.columns:
        return (ID,)
    kinds = {field.name: field.dataType for field in df.schema}
    if has_positions(df):
        return tuple(_KAFKA_IDENTITY)
    hashable = [name for name, kind in kinds.items() if can_hash(kind) and not _is_own(name)]
    if not hashable:
        raise InputError(
            f"no column of the stream can be hashed (columns: {', '.join(df.columns)})",
            hint="Add a column that identifies a tuple and name it with identity=.",
        )
    return tuple(hashable)


def has_positions(df: DataFrame) -> bool:
    """Whether tuples carry the Kafka connector's (topic, partition, offset)."""
    kinds = {field.name: field.dataType for field in df.schema}
    return all(kinds.get(name) == kind for name, kind in _KAFKA_IDENTITY.items())


def hash_ppm(df: DataFrame, salt: str | int | Column, identity: Sequence[str] | None = None) -> Column:
    """The tuple's slot in [0, 1,000,000) for a salt (an arc's name, a number, or a column)."""
    salted = salt if isinstance(salt, Column) else fn.lit(salt)
    hashed = fn.xxhash64(*[column(name) for name in identity_columns(df, identity)], salted)
    return fn.pmod(hashed, fn.lit(PPM)).cast("int")


def arc_kept(df: DataFrame, arc: str) -> str:
    """Whether the tuple passes the drop on an arc inside a node, as SQL; its keep is in the column `_keep:<arc>`.

    Expressions that are built in every batch are text: one call to Java each, where columns take a dozen.
    """
    keep = f"_keep:{arc}"
    if keep not in df.columns:
        raise InputError(
            f"the stream carries no column {keep!r}, so it cannot be dropped on {arc}",
            hint="Name the arc in the Floodway source's option `arcs`.",
        )
    identity = ", ".join(quoted(name) for name in identity_columns(df))
    return f"pmod(xxhash64({identity}, {literal(arc)}), {PPM}) < coalesce({quoted(keep)}, {PPM})"


def arc_drop(df: DataFrame, arc: str) -> DataFrame:
    """Drop on an arc inside a node and weight the survivors; arcs are salts, so their drops are independent."""
    before = f"cast({WEIGHT} AS double)" if WEIGHT in df.columns else "1D"
    weight = f"{before} * {PPM}D / greatest(coalesce({quoted(f'_keep:{arc}')}, {PPM}), 1)"
    return df.filter(arc_kept(df, arc)).withColumn(WEIGHT, fn.expr(weight))


def whole_windows(df: DataFrame, keeps: Sequence[WindowKeeps]) -> str:
    """Whether a row's window is kept at all these drops, as SQL; rows without a window are not touched.

    The window is in the column `window`, as Spark makes it, or its start is in `event_time`.
    """
    start = "unix_micros(`window`.`start`)" if "window" in df.columns else "unix_micros(CAST(event_time AS timestamp))"
    fates = []
    for found in keeps:
        shape = found.shape
        first = f"({start} - pmod({start} - {shape.offset_us}L, {shape.batch_us}L))"
        entries = " ".join(f"WHEN {first} >= {at}L THEN {ppm}" for at, ppm in reversed(found.history))
        fates.append(f"pmod(xxhash64({first}, {found.salt}L), {PPM}) < CASE {entries} ELSE 0 END")
    return f"{start} IS NULL OR ({' AND '.join(fates) or 'true'})"


def expression(text: str) -> Column:
    """An SQL expression as a column, for rooms that do not import pyspark."""
    return fn.expr(text)


def column(name: str) -> Column:
    """A column by its exact name, whatever characters are in it."""
    return fn.col(quoted(name))


def time_us(time_column: str) -> Column:
    """An event time in microseconds of the epoch."""
    return fn.unix_micros(column(time_column).cast("timestamp"))


def quoted(name: str) -> str:
    """A column's name in SQL, whatever characters are in it.

    >>> quoted("a`b->c")
    '`a``b->c`'
    """
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text in SQL.

    >>> literal("it's")
    "'it\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _is_own(name: str) -> bool:
    return name == WEIGHT or name.startswith(("_keep:", "_floodway"))


def can_hash(kind: types.DataType) -> bool:
    """Whether Spark hashes values of this type."""
    if isinstance(kind, types.ArrayType):
        return can_hash(kind.elementType)
    if isinstance(kind, types.StructType):
        return all(can_hash(field.dataType) for field in kind)
    return kind.typeName() not in ("map", "variant")  # by name: Spark 3.5 has no VariantType
