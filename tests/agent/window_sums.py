"""An aggregate over windows of another one: sums of its counts, so that a window that lacks a tuple shows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

SIZE_SECONDS, SLIDE_SECONDS = 20, 10


def sums(df: DataFrame) -> DataFrame:
    """Sums of counts by windows of 20 s that slide by 10 s, and by key."""
    size, slide = f"{SIZE_SECONDS} seconds", f"{SLIDE_SECONDS} seconds"
    return (
        df.withWatermark("event_time", size)
        .groupBy(fn.window("event_time", size, slide), "key")
        .agg(fn.sum("count").alias("count"), fn.min("_arrival").alias("_arrival"))
        .select(fn.col("window.start").alias("event_time"), "key", "count", "_arrival")
    )
