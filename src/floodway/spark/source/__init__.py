"""The Floodway source: `format("floodway")` with the decision in the offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.errors import missing_extra
from floodway.spark.source.offsets import BatchOffset, count_kept, parse_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BatchOffset", "count_kept", "parse_offset", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("floodway")` known to a session."""
    try:  # imported here: counting what a journaled offset kept needs no Spark
        from floodway.spark.source.readers import FloodwaySource
    except ModuleNotFoundError as error:
        raise (missing_extra(error) or error) from None
    spark.dataSource.register(FloodwaySource)
