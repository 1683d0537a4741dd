"""The decision in force for the micro-batch that is running, as columns of the stream.

A scalar subquery reads the control table (`control_view`) once in every micro-batch and finds the entry in force by
the batch's journaled timestamp, and what tuples meet by it.

Spark gives `current_timestamp()` the journaled timestamp in the main plan, but not inside subqueries. A common table
expression of the main plan is both: Spark puts the timestamp in, and then moves the expression into the subquery that
reads it. It does so for an expression that is read once. In the main plan itself the timestamp would be a constant of
the code that Spark generates, and every batch would be compiled anew.

All that follows from the entry is computed in the subquery, once per batch and while Spark plans it: in the main plan
code would be generated for it in every batch. Spark would copy the subquery to each place that asks for a part of what
it found, and plan every copy; it does not copy what it takes for nondeterministic.

A table that is missing or torn gives nulls, and everything is kept.

The table is a view of one row. A Classic session: a row in the driver's memory, which the loop replaces after it has
written the file. A batch then reads nothing from a disk and starts no Spark job for it, and executors need not reach
the file. Spark Connect, or a platform that keeps Python from Spark's classes: the file itself, read by Spark in every
batch.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary
from zlib import crc32

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.job.decision import Mode
from floodway.spark.query.drops import column
from floodway.spark.session.stores import is_connect
from floodway.spark.shed.control_table import MODES, table_schema
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


log = logging.getLogger(__name__)

_lock = Lock()
_rows: WeakKeyDictionary[SparkSession, dict[str, LiveRow]] = WeakKeyDictionary()


class LiveRow:
    """A table in the memory of a Classic session.

    It is the one row of relations that are part of plans, and Spark plans every batch by itself: so the next one finds
    what was put into the row last. What stands there is what Spark has read of the text: no batch reads it again.
    """

    def __init__(self, spark: SparkSession) -> None:
        java: Any = spark._jvm
        self._text = java.org.apache.spark.unsafe.types.UTF8String
        self._optimizer: Any = spark._jsparkSession.sessionState().optimizer()
        self._texts: Any = spark.sql("VALUES (CAST(NULL AS STRING)) AS control(value)")._jdf
        self._lock = Lock()
        self._put: bytes | None = None
        self._read: dict[str, tuple[Any, Any]] = {}

    def put(self, table: bytes) -> None:
        """Let the batches to come find this table; without its JVM there are none."""
        with self._lock:
            self._put = table
            try:
                for schema in self._read:
                    self._fill(schema)
            except Py4JNetworkError as error:
                log.debug("no Spark to decide for: %s", error)

    def frame(self, spark: SparkSession, schema: str) -> DataFrame:
        """The table in the session that the row was made in, as the column `control.table`."""
        with self._lock:
            if schema not in self._read:
                empty: Any = spark.sql(f"VALUES (CAST(NULL AS STRUCT<{schema}>)) AS control(table)")._jdf
                texts = DataFrame(self._texts, spark).select(fn.from_json("value", schema))
                self._read[schema] = texts._jdf.queryExecution().analyzed(), empty
                self._fill(schema)
            return DataFrame(self._read[schema][1], spark)

    def _fill(self, schema: str) -> None:
        """Spark's own optimizer reads a text that it knows: no job is run for it."""
        if self._put is not None:
            reader, empty = self._read[schema]
            _row(self._texts.queryExecution().analyzed()).update(0, self._text.fromString(self._put.decode()))
            found = _row(self._optimizer.execute(reader))
            _row(empty.queryExecution().analyzed()).update(0, found.get(0, reader.schema().head().dataType()))


def _row(plan: Any) -> Any:
    return plan.collectLeaves().head().data().head()


def live_row(spark: SparkSession, uri: str) -> LiveRow | None:
    """The row of the table at `uri`, one for all streams that Spark plans with it; None where there can be none."""
    if is_connect(spark):
        return None
    with _lock:
        rows = _rows.setdefault(spark, {})
        try:
            if uri not in rows:
                row = LiveRow(spark)
                row.put(b'{"probe": 7}')
                if row.frame(spark, "probe int").head() != ((7,),):
                    return None
                rows[uri] = LiveRow(spark)
        except (Py4JError, AttributeError) as error:
            log.info("batches read their decisions from %s: %s", uri, str(error).partition("\n")[0])
        return rows.get(uri)


def control_view(spark: SparkSession, uri: str, schema: str, name: str) -> str:
    """A view of one row with the table as the column `name`; by file and schema, so that several sheds do not meet."""
    view = f"floodway_control_{crc32(f'{uri} {schema}'.encode()):08x}"
    row = _rows.get(spark, {}).get(uri)
    table = _file(spark, uri, schema) if row is None else row.frame(spark, schema)
    table.toDF(name).createOrReplaceTempView(view)
    return view


def _file(spark: SparkSession, uri: str, schema: str) -> DataFrame:
    text = (
        spark.read.option("ignoreMissingFiles", "true")  # without its table a query goes on
        .option("wholetext", "true")  # one row, whatever somebody has written into it
        .text(uri)
    )
    return text.select(fn.from_json("value", schema))
