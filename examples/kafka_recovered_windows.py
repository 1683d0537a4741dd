"""Clicks per page and window: in time while the job sheds, complete after a backfill, in one table.

job=examples/kafka_recovered_windows.py
submit="spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"
$submit $job live localhost:9092 clicks out/        # runs until it is stopped, and drops what it cannot process
floodway backfill clicks --run examples.kafka_recovered_windows:fill --kafka kafka.bootstrap.servers=localhost:9092
$submit $job merge localhost:9092 clicks out/       # again whenever a backfill has ended
$submit $job check localhost:9092 clicks out/       # counts the topic once more, without any drop

out/live         windows that the live job has closed, without what it dropped
out/recovered    those of the backfill, by step; the folder is in OUT, by default out/
out/counts       both together: the table to read

The tables are Parquet. With FORMAT=delta they are Delta tables: for that Spark needs its jars and its two settings,
spark.sql.extensions and spark.sql.catalog.spark_catalog, here and as --conf of the backfill.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

import floodway

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KEYS = ("start", "end", "page")
FORMAT = os.environ.get("FORMAT", "parquet")


def kafka(servers: str, topic: str) -> dict[str, str]:
    """The options of the topic, for the live job as for whoever reads it again."""
    return {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}


def windows(clicks: DataFrame) -> DataFrame:
    """Clicks per page in windows of ten seconds."""
    page = fn.col("value").cast("string").alias("page")
    counted = clicks.groupBy(fn.window("timestamp", "10 seconds"), page).agg(fn.count("*").alias("clicks"))
    return counted.select("window.start", "window.end", "page", "clicks")


def live(clicks: DataFrame, out: str, protect: Callable[[DataFrame], DataFrame]) -> StreamingQuery:
    """The live job. The watermark is before the shed: dropped clicks move it too, so windows close as without drops."""
    counted = windows(clicks.withWatermark("timestamp", "30 seconds").transform(protect))
    writer = counted.writeStream.outputMode("append").format(FORMAT).option("path", f"{out}/live")
    return writer.option("checkpointLocation", f"{out}/checkpoint").start()


def fill(dropped: DataFrame, step: str) -> None:
    """For `floodway backfill`. A step that is repeated after a crash overwrites what it wrote before."""
    table, counted = f"{os.environ.get('OUT', 'out')}/recovered", windows(dropped)
    if FORMAT == "parquet":
        counted.write.mode("overwrite").parquet(f"{table}/step={step}")
    else:
        writer = counted.withColumn("step", fn.lit(step)).write.format(FORMAT).mode("overwrite")
        writer.option("replaceWhere", f"step = '{step}'").save(table)


def merge(spark: SparkSession, out: str) -> DataFrame:
    """Live and recovered counts of the windows that are closed: of later ones the live job has written nothing yet."""
    counted, recovered = (spark.read.format(FORMAT).load(f"{out}/{part}") for part in ("live", "recovered"))
    closed = counted.agg(fn.max("end")).first()
    recovered = recovered.drop("step")
    both = counted.unionByName(recovered).filter(fn.col("end") <= fn.lit(closed[0] if closed else None))
    summed = both.groupBy(*KEYS).agg(fn.sum("clicks").alias("clicks"))
    summed.write.format(FORMAT).mode("overwrite").save(f"{out}/counts")
    return spark.read.format(FORMAT).load(f"{out}/counts")


def differences(merged: DataFrame, clicks: DataFrame) -> int:
    """Rows by which the merged table differs from the counts of all clicks, of windows that are closed."""
    closed = merged.agg(fn.max("end")).first()
    full = windows(clicks).filter(fn.col("end") <= fn.lit(closed[0] if closed else None))
    return full.exceptAll(merged).unionAll(merged.exceptAll(full)).count()


def main(what: str, servers: str, topic: str, out: str) -> None:
    """One of the three steps."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"clicks-{what}").getOrCreate()
    options = kafka(servers, topic)
    if what == "live":
        protect = floodway.shed("clicks", target_latency="2s", mode="enforce")
        live(spark.readStream.format("kafka").options(**options).load(), out, protect).awaitTermination()
    elif what == "merge":
        print(f"{merge(spark, out).count()} rows in {out}/counts")
    else:
        merged = spark.read.format(FORMAT).load(f"{out}/counts")
        found = differences(merged, spark.read.format("kafka").options(**options).load())
        print(f"{found} rows differ from an unshed count")
        sys.exit(found > 0)


if __name__ == "__main__":
    main(*sys.argv[1:5])
