"""The control table as columns: the entry, and the window epochs, in force for the micro-batch that is running.

The table is read by a scalar subquery, so that no row is joined and a table that is missing or torn gives null:
everything is kept. Spark puts the batch's journaled timestamp in place of `current_timestamp()` in the main plan but
not inside subqueries (tried), so the subquery only reads, and the look-up is made outside. Both ends of the history
come first, as plain fields, because a search of the array for every tuple would cost more than most queries.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.spark.control_table import HIGHEST, LOWEST, PPM, TABLE_SCHEMA

CONTROL = "_floodway_control"


def batch_time_us() -> Column:
    """The timestamp of the micro-batch, the same in every replay, in microseconds of the epoch."""
    return fn.unix_micros(fn.current_timestamp())


def read_control(spark: SparkSession, path: Path) -> Column:
    """A struct with `history`, `epochs` and the last two of each; null if the table cannot be read."""
    table = (
        spark.read.schema(TABLE_SCHEMA)
        # Without its table a query goes on, and keeps everything.
        .option("ignoreMissingFiles", "true")
        .json(path.as_uri())
    )
    ends = [
        fn.try_element_at(name, fn.lit(-back)).alias(f"{name}_{back}")
        for name in ("history", "epochs")
        for back in (1, 2)
    ]
    return table.select(fn.struct("history", "epochs", *ends)).scalar()


def with_control(df: DataFrame, path: Path) -> DataFrame:
    """The stream with the control struct beside every row; it is one object, shared by all."""
    return df.withColumn(CONTROL, read_control(df.sparkSession, path))


def entry_in_force() -> Column:
    """The entry for this batch, a struct as in `control_table`, from the control column."""
    control, now = fn.col(CONTROL), batch_time_us()
    latest, previous = control["history_1"], control["history_2"]
    return fn.coalesce(
        fn.when(latest["valid_from_us"] <= now, latest),
        fn.when(previous["valid_from_us"] <= now, previous),
        fn.try_element_at(fn.filter(control["history"], lambda entry: entry["valid_from_us"] <= now), fn.lit(-1)),
    )


def keep_in_force(entry: Column) -> Column:
    """The keep in ppm for this batch, `Entry.keep_at`; null without an entry."""
    keep = entry["keep_ppm"]
    offered = entry["rate"] * fn.greatest(batch_time_us() - entry["base_us"], fn.lit(1)) / 1e6
    wanted = fn.coalesce(fn.floor(fn.try_divide(PPM * entry["budget"], offered)), fn.lit(PPM))
    bounded = fn.floor(fn.greatest(keep * LOWEST, fn.least(wanted, fn.lit(PPM), keep * HIGHEST)))
    return fn.when(entry["budget"].isNull(), keep).otherwise(bounded).cast("int")


def epoch_keep(field: str, batch_start_us: Column) -> Column:
    """`pass_ppm` or `emit_ppm` for a batch of windows that starts then; null before the history."""
    control, now = fn.col(CONTROL), batch_time_us()

    def in_force(epoch: Column) -> Column:
        return (epoch["valid_from_us"] <= now) & (epoch["start_us"] <= batch_start_us)

    latest, previous = control["epochs_1"], control["epochs_2"]
    return fn.coalesce(
        fn.when(in_force(latest), latest[field]),
        fn.when(in_force(previous), previous[field]),
        fn.try_element_at(fn.filter(control["epochs"], in_force), fn.lit(-1))[field],
    )
