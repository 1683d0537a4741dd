"""A catalogue for tests on Spark: numbers counted and summed over windows of ten, and numbers that cost CPU time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel
from pyspark.sql import functions as fn

from floodway.spark.query.catalogue import Catalogue, NoParameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CATALOGUE = Catalogue()
WINDOW = 10


@CATALOGUE.entry("tens", inputs={"input": "id bigint"})
def tens(inputs: Mapping[str, DataFrame], parameters: NoParameters) -> DataFrame:
    """How many numbers of each ten came, and their sum."""
    timed = inputs["input"].withColumn("at", fn.timestamp_seconds("id")).withWatermark("at", "0 seconds")
    summed = timed.groupBy(fn.window("at", f"{WINDOW} seconds")).agg(
        fn.count("*").alias("count"), fn.sum("id").alias("total")
    )
    return summed.select(fn.unix_timestamp("window.start").alias("first"), "count", "total")


class Burn(BaseModel, extra="forbid"):
    """CPU time of a Python worker for each tuple."""

    milliseconds: float


@CATALOGUE.entry("burn", inputs=("input",), parameters=Burn)
def burn(inputs: Mapping[str, DataFrame], parameters: Burn) -> DataFrame:
    """The same numbers, each after so much CPU time (not time on the clock) in Python."""
    seconds = parameters.milliseconds / 1e3

    def work(one: int) -> int:
        import time

        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
        return one

    # Spark would take type hints for a statement of what kind of function it is.
    worked = fn.udf(lambda one: work(one), "bigint")
    return inputs["input"].select(worked("id").alias("id"))
