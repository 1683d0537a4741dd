"""The control table as columns: the entry, and the window epochs, in force for the micro-batch that is running.

The table is the one row of the broadcast side of a left outer join: a table that is missing or torn gives nulls, and
everything is kept. The look-up by the batch's journaled timestamp is made on that side, once a batch.

Spark writes the timestamp as a number into the code it generates, and code that differs is compiled anew, which takes
longer than all else here. So the timestamp is passed through `zip_with`, which Spark calls and does not compile.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.spark.shed.control_table import HIGHEST, LOWEST, PPM, TABLE_SCHEMA

TIME = "_floodway_time"
SEQ = "_floodway_seq"
MODE = "_floodway_mode"
ENFORCED = "_floodway_enforced"
KEEP = "_floodway_keep"
SALT = "_floodway_salt"
THRESHOLD = "_floodway_threshold"
TIE = "_floodway_tie"
EPOCHS = "_floodway_epochs"
CONTROL = (TIME, SEQ, MODE, ENFORCED, KEEP, SALT, THRESHOLD, TIE, EPOCHS)
"""All columns that `with_control` adds; null without a table, and without an entry that is valid yet."""


def with_control(df: DataFrame, uri: str) -> DataFrame:
    """The stream with the decision in force beside every row."""
    return df.join(fn.broadcast(_in_force(df.sparkSession, uri)), on=fn.lit(True), how="left")


def epoch_keep(field: str, batch_start_us: Column) -> Column:
    """`pass_ppm` or `emit_ppm` for a batch of windows that starts then; null before the history."""
    epochs = fn.col(EPOCHS)

    def begun(epoch: Column) -> Column:
        return epoch["start_us"] <= batch_start_us

    # Nearly every tuple is of the last two epochs; a search of the array costs more than most queries.
    latest, previous = (fn.try_element_at(epochs, fn.lit(-back)) for back in (1, 2))
    return fn.coalesce(
        fn.when(begun(latest), latest[field]),
        fn.when(begun(previous), previous[field]),
        fn.try_element_at(fn.filter(epochs, begun), fn.lit(-1))[field],
    )


def _in_force(spark: SparkSession, uri: str) -> DataFrame:
    """One row, or none if there is no table."""
    times = fn.array(fn.unix_micros(fn.current_timestamp()))
    now = fn.zip_with(times, times, lambda time, _: time)[0]

    def covers(other: Column) -> Column:
        return (other["begin_us"] <= fn.col(TIME)) & (fn.col(TIME) < other["end_us"])

    table = (
        spark.read.schema(TABLE_SCHEMA)
        .option("ignoreMissingFiles", "true")  # without its table a query goes on
        .option("multiLine", "true")  # one row a file, whatever somebody has written into it
        .json(uri)
    )
    other = fn.try_element_at(fn.filter("others", covers), fn.lit(1))
    entry = fn.coalesce(other["entry"], fn.col("latest"))
    return table.select("latest", "others", "epochs", now.alias(TIME)).select(
        TIME,
        entry["seq"].alias(SEQ),
        entry["mode"].alias(MODE),
        (entry["mode"] == "enforce").alias(ENFORCED),
        _keep_in_force(entry, fn.col(TIME)).alias(KEEP),
        entry["salt"].alias(SALT),
        entry["threshold"].alias(THRESHOLD),
        entry["tie_ppm"].alias(TIE),
        fn.filter("epochs", lambda epoch: epoch["seq"] <= entry["seq"]).alias(EPOCHS),
    )


def _keep_in_force(entry: Column, now_us: Column) -> Column:
    """The keep in ppm for this batch, `Entry.keep_at`; null without an entry."""
    keep = entry["keep_ppm"]
    offered = entry["rate"] * fn.greatest(now_us - entry["base_us"], fn.lit(1)) / 1e6
    wanted = fn.coalesce(fn.floor(fn.try_divide(PPM * entry["budget"], offered)), fn.lit(PPM))
    bounded = fn.floor(fn.greatest(keep * LOWEST, fn.least(wanted, fn.lit(PPM), keep * HIGHEST)))
    return fn.when(entry["budget"].isNull(), keep).otherwise(bounded).cast("int")
