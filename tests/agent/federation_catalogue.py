"""A catalogue with state for tests on Spark: numbers counted and summed over windows of ten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from floodway.spark.catalogue import Catalogue, NoParameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CATALOGUE = Catalogue()
WINDOW = 10


@CATALOGUE.entry("tens", inputs=("input",))
def tens(inputs: Mapping[str, DataFrame], parameters: NoParameters) -> DataFrame:
    """How many numbers of each ten came, and their sum."""
    timed = inputs["input"].withColumn("at", fn.timestamp_seconds("id")).withWatermark("at", "0 seconds")
    summed = timed.groupBy(fn.window("at", f"{WINDOW} seconds")).agg(
        fn.count("*").alias("count"), fn.sum("id").alias("total")
    )
    return summed.select(fn.unix_timestamp("window.start").alias("first"), "count", "total")
