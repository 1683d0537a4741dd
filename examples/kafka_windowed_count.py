"""An existing Kafka job, clicks per page in windows of ten seconds, with one line added that protects it.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 examples/kafka_windowed_count.py \\
        localhost:9092 clicks out/

Watch it with `floodway top clicks` or `floodway dashboard`.
It drops nothing until `floodway set clicks --mode enforce`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

import floodway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """The topic as it is: one record a click, its value the page."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("kafka").options(**options).load()


def count(clicks: DataFrame) -> DataFrame:
    """Clicks per page and window; `_weight` is 1/keep, so the sum estimates the count without drops."""
    weight = fn.sum("_weight") if "_weight" in clicks.columns else fn.count("*")
    return (
        clicks.withWatermark("timestamp", "30 seconds")
        .groupBy(fn.window("timestamp", "10 seconds"), fn.col("value").cast("string").alias("page"))
        .agg(fn.count("*").alias("seen"), weight.alias("estimate"))
    )


def main(servers: str, topic: str, out: Path) -> None:
    """Run until stopped."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("clicks").getOrCreate()
    clicks = read(spark, servers, topic)
    clicks = clicks.transform(floodway.shed("clicks", target_latency="2s"))  # the one line
    query = count(clicks).writeStream.outputMode("append").format("parquet").option("path", str(out / "counts"))
    query.option("checkpointLocation", str(out / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
