"""The decision in force for the micro-batch that is running, as columns of the stream.

A scalar subquery reads the control table (`control_view.py`) once in every micro-batch and finds the entry in force by
the batch's journaled timestamp, and what tuples meet by it.

Spark gives `current_timestamp()` the journaled timestamp in the main plan, but not inside subqueries. A common table
expression of the main plan is both: Spark puts the timestamp in, and then moves the expression into the subquery that
reads it. It does so for an expression that is read once. In the main plan itself the timestamp would be a constant of
the code that Spark generates, and every batch would be compiled anew.

All that follows from the entry is computed in the subquery, once per batch and while Spark plans it: in the main plan
code would be generated for it in every batch. Spark would copy the subquery to each place that asks for a part of what
it found, and plan every copy; it does not copy what it takes for nondeterministic.

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
_FOUND = "_floodway_found"
_ENTRY = "_floodway_entry"
_STREAM = "floodway_stream"
_KEEPS = 1 << 20
_BATCH_TIME = "unix_micros(current_timestamp())"

_LOOKUP = f"{_TABLE}.lookup"
_LATER = "{time} + 1"
_PIECE = f"int(array_position(sort_array(concat({_LOOKUP}.breaks, array({_LATER}))), {_LATER}) - 1)"
_IN_FORCE = f"get({_LOOKUP}.entries, get({_LOOKUP}.which, {_PIECE}))"
"""The entry in force: that of the piece of time which the batch is in (`Table.lookup`)."""

_KNOWN = f"slice({_TABLE}.epochs, 1, {_ENTRY}.epochs)"
_WHOLE = f"""try_cast(greatest({_ENTRY}.low, least({_ENTRY}.high,
    {_ENTRY}.scaled / greatest({TIME} - {_ENTRY}.base_us, 1))) AS int)"""
"""Its keep (`Entry.keep_at`). A file that somebody has broken stops no query."""

_ENFORCES = f"{TIME} < {_ENTRY}.enforced_until_us"
_FIELDS = {
    TIME: TIME,
    ENFORCED: _ENFORCES,
    KEEP: _WHOLE,
    SALT: f"{_ENTRY}.salt",
}
_FIELDS_OF_OPTIONS = {
    "threshold": {
        THRESHOLD: f"{_ENTRY}.threshold",
        TIE: f"try_cast(least(double({_ENTRY}.tie_ppm) * {_WHOLE} / greatest({_ENTRY}.keep_ppm, 1), {PPM}) AS int)",
    },
    "quotas": {QUOTAS: f"{_ENTRY}.quotas", AIMED: f"{_ENTRY}.keep_ppm"},
    "rare_ppm": {
        KEEP: rest_sql(_WHOLE, f"{_ENTRY}.rare_ppm"),
        AIMED: rest_sql(f"{_ENTRY}.keep_ppm", f"{_ENTRY}.rare_ppm"),
    },
    "skip": {SKIP: f"{_ENTRY}.skip"},
    "epochs": {
        EPOCHS: f"named_struct('known', {_KNOWN}, 'last', try_element_at({_KNOWN}, -1),"
        f" 'former', try_element_at({_KNOWN}, -2))"
    },
}
"""What a decision says, from the batch's time and the entry in force: its keep is that of all but rare tuples."""


def with_control(df: DataFrame, uri: str, options: Collection[str]) -> DataFrame:
    """The stream with the decision in force beside every row; `options` as `table_schema` has them."""
    spark = df.sparkSession
    view = control_view(spark, uri, table_schema(options), _TABLE)
    stream = f"{_STREAM}_{uuid4().hex}"
    df.createOrReplaceTempView(stream)
    once = f"if(spark_partition_id() < 0, null, (SELECT {_FOUND} FROM {_STREAM}_decision))"
    found = spark.sql(
        f"WITH {_STREAM}_decision AS ({in_force_sql(view, options)}) SELECT *, {once} AS {_FOUND} FROM {stream}"
    )
    if not is_connect(spark):  # a plan of Connect names the view until it runs
        spark.catalog.dropTempView(stream)
    return found.select(*[column(name) for name in df.columns], *decision_columns(options))


def in_force_sql(tables: str, options: Collection[str] = (), time: str = _BATCH_TIME) -> str:
    """A query for the decision in force at that time, for each row of a view of tables."""
    fields = _fields(options)
    fields[DECIDED] = f"({_ENTRY}.code * 2 + int({_ENFORCES})) * {_KEEPS} + {fields[KEEP]}"
    found = ", ".join(f"'{name}', {sql}" for name, sql in fields.items())
    entry = f"SELECT {time} AS {TIME}, {_IN_FORCE} AS {_ENTRY}, {_TABLE} FROM {tables}".replace("{time}", time)
    return f"SELECT named_struct({found}) AS {_FOUND} FROM ({entry})"


def decision_columns(options: Collection[str] = ()) -> list[Column]:
    """What the decision in force says."""
    found = fn.col(_FOUND)
    enforced = fn.coalesce(found[ENFORCED], fn.lit(False)).alias(ENFORCED)
    others = [found[name].alias(name) for name in (*_fields(options), DECIDED) if name != ENFORCED]
    return [enforced, *others]


def _fields(options: Collection[str]) -> dict[str, str]:
    fields = dict(_FIELDS)
    for option in options:
        fields |= _FIELDS_OF_OPTIONS.get(option, {})
    return fields


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
