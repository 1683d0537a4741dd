"""The decision in force for the micro-batch that is running, as columns of the stream.

An uncorrelated scalar subquery reads the control table (`control_view.py`) in every micro-batch and gives it to the
plan as one value: no join, no broadcast. A table that is missing or torn gives nulls, and everything is kept.

Spark replaces `current_timestamp()` by the batch's journaled timestamp in the main plan, but not inside subqueries. So
the subquery only delivers the table, and the main plan chooses from it. Spark writes the timestamp as a number into the
code that it generates, and code that differs is compiled anew, which takes longer than all else here. So the timestamp
passes through `zip_with`, which Spark calls and does not compile (an array alone is compiled: Spark puts the timestamp
in after it has folded constants). All else is compiled: no other higher-order function.

Spark copies all columns of the projection that holds the `zip_with`. It is kept apart from the others, which would be
joined to it if they used the time once only: so the table is no column of any row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from floodway.job.decision import Mode
from floodway.spark.query.drops import column
from floodway.spark.shed.control_table import MODES, table_schema
from floodway.spark.shed.control_view import control_view
from floodway.units import PPM

TIME = "_floodway_time"
ENFORCED = "_floodway_enforced"
KEEP = "_floodway_keep"
DECIDED = "_floodway_decided"
SALT = "_floodway_salt"
SEQ = "_floodway_seq"
THRESHOLD = "_floodway_threshold"
TIE = "_floodway_tie"
QUOTAS = "_floodway_quotas"
AIMED = "_floodway_aimed"
RARE_SHARE = "_floodway_rare_share"
SKIP = "_floodway_skip"
TABLE = "_floodway_table"
"""The columns that `with_control` adds, those of an option if it is given. Without a table only the time is known, and
nothing is enforced; all others are null.
"""

_ENTRY = "_floodway_entry"
_BEYOND = "_floodway_beyond"
_KEEPS = 1 << 20
_NOW = "unix_micros(current_timestamp())"

_DELIVERED_EPOCHS = """t.lookup.*, t.epochs, t.epochs.start_us AS starts, t.epochs.seq AS seqs,
    try_element_at(t.epochs, -1) AS epoch, try_element_at(t.epochs, -2) AS former"""
"""What is found once in a batch, so that it is not searched for every tuple."""


def with_control(df: DataFrame, uri: str, options: Collection[str]) -> DataFrame:
    """The stream with the decision in force beside every row; `options` as `table_schema` has them."""
    timed = df.select("*", fn.expr(f"zip_with(array({_NOW}), array({_NOW}), (time, _) -> time)[0]").alias(TIME))
    delivered = f"struct({_DELIVERED_EPOCHS})" if "epochs" in options else "t.lookup"
    view = control_view(df.sparkSession, uri, table_schema(options))
    table = fn.expr(f"(SELECT {delivered} FROM {view})")
    found = timed.select("*", (fn.col(TIME) + 1).alias(_BEYOND), table.alias(TABLE))
    time, entry = fn.col(TIME), fn.col(_ENTRY)
    enforced = fn.coalesce(time < entry["enforced_until_us"], fn.lit(False))
    keep = _keep_in_force(entry, time)
    of_options = {
        "threshold": {THRESHOLD: entry["threshold"], TIE: _tie_in_force(entry, keep)},
        "quotas": {QUOTAS: entry["quotas"], AIMED: entry["keep_ppm"]},
        "rare_ppm": {RARE_SHARE: entry["rare_ppm"], AIMED: entry["keep_ppm"]},
        "skip": {SKIP: entry["skip"]},
        "epochs": {TABLE: fn.col(TABLE), SEQ: entry["seq"]},
    }
    asked = {name: found for option in options for name, found in of_options.get(option, {}).items()}
    return found.select("*", _in_force().alias(_ENTRY)).select(
        *[column(name) for name in df.columns],
        TIME,
        enforced.alias(ENFORCED),
        keep.alias(KEEP),
        entry["code"].alias(DECIDED),
        entry["salt"].alias(SALT),
        *[found.alias(name) for name, found in asked.items()],
    )


def decided() -> Column:
    """Which entry a tuple met, at which keep, and whether it was enforced, in one number.

    It is the same for all tuples of a batch, and cheap to report; null without a table.
    """
    return (fn.col(DECIDED) * 2 + fn.col(ENFORCED).cast("int")) * _KEEPS + fn.col(KEEP)


@dataclass(frozen=True, slots=True)
class Decided:
    """What a batch reports of its decision; `seq` is None without one.

    >>> Decided.read(((7 * 3 + 2) * 2 + 1) * 2**20 + 450_000)
    Decided(seq=7, keep_ppm=450000, mode='enforce', enforced=True)
    """

    seq: int | None = None
    keep_ppm: int | None = None
    mode: Mode | None = None
    enforced: bool = False

    @classmethod
    def read(cls, number: int | None) -> Decided:
        """From the number of `decided`. A decision to enforce that was not has expired, and everything was kept."""
        if number is None:
            return cls()
        code, keep_ppm = divmod(number, _KEEPS)
        (seq, mode), enforced = divmod(code // 2, len(MODES)), code % 2 == 1
        expired = MODES[mode] == "enforce" and not enforced
        return cls(seq, PPM if expired else keep_ppm, MODES[mode], enforced)


def epoch_keep(field: str, batch_start_us: Column) -> Column:
    """`pass_ppm` or `emit_ppm` for a batch of windows that starts then; null before the history.

    It is that of the last epoch that the batch's entry knows and that has begun: nearly always one of the last two.
    """
    table = fn.col(TABLE)

    def known(epoch: Column) -> Column:
        return (epoch["seq"] <= fn.col(SEQ)) & (epoch["start_us"] <= batch_start_us)

    # Both numbers only grow in the history.
    index = fn.least(_count_to(table["starts"], batch_start_us + 1), _count_to(table["seqs"], fn.col(SEQ) + 1))
    return fn.coalesce(
        *[fn.when(known(epoch), epoch[field]) for epoch in (table["epoch"], table["former"])],
        fn.get(table["epochs"], (index - 1).cast("int"))[field],
    )


def _in_force() -> Column:
    """`Table.at`: a batch later than the spans of all others has the latest entry; only one that is repeated is not."""
    table, time = fn.col(TABLE), fn.col(TIME)
    passed = _count_to(table["bounds"], fn.col(_BEYOND)).cast("int")
    return fn.coalesce(fn.when(time < table["end_us"], fn.get(table["entries"], passed)), table["latest"])


def _count_to(ascending: Column, beyond: Column) -> Column:
    """How many elements are less than the value; Spark compiles this, and not a `filter`."""
    padded = fn.sort_array(fn.concat(ascending, fn.array(beyond)))
    return fn.call_function("array_position", padded, beyond) - 1  # `array_position` of Spark 3.5 takes no column


def _tie_in_force(entry: Column, keep: Column) -> Column:
    """The share of the ties in ppm for this batch, `Entry.tie_at`."""
    moved = entry["tie_ppm"].cast("double") * keep / fn.greatest(entry["keep_ppm"], fn.lit(1))
    return fn.floor(fn.least(moved, fn.lit(PPM))).cast("int")


def _keep_in_force(entry: Column, time: Column) -> Column:
    """The keep in ppm for this batch, as `Entry.keep_at` has it; null without an entry."""
    wanted = entry["scaled"] / fn.greatest(time - entry["base_us"], fn.lit(1))
    return fn.greatest(entry["low"], fn.least(entry["high"], wanted)).cast("int")
