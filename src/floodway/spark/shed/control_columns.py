"""The decision in force for the micro-batch that is running, as columns of the stream.

A scalar subquery reads the control table (`control_view.py`) once in every micro-batch, chooses the entry in force by
the batch's journaled timestamp and computes its keep. What a tuple meets is one value, known before the first of them.

Spark gives `current_timestamp()` the journaled timestamp in the main plan, but not inside subqueries. A common table
expression of the main plan is both: Spark puts the timestamp in, and then moves the expression into the subquery that
reads it. It does so for an expression that is read once; hence one subquery with all that a decision says. In the main
plan itself the timestamp would be a constant of the code that Spark generates, and every batch would be compiled anew.

A table that is missing or torn gives nulls, and everything is kept.
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

_TABLE = "_floodway_table"
_NOW = "_floodway_now"
_ENTRY = "_floodway_entry"
_DECISION = "_floodway_decision"
_STREAM = "floodway_stream"
_KEEPS = 1 << 20
_BATCH_TIME = "unix_micros(current_timestamp())"

_LOOKUP = f"{_TABLE}.lookup"
_LATER = f"{_NOW} + 1"
_PIECE = f"int(array_position(sort_array(concat({_LOOKUP}.breaks, array({_LATER}))), {_LATER}) - 1)"
_FOUND = f"get({_LOOKUP}.entries, get({_LOOKUP}.which, {_PIECE}))"
"""The entry in force: that of the piece of time which the batch is in (`Table.lookup`)."""

_WHOLE = f"""try_cast(greatest({_ENTRY}.low, least({_ENTRY}.high,
    {_ENTRY}.scaled / greatest({_NOW} - {_ENTRY}.base_us, 1))) AS int)"""
"""Its keep (`Entry.keep_at`). A file that somebody has broken stops no query."""

_KNOWN = f"slice({_TABLE}.epochs, 1, {_ENTRY}.epochs)"
_ENFORCES = f"{_NOW} < {_ENTRY}.enforced_until_us"
_FIELDS = {
    TIME: _NOW,
    ENFORCED: f"coalesce({_ENFORCES}, false)",
    KEEP: KEEP,
    DECIDED: f"({_ENTRY}.code * 2 + int({_ENFORCES})) * {_KEEPS} + {KEEP}",
    SALT: f"{_ENTRY}.salt",
}
_FIELDS_OF_OPTIONS = {
    "threshold": {
        THRESHOLD: f"{_ENTRY}.threshold",
        TIE: f"try_cast(least(double({_ENTRY}.tie_ppm) * {_WHOLE} / greatest({_ENTRY}.keep_ppm, 1), {PPM}) AS int)",
    },
    "quotas": {QUOTAS: f"{_ENTRY}.quotas", AIMED: f"{_ENTRY}.keep_ppm"},
    "rare_ppm": {AIMED: rest_sql(f"{_ENTRY}.keep_ppm", f"{_ENTRY}.rare_ppm")},
    "skip": {SKIP: f"{_ENTRY}.skip"},
    "epochs": {
        EPOCHS: f"named_struct('known', {_KNOWN}, 'last', try_element_at({_KNOWN}, -1), "
        f"'former', try_element_at({_KNOWN}, -2))"
    },
}
"""What a decision says, from the time, the entry in force, its keep as a whole, and that of all but rare tuples."""


def with_control(df: DataFrame, uri: str, options: Collection[str]) -> DataFrame:
    """The stream with the decision in force beside every row; `options` as `table_schema` has them."""
    spark = df.sparkSession
    view = control_view(spark, uri, table_schema(options), _TABLE)
    stream = f"{_STREAM}_{uuid4().hex}"
    df.createOrReplaceTempView(stream)
    decided = spark.sql(
        f"WITH {_STREAM}_decision AS ({decision_sql(view, options)}) "
        f"SELECT *, (SELECT decision FROM {_STREAM}_decision) AS {_DECISION} FROM {stream}"
    )
    if not is_connect(spark):  # a plan of Connect names the view until it runs
        spark.catalog.dropTempView(stream)
    return decided.select(
        *[column(name) for name in df.columns], *[fn.col(_DECISION)[name].alias(name) for name in _fields(options)]
    )


def decision_sql(tables: str, options: Collection[str] = (), time: str = _BATCH_TIME) -> str:
    """A query for the decision of each row of a view of tables, at that time."""
    keep = rest_sql(_WHOLE, f"{_ENTRY}.rare_ppm") if "rare_ppm" in options else _WHOLE
    query = tables
    for name, sql in {_NOW: time, _ENTRY: _FOUND, KEEP: keep}.items():
        query = f"(SELECT *, {sql} AS {name} FROM {query})"
    said = ", ".join(f"{sql} AS {name}" for name, sql in _fields(options).items())
    return f"SELECT struct({said}) AS decision FROM {query}"


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
