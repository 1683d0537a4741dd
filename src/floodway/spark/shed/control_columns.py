"""The decision in force for the micro-batch that is running, as columns of the stream.

A scalar subquery reads the control table (`control_view.py`) once in every micro-batch, chooses the entry in force by
the batch's journaled timestamp and computes its keep. What a tuple meets is one value, known before the first of them.

Spark gives `current_timestamp()` the journaled timestamp in the main plan, but not inside subqueries. A common table
expression of the main plan is both: Spark puts the timestamp in, and then moves the expression into the subquery that
reads it. It does so for an expression that is read once; hence one subquery with all that a decision says.

The timestamp is no constant of the code that Spark generates for the stream, so no batch is compiled anew. A table that
is missing or torn gives nulls, and everything is kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from floodway.job.decision import Mode
from floodway.spark.query.drops import column
from floodway.spark.session.stores import is_connect
from floodway.spark.shed.control_table import MODES, table_schema
from floodway.spark.shed.control_view import control_view
from floodway.spark.shed.keys.quotas import rest_sql
from floodway.units import PPM

TIME = "_floodway_time"
ENFORCED = "_floodway_enforced"
KEEP = "_floodway_keep"
DECIDED = "_floodway_decided"
SALT = "_floodway_salt"
THRESHOLD = "_floodway_threshold"
TIE = "_floodway_tie"
QUOTAS = "_floodway_quotas"
AIMED = "_floodway_aimed"
SKIP = "_floodway_skip"
EPOCHS = "_floodway_epochs"
"""The columns that `with_control` adds, those of an option if it is given. Without a table nothing is enforced, and all
others are null.
"""

_DECISION = "_floodway_decision"
_STREAM = "floodway_stream"
_KEEPS = 1 << 20
_NOW = "unix_micros(current_timestamp())"

_EPOCHS = """get(transform(array(filter(epochs, epoch -> epoch.seq <= entry.seq)), known -> struct(
    known, try_element_at(known, -1) AS last, try_element_at(known, -2) AS former)), 0)"""
"""The epochs that the entry knows, and of these what is found once in a batch so that no tuple looks for it."""

_FIELDS = {
    TIME: "time",
    ENFORCED: "coalesce(time < entry.enforced_until_us, false)",
    KEEP: "keep",
    DECIDED: f"(entry.code * 2 + int(time < entry.enforced_until_us)) * {_KEEPS} + keep",
    SALT: "entry.salt",
}
_FIELDS_OF_OPTIONS = {
    "threshold": {
        THRESHOLD: "entry.threshold",
        TIE: f"try_cast(least(double(entry.tie_ppm) * whole / greatest(entry.keep_ppm, 1), {PPM}) AS int)",  # `tie_at`
    },
    "quotas": {QUOTAS: "entry.quotas", AIMED: "entry.keep_ppm"},
    "rare_ppm": {AIMED: rest_sql("entry.keep_ppm", "entry.rare_ppm")},
    "skip": {SKIP: "entry.skip"},
    "epochs": {EPOCHS: _EPOCHS},
}
"""What a decision says, from the time, the entry in force, its keep as a whole, and that of all but rare tuples."""


def with_control(df: DataFrame, uri: str, options: Collection[str]) -> DataFrame:
    """The stream with the decision in force beside every row; `options` as `table_schema` has them."""
    spark = df.sparkSession
    view = control_view(spark, uri, table_schema(options))
    stream = f"{_STREAM}_{uuid4().hex}"
    df.createOrReplaceTempView(stream)
    decided = spark.sql(
        f"WITH {_STREAM}_decision AS ({decision_sql(f'SELECT {_NOW} AS time, t.* FROM {view}', options)}) "
        f"SELECT *, (SELECT decision FROM {_STREAM}_decision) AS {_DECISION} FROM {stream}"
    )
    if not is_connect(spark):  # a plan of Connect names the view until it runs
        spark.catalog.dropTempView(stream)
    return decided.select(
        *[column(name) for name in df.columns], *[fn.col(_DECISION)[name].alias(name) for name in _fields(options)]
    )


def decision_sql(timed_tables: str, options: Collection[str] = ()) -> str:
    """A query for the decision of each row of another query for `time` and the table's columns."""
    entry = (
        "coalesce(get(filter(lookup.others, other -> other.begin_us <= time AND time < other.end_us), 0).entry, "
        "lookup.latest)"
    )  # `Table.at`
    wanted = "greatest(entry.low, least(entry.high, entry.scaled / greatest(time - entry.base_us, 1)))"
    whole = f"try_cast({wanted} AS int)"  # a file that somebody has broken stops no query
    keep = rest_sql("whole", "entry.rare_ppm") if "rare_ppm" in options else "whole"
    said = ", ".join(f"{sql} AS {name}" for name, sql in _fields(options).items())
    entries = f"SELECT *, {entry} AS entry FROM ({timed_tables})"
    keeps = f"SELECT *, {keep} AS keep FROM (SELECT *, {whole} AS whole FROM ({entries}))"
    return f"SELECT struct({said}) AS decision FROM ({keeps})"


def _fields(options: Collection[str]) -> dict[str, str]:
    return _FIELDS | {name: sql for option in options for name, sql in _FIELDS_OF_OPTIONS.get(option, {}).items()}


@dataclass(frozen=True, slots=True)
class Decided:
    """What a batch reports of its decision, in the one number `DECIDED`; `seq` is None without one.

    >>> Decided.read(((7 * 3 + 2) * 2 + 1) * 2**20 + 450_000)
    Decided(seq=7, keep_ppm=450000, mode='enforce', enforced=True)
    """

    seq: int | None = None
    keep_ppm: int | None = None
    mode: Mode | None = None
    enforced: bool = False

    @classmethod
    def read(cls, number: int | None) -> Decided:
        """From that number. A decision to enforce that was not has expired, and everything was kept."""
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
    epochs = fn.col(EPOCHS)
    begun = fn.filter(epochs["known"], lambda epoch: epoch["start_us"] <= batch_start_us)
    return fn.coalesce(
        *[fn.when(epoch["start_us"] <= batch_start_us, epoch[field]) for epoch in (epochs["last"], epochs["former"])],
        fn.try_element_at(begun, fn.lit(-1))[field],
    )
