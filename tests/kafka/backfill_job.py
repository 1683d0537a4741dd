"""Jobs that shed, each in its own way, as one process that can be killed, and what a backfill does for each of them.

`python -m tests.kafka.backfill_job FOLDER SERVERS TOPIC [--drain | --unheard]` runs them all on one topic until it is
killed, or until the topic is read. With `--unheard` it kills itself when a batch has been committed that nobody has
heard of. Every job writes counts per window, exactly once by Spark's own file sink.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

import floodway
from floodway.control.base import Controller, Decision, Observation, State
from floodway.spark.session.session import spark_session
from floodway.spark.shed.loop import ShedLoop
from floodway.spark.shed.report import BatchReport
from tests.kafka_jars import connector_jars

SCHEMA = "id int, user int, value double, ts timestamp"
KEEPS = (0.5, 0.3, 0.3, 0.8, 1.0, 1.0, 0.4)
SLIDING = ("20 seconds", "10 seconds")
WAYS: dict[str, dict[str, Any]] = {
    "hash": {"identity": "id"},
    "utility": {"utility": "value", "identity": "id"},
    "key": {"key": "user"},
    "window": {"window": floodway.WindowDrop("ts", "10 seconds")},
    "sliding": {"window": floodway.WindowDrop("ts", *SLIDING)},
}
"""The sheds by name."""


@dataclass(frozen=True)
class Cycling(Controller[State]):
    """A law that keeps less and more in turn, so that every batch has another decision than the one before."""

    asked: list[int] = field(default_factory=lambda: [0])
    name: ClassVar[str] = "cycling"
    signal: ClassVar[str] = "batch_seconds"

    def initial(self) -> State:
        return State()

    def update(self, state: State, observation: Observation) -> tuple[State, Decision]:
        self.asked[0] += 1
        return state, Decision(KEEPS[self.asked[0] % len(KEEPS)] * observation.waiting, 1.0, "cycling")


def kafka(servers: str, topic: str) -> dict[str, str]:
    """The source's options."""
    return {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}


def parsed(df: DataFrame) -> DataFrame:
    """What the jobs do between their source and the shed."""
    record = fn.from_json(fn.col("value").cast("string"), SCHEMA).alias("r")
    return df.select(record, "topic", "partition", "offset").select("r.*", "topic", "partition", "offset")


def windows(name: str, events: DataFrame) -> DataFrame:
    """Counts and sums per window."""
    size = SLIDING if name == "sliding" else ("10 seconds",)
    return aggregated(events.withColumn("window", fn.window("ts", *size)))


def aggregated(events: DataFrame) -> DataFrame:
    """By the windows that stand beside the tuples."""
    return events.groupBy("window").agg(fn.count("*").alias("n"), fn.sum("id").alias("ids"))


def fill(dropped: DataFrame, step: str) -> None:
    """For `floodway backfill`: OUT is the folder of the job, whose name is its last part."""
    out = Path(os.environ["OUT"])
    if "_windows" in dropped.columns:
        counts = aggregated(dropped.withColumn("window", fn.explode("_windows")))
    else:
        counts = windows(out.name, dropped)
    counts.write.mode("overwrite").parquet(f"{out}/recovered/step={step}")


def main(folder: Path, servers: str, topic: str, *, drain: bool) -> None:
    """All jobs at once."""
    jars = ",".join(map(str, connector_jars()))
    conf = {"spark.jars": jars, "spark.sql.shuffle.partitions": "1"}
    spark = spark_session("backfill-job", master="local[2]", conf=conf)
    queries = []
    for name, options in WAYS.items():
        shed = floodway.shed(
            name, target_latency="2s", mode="enforce", controller=Cycling(), state_dir=str(folder / "state"), **options
        )
        stream = spark.readStream.format("kafka").options(**kafka(servers, topic), maxOffsetsPerTrigger="400").load()
        counts = windows(name, parsed(stream).withWatermark("ts", "60 seconds").transform(shed))
        if "window" in options:
            counts = counts.transform(shed.kept_windows())
        writer = counts.writeStream.format("parquet").option("path", f"{folder}/{name}/live").outputMode("append")
        writer = writer.option("checkpointLocation", f"{folder}/{name}/checkpoint")
        queries.append(writer.trigger(availableNow=True).start() if drain else writer.start())
    for query in queries:
        query.awaitTermination()
    spark.stop()


def die_unheard(reports: int = 7) -> None:
    """Be killed when that many batches have been reported and one more has been committed."""
    take, left = ShedLoop.on_batch, [reports]

    def on_batch(loop: ShedLoop, report: BatchReport) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        take(loop, report)

    ShedLoop.on_batch = on_batch  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    if "--unheard" in sys.argv:
        die_unheard()
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], drain="--drain" in sys.argv)
