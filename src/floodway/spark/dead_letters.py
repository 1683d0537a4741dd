"""Malformed records of a batch: out of the stream before the first operator, into a log of their own, counted.

The source marks a record it cannot decode with the reason in `_error` and its bytes in `_raw`. Operators never see
such a record. The batch reads it once more from its journaled range, so that it is found after a restart as well,
also where the operators run inside Spark's streaming plan.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.spark.source.decode import ERROR, RAW
from floodway.spark.source.offsets import BatchOffset

SCHEMA = "raw string, reason string"
PREFIX = "dead-letter:"


def has_dead_letters(frame: DataFrame) -> bool:
    """Whether a source may mark records as malformed."""
    return ERROR in frame.columns


def well_formed(frame: DataFrame) -> DataFrame:
    """What operators get to see."""
    return frame.filter(fn.col(ERROR).isNull()).drop(ERROR, RAW) if has_dead_letters(frame) else frame


def dead_letters(spark: SparkSession, options: dict[str, str], offset: BatchOffset) -> DataFrame:
    """The malformed records among those that the batch admitted."""
    ending = json.dumps(offset.to_json())
    admitted = spark.read.format("floodway").options(**options, endingOffsets=ending).load()
    malformed = admitted.filter(fn.col(ERROR).isNotNull())
    raw, reason = fn.col(RAW).cast("string").alias("raw"), fn.col(ERROR).alias("reason")
    return malformed.select(raw, reason, "_id", "_arrival", "_weight")
