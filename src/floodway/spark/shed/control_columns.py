"""The decision in force for the micro-batch that is running, as columns of the stream.

The control table is one small file. An uncorrelated scalar subquery reads it in every micro-batch and gives it to the
plan as one value: no join, no broadcast. A file that is missing or torn gives nulls, and everything is kept.

Spark replaces `current_timestamp()` by the batch's journaled timestamp in the main plan, but not inside subqueries. So
the subquery only delivers the table, and the main plan chooses from it. Spark writes the timestamp as a number into the
code that it generates, and code that differs is compiled anew, which takes longer than all else here. So the timestamp
passes through `zip_with`, which Spark calls and does not compile. All else is compiled: no other higher-order function.
"""

from __future__ import annotations

from zlib import crc32

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.spark.query.drops import column
from floodway.spark.shed.control_table import HIGHEST, LOWEST, PPM, TABLE_SCHEMA

TIME = "_floodway_time"
SEQ = "_floodway_seq"
MODE = "_floodway_mode"
ENFORCED = "_floodway_enforced"
KEEP = "_floodway_keep"
SALT = "_floodway_salt"
THRESHOLD = "_floodway_threshold"
TIE = "_floodway_tie"
QUOTAS = "_floodway_quotas"
AIMED = "_floodway_aimed"
RARE_SHARE = "_floodway_rare_share"
SKIP = "_floodway_skip"
TABLE = "_floodway_table"
"""The columns that `with_control` adds; null without a table, but for the time."""

_ENTRY = "_floodway_entry"
_NOW = "unix_micros(current_timestamp())"

_DELIVERED = """(SELECT named_struct(
    'latest', t.latest,
    'others', t.others, 'begins', t.others.begin_us,
    'last', try_element_at(t.others, -1), 'before', try_element_at(t.others, -2),
    'epochs', t.epochs, 'starts', t.epochs.start_us, 'seqs', t.epochs.seq,
    'epoch', try_element_at(t.epochs, -1), 'former', try_element_at(t.epochs, -2)) FROM {view})"""
"""What is found once in a batch, so that it is not searched for every tuple."""


def with_control(df: DataFrame, uri: str) -> DataFrame:
    """The stream with the decision in force beside every row."""
    timed = df.select("*", fn.expr(f"zip_with(array({_NOW}), array({_NOW}), (time, _) -> time)[0]").alias(TIME))
    found = timed.select("*", fn.expr(_DELIVERED.format(view=_view(df.sparkSession, uri))).alias(TABLE))
    entry = fn.col(_ENTRY)
    expired = fn.coalesce(fn.col(TIME) >= entry["until_us"], fn.lit(False))
    return found.select("*", _in_force().alias(_ENTRY)).select(
        *[column(name) for name in df.columns],
        TIME,
        TABLE,
        entry["seq"].alias(SEQ),
        entry["mode"].alias(MODE),
        ((entry["mode"] == "enforce") & ~expired).alias(ENFORCED),
        fn.when(expired, PPM).otherwise(_keep_in_force(entry, fn.col(TIME))).alias(KEEP),
        entry["salt"].alias(SALT),
        entry["threshold"].alias(THRESHOLD),
        _tie_in_force(entry, fn.col(TIME)).alias(TIE),
        entry["quotas"].alias(QUOTAS),
        entry["keep_ppm"].alias(AIMED),
        entry["rare_ppm"].alias(RARE_SHARE),
        entry["skip"].alias(SKIP),
    )


def epoch_keep(field: str, batch_start_us: Column) -> Column:
    """`pass_ppm` or `emit_ppm` for a batch of windows that starts then; null before the history.

    It is that of the last epoch that the batch's entry knows and that has begun: nearly always one of the last two.
    """
    table = fn.col(TABLE)

    def known(epoch: Column) -> Column:
        return (epoch["seq"] <= fn.col(SEQ)) & (epoch["start_us"] <= batch_start_us)

    # Both numbers only grow in the history.
    index = fn.least(_count_to(table["starts"], batch_start_us), _count_to(table["seqs"], fn.col(SEQ)))
    return fn.coalesce(
        *[fn.when(known(epoch), epoch[field]) for epoch in (table["epoch"], table["former"])],
        fn.get(table["epochs"], (index - 1).cast("int"))[field],
    )


def _view(spark: SparkSession, uri: str) -> str:
    """The table as a view of the session, named by its file, so that several sheds do not meet."""
    view = f"floodway_control_{crc32(uri.encode()):08x}"
    text = (
        spark.read.option("ignoreMissingFiles", "true")  # without its table a query goes on
        .option("wholetext", "true")  # one row, whatever somebody has written into it
        .text(uri)
    )
    text.select(fn.from_json("value", TABLE_SCHEMA).alias("t")).createOrReplaceTempView(view)
    return view


def _in_force() -> Column:
    """`Table.at`: nearly every batch is later than the spans of all others, or in one of the last two."""
    table, now_us = fn.col(TABLE), fn.col(TIME)
    last, before = table["last"], table["before"]
    other = fn.get(table["others"], (_count_to(table["begins"], now_us) - 1).cast("int"))
    found = (
        fn.when(last["begin_us"] <= now_us, last["entry"])
        .when((before["begin_us"] <= now_us) & (now_us < before["end_us"]), before["entry"])
        .when(now_us < other["end_us"], other["entry"])
    )
    return fn.coalesce(fn.when(now_us < last["end_us"], found), table["latest"])


def _count_to(ascending: Column, value: Column) -> Column:
    """How many elements are at most the value; Spark compiles this, and not a `filter`."""
    beyond = value + 1
    padded = fn.sort_array(fn.concat(ascending, fn.array(beyond)))
    return fn.call_function("array_position", padded, beyond) - 1  # `array_position` of Spark 3.5 takes no column


def _tie_in_force(entry: Column, now_us: Column) -> Column:
    """The share of the ties in ppm for this batch, `Entry.tie_at`."""
    moved = entry["tie_ppm"].cast("double") * _keep_in_force(entry, now_us) / fn.greatest(entry["keep_ppm"], fn.lit(1))
    return fn.floor(fn.least(moved, fn.lit(PPM))).cast("int")


def _keep_in_force(entry: Column, now_us: Column) -> Column:
    """The keep in ppm for this batch, as `Entry.keep_at` has it; null without an entry."""
    keep = entry["keep_ppm"]
    offered = entry["rate"] * fn.greatest(now_us - entry["base_us"], fn.lit(1)) / 1e6
    wanted = fn.coalesce(fn.floor(fn.try_divide(PPM * entry["budget"], offered)), fn.lit(PPM))
    bounded = fn.floor(fn.greatest(keep * LOWEST, fn.least(wanted, fn.lit(PPM), keep * HIGHEST)))
    return fn.when(entry["budget"].isNull(), keep).otherwise(bounded).cast("int")
