"""Malformed records of a batch: out of the stream before the first operator, into a log of their own, counted.

The source marks a record it cannot decode with the reason in `_error` and its bytes in `_raw`, which the log keeps as
they came, because they need not be text. It leaves a note of the range (`source/notes.py`). Operators never see such a
record. A batch with notes reads the malformed records once more, from its journaled range, so that they are found after
a restart as well, also where the operators run inside Spark's streaming plan; a batch without notes, which is nearly
every one, reads nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.spark.log import Retention, create_log
from floodway.spark.log.schema import parse_schema
from floodway.spark.query.sinks import NOTHING, Appender, Written, write_logs
from floodway.spark.source.decode import ERROR, RAW
from floodway.spark.source.notes import MALFORMED, Note, left
from floodway.spark.source.offsets import BatchOffset

SCHEMA = "raw binary, reason string, origin_id bigint, weight double"
DEAD = "dead-letter"
"""The sink in their tags."""
PREFIX = f"{DEAD}:"


def has_dead_letters(frame: DataFrame) -> bool:
    """Whether a source may mark records as malformed."""
    return ERROR in frame.columns


def well_formed(frame: DataFrame) -> DataFrame:
    """What operators get to see."""
    return frame.filter(fn.col(ERROR).isNull()).drop(ERROR, RAW) if has_dead_letters(frame) else frame


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The malformed records of one source: how it is read, the folder with its notes, the log they go to."""

    options: Mapping[str, str]
    notes: Path
    log: Path
    retention: Retention | None = None

    def create(self, tasks: int) -> None:
        """Make the log."""
        create_log(self.log, parse_schema(SCHEMA), partitions=tasks, stream=self.log.name)

    def write(self, spark: SparkSession, offset: BatchOffset, query: str, batch: int, tasks: int) -> Written:
        """Append those of a batch to the log, once."""
        if not self._told(offset):
            return NOTHING
        retained = {} if self.retention is None else {DEAD: self.retention}
        appender = Appender({DEAD: self.log}, query, batch, retained)
        return write_logs({DEAD: self._frame(spark, offset)}, appender, tasks)[DEAD]

    def forget(self, offset: BatchOffset) -> None:
        """Remove the notes of a batch that is accounted for; if it is repeated, it leaves them again."""
        for note in self._told(offset):
            note.path.unlink(missing_ok=True)

    def _told(self, offset: BatchOffset) -> list[Note]:
        ranges = offset.ranges()
        return [
            note
            for note in left(self.notes / MALFORMED, offset.stream)
            if any(note.partition == p and note.start < end and start < note.end for p, start, end in ranges)
        ]

    def _frame(self, spark: SparkSession, offset: BatchOffset) -> DataFrame:
        ending = json.dumps(offset.to_json())
        admitted = spark.read.format("floodway").options(**self.options, endingOffsets=ending).load()
        malformed = admitted.filter(fn.col(ERROR).isNotNull())
        raw, reason = fn.col(RAW).alias("raw"), fn.col(ERROR).alias("reason")
        return malformed.select(raw, reason, "_id", "_arrival", "_weight")
