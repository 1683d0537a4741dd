"""The control table as a view of one row, which the subquery of every micro-batch reads.

A Classic session: a row in the driver's memory, which the loop replaces after it has written the file. A batch then
reads nothing from a disk and starts no Spark job for it, and executors need not reach the file.
Spark Connect, or a platform that keeps Python from Spark's classes: the file itself, read by Spark in every batch.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.spark.session.stores import is_connect

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
