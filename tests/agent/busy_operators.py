"""Operators whose true cost and selectivity the network file does not know."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

SECONDS_A_TUPLE = 0.001


def busy(df: DataFrame) -> DataFrame:
    """A millisecond of CPU a tuple."""

    def spend(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            end = time.thread_time() + SECONDS_A_TUPLE * batch.num_rows
            while time.thread_time() < end:
                pass
            yield batch

    return df.mapInArrow(spend, df.schema)


def quarter(df: DataFrame) -> DataFrame:
    """Every fourth tuple."""
    return df.filter("id % 4 = 0")
