"""Counts of a streaming query as its progress tells them, by SQL text: for rooms that do not import pyspark."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn


def observed(frame: DataFrame, name: str, *metrics: str) -> DataFrame:
    """The frame with aggregates (`count(1) AS kept`) that every micro-batch reports under `name`."""
    return frame.observe(name, *map(fn.expr, metrics))
