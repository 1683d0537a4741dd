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
    """A relation of one text in the memory of a Classic session.

    The relation is a part of the plans that were made with it, and Spark plans every batch by itself: so the next one
    finds what was put into the row last.
    """

    def __init__(self, spark: SparkSession) -> None:
        java: Any = spark._jvm
        self._text = java.org.apache.spark.unsafe.types.UTF8String
        self._relation: Any = spark.sql("VALUES (CAST(NULL AS STRING)) AS control(value)")._jdf
        self._row: Any = self._relation.queryExecution().analyzed().collectLeaves().head().data().head()

    def put(self, table: bytes) -> None:
        """Let the batches to come find this table; without its JVM there are none."""
        try:
            self._row.update(0, self._text.fromString(table.decode()))
        except Py4JNetworkError as error:
            log.debug("no Spark to decide for: %s", error)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The relation in the session that it was made in."""
        return DataFrame(self._relation, spark)


def live_row(spark: SparkSession, uri: str) -> LiveRow | None:
    """The row of the table at `uri`, one for all streams that Spark plans with it; None where there can be none."""
    if is_connect(spark):
        return None
    with _lock:
        rows = _rows.setdefault(spark, {})
        try:
            if uri not in rows:
                row = LiveRow(spark)
                row.put(b"probe")
                if row.frame(spark).head() != ("probe",):
                    return None
                rows[uri] = row
        except (Py4JError, AttributeError) as error:
            log.info("batches read their decisions from %s: %s", uri, str(error).partition("\n")[0])
        return rows.get(uri)


def control_view(spark: SparkSession, uri: str, schema: str, name: str) -> str:
    """A view of one row with the table as the column `name`; by file and schema, so that several sheds do not meet."""
    view = f"floodway_control_{crc32(f'{uri} {schema}'.encode()):08x}"
    row = _rows.get(spark, {}).get(uri)
    text = _file(spark, uri) if row is None else row.frame(spark)
    text.select(fn.from_json("value", schema).alias(name)).createOrReplaceTempView(view)
    return view


def _file(spark: SparkSession, uri: str) -> DataFrame:
    return (
        spark.read.option("ignoreMissingFiles", "true")  # without its table a query goes on
        .option("wholetext", "true")  # one row, whatever somebody has written into it
        .text(uri)
    )
