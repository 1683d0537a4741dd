"""A streaming query with the one line in it, as a process that can be killed: `python -m …shed_job FOLDER [--drain]`.

It reads the embedded log FOLDER/input, or with `--kafka SERVERS TOPIC JARS` a topic by Spark's own connector, through
`floodway.shed`, and writes Parquet files. Each try of a batch has a folder, `output/batch=N/try=ID`, and a file in
`sinks` when it is whole: Spark's own file sink would not run a batch again that it has written, and so hide what a
replay keeps. With `--drain` it processes what is there without holding back, and ends. With `--recount` it is a
backfill that counts the batches whose reports were lost.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import floodway
from floodway.experiments.chaos.kills.kills import SPARK_SETTINGS
from floodway.job.ledger.backfill import Live
from floodway.job.ledger.facts import BatchFacts
from floodway.job.places import ShedFiles
from floodway.spark.session.session import spark_session
from floodway.spark.shed.recovery.backfill import Backfill
from floodway.spark.shed.recovery.recover import Recovery
from floodway.spark.source import register

NAME = "chaos"
OFFSETS = 1_000_000_000
"""Above every offset: with the partition it makes an identity."""
TIMEOUTS = ("kafka.request.timeout.ms", "kafka.default.api.timeout.ms", "kafkaConsumer.pollTimeoutMs")
"""Of the connector: up to two minutes, where nothing is said."""
BUSY = "aggregate(sequence(1, 10000), cast(0 as bigint), (sum, x) -> sum + x % 7) + value AS worked"
"""Half a millisecond of one CPU for every tuple, in Spark's own expressions."""


def main(folder: Path, kafka: Sequence[str] | None, *, drain: bool) -> None:
    """Run the query until it is killed, or until the input is processed."""
    spark = _session(kafka)
    clicks = _topic(spark, *kafka[:2]) if kafka else _log(spark, folder / "input")
    shed = floodway.shed(NAME, target_latency="300ms", mode="enforce", state_dir=str(folder / "state"))
    kept = clicks.transform(shed).selectExpr("id", BUSY)
    (folder / "sinks").mkdir(exist_ok=True)

    def write(batch: Any, number: int) -> None:
        mark = token_hex(8)
        batch.write.parquet(str(folder / "output" / f"batch={number}" / f"try={mark}"))
        (folder / "sinks" / f"{number}-{mark}").touch()

    writer = kept.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start() if drain else writer.start()
    query.awaitTermination()
    spark.stop()


class Uncounted(Recovery):
    """Of a shed's batches those that nobody counted."""

    def facts(self, since_us: int | None = None, until_us: int | None = None) -> list[BatchFacts]:
        return [one for one in super().facts(since_us, until_us) if not one.counted]


def recount(folder: Path, kafka: Sequence[str] | None) -> None:
    """Read the batches again whose reports were lost, and write their accounts."""
    spark = _session(kafka)
    files = ShedFiles(folder / "state" / NAME)
    if kafka:
        recovery = Uncounted(spark, files, {"kafka.bootstrap.servers": kafka[0]}, _of_records)
    else:
        recovery = Uncounted(spark, files, {}, _of_tuples, {"path": str(folder / "input")})
    for _ in Backfill(NAME, recovery, lambda dropped, step: None, lambda: Live(False)).steps():
        pass
    spark.stop()


def _session(kafka: Sequence[str] | None) -> Any:
    conf = {
        **SPARK_SETTINGS,
        "spark.sql.streaming.minBatchesToRetain": "1000000",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if kafka:
        conf["spark.jars"] = ",".join(map(str, sorted(Path(kafka[2]).glob("*.jar"))))
    return spark_session("floodway-chaos", master="local[1]", conf=conf)


def _log(spark: Any, path: Path) -> Any:
    register(spark)
    options = {"path": str(path), "maxTuplesPerBatch": "500"}
    return spark.readStream.format("floodway").options(**options).load().transform(_of_tuples)


def _topic(spark: Any, servers: str, topic: str) -> Any:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    options |= {"maxOffsetsPerTrigger": "500", **dict.fromkeys(TIMEOUTS, "15000")}
    return spark.readStream.format("kafka").options(**options).load().transform(_of_records)


def _of_tuples(tuples: Any) -> Any:
    return tuples.withColumnRenamed("_id", "id")


def _of_records(records: Any) -> Any:
    value = "cast(get_json_object(cast(value AS string), '$.value') AS bigint) AS value"
    return records.selectExpr(f"partition * {OFFSETS} + offset AS id", value)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--recount", action="store_true")
    parser.add_argument("--kafka", nargs=3, metavar=("SERVERS", "TOPIC", "JARS"))
    given = parser.parse_args()
    if given.recount:
        recount(given.folder, given.kafka)
    else:
        main(given.folder, given.kafka, drain=given.drain)
