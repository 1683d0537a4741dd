"""The embedded log: append-only Arrow segments in a directory, one writer a partition, no Spark needed."""

from __future__ import annotations

from floodway.spark.log.errors import (
    LockedError,
    LogError,
    MissingLogError,
    PositionError,
    SchemaError,
    SegmentError,
)
from floodway.spark.log.listing import Skipped, Span
from floodway.spark.log.meta import LogMeta, create_log, open_log
from floodway.spark.log.reader import LogReader, Tally, tally
from floodway.spark.log.schema import parse_schema, schema_text
from floodway.spark.log.writer import Appended, LogWriter, Retention, now_micros

__all__ = [
    "Appended",
    "LockedError",
    "LogError",
    "LogMeta",
    "LogReader",
    "LogWriter",
    "MissingLogError",
    "PositionError",
    "Retention",
    "SchemaError",
    "SegmentError",
    "Skipped",
    "Span",
    "Tally",
    "create_log",
    "now_micros",
    "open_log",
    "parse_schema",
    "schema_text",
    "tally",
]
