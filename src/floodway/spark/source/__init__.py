"""The Floodway source: `format("floodway")` with the decision in the offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.spark.source.offsets import BatchOffset, count_kept, parse_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BatchOffset", "count_kept", "explain", "parse_offset", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("floodway")` known to a session."""
    # Imported here: counting what a journaled offset kept needs no Spark.
    from floodway.spark.source.datasource import FloodwaySource

    spark.dataSource.register(FloodwaySource)


def explain(error: BaseException) -> str:
    """The one line that matters in an error that Spark wrapped; see `datasource.explain`."""
    from floodway.spark.source.datasource import explain as explain_error

    return explain_error(error)
