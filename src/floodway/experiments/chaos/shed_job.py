"""A streaming query with the one line in it, as a process that can be killed: `python -m …shed_job FOLDER [--drain]`.

It reads the embedded log FOLDER/input through `floodway.shed` and writes Parquet files, exactly once by Spark's own
file sink. With `--drain` it processes what is there without holding back, and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

import floodway
from floodway.spark.session.session import spark_session
from floodway.spark.source import register

NAME = "chaos"
BUSY = "aggregate(sequence(1, 10000), cast(0 as bigint), (sum, x) -> sum + x % 7) + value AS worked"
"""Half a millisecond of one CPU for every tuple, in Spark's own expressions."""


def main(folder: Path, *, drain: bool) -> None:
    """Run the query until it is killed, or until the input is processed."""
    conf = {
        "spark.sql.streaming.minBatchesToRetain": "1000000",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = spark_session("floodway-chaos", master="local[1]", conf=conf)
    register(spark)
    clicks = spark.readStream.format("floodway").options(path=str(folder / "input"), maxTuplesPerBatch="500").load()
    shed = floodway.shed(NAME, target_latency="300ms", mode="enforce", state_dir=str(folder / "state"))
    kept = clicks.transform(shed).selectExpr("_id AS id", BUSY)
    writer = kept.writeStream.format("parquet").option("path", str(folder / "output"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start() if drain else writer.start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), drain="--drain" in sys.argv[2:])
