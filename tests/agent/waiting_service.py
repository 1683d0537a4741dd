"""Operators that wait for a service: time of the clock per tuple, and none of the CPU a busy machine fights over."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame


def call(df: DataFrame) -> DataFrame:
    """Every tuple passes after a call of 2 ms."""
    return waiting(df, 2e-3)


def call_1ms(df: DataFrame) -> DataFrame:
    """Every tuple passes after a call of 1 ms."""
    return waiting(df, 1e-3)


def call_half_ms(df: DataFrame) -> DataFrame:
    """Every tuple passes after a call of 0.5 ms."""
    return waiting(df, 0.5e-3)


def call_tenth_ms(df: DataFrame) -> DataFrame:
    """Every tuple passes after a call of 0.1 ms."""
    return waiting(df, 0.1e-3)


def waiting(df: DataFrame, seconds: float) -> DataFrame:
    """Every tuple passes after so many seconds."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time  # by value to the workers, which may not find this module

        for batch in batches:
            time.sleep(seconds * batch.num_rows)
            yield batch

    return df.mapInArrow(wait, df.schema)
