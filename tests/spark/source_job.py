"""A log, a decision file and a query over them, for the tests of the Floodway source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from floodway.job.decision import Drop, JobDecision, Mode, StreamDecision, write_decision
from floodway.spark.log import LogWriter, create_log
from floodway.spark.source import BatchOffset, count_kept, parse_offset, register

DDL = "id bigint, value double"


class Job:
    """One log, one decision file, one checkpoint, and the ids that each batch of a query showed."""

    def __init__(self, spark: SparkSession, folder: Path, *, partitions: int = 2) -> None:
        self.spark = spark
        self.log, self.decision = folder / "log", folder / "decision.json"
        self.checkpoint = folder / "checkpoint"
        create_log(self.log, DDL, partitions=partitions, stream="s")
        self.writer = LogWriter(self.log, sync=False)
        self.partitions = partitions
        self.batches: list[tuple[int, list[int]]] = []
        self.fail_at: int | None = None

    def append(self, count: int, *, segments: int = 1) -> None:
        """`count` tuples, shared between the partitions; the payload `id` repeats the tuple's `_id`."""
        for _ in range(segments):
            for partition in range(self.partitions):
                share = count // segments // self.partitions
                ids = self.writer.end(partition) + np.arange(share) + (partition << 48)
                self.writer.append(pa.record_batch({"id": ids, "value": ids / 2}), partition)

    def decide(self, keep_ppm: int, *, mode: Mode = "enforce", drop: Drop = "hash", salt: int = 3) -> None:
        streams = {"s": StreamDecision(keep_ppm)}
        write_decision(self.decision, JobDecision(f"p{keep_ppm}", mode, salt, streams, {"a->b": 77}, drop))

    def frame(self, **options: str) -> DataFrame:
        given = {"path": str(self.log), "decision": str(self.decision), **options}
        return self.spark.readStream.format("floodway").options(**given).load()

    def start(self, frame: DataFrame | None = None, *, available_now: bool = False, **options: str) -> StreamingQuery:
        writer = (frame or self.frame(**options)).writeStream.foreachBatch(self._see)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def _see(self, batch: DataFrame, number: int) -> None:
        self.batches.append((number, sorted(row[0] for row in batch.select("_id").collect())))
        if number == self.fail_at:
            raise RuntimeError("the sink fails once")

    def ids(self) -> list[int]:
        return sorted(i for _, ids in self.batches for i in ids)

    def everything(self) -> list[int]:
        return [i + (p << 48) for p in range(self.partitions) for i in range(self.writer.end(p))]

    def offsets(self) -> list[BatchOffset]:
        """The offsets journaled in the checkpoint, by batch."""
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        return [parse_offset(json.loads(file.read_text().splitlines()[-1])) for file in files]

    def counts(self) -> list[tuple[int, int]]:
        """(offered, kept) of each journaled batch, computed without Spark."""
        offsets = self.offsets()
        before = [BatchOffset("s", offsets[0].start, offsets[0].start), *offsets]
        pairs = []
        for start, end in zip(before, offsets, strict=False):
            found = count_kept(start.to_json(), end.to_json()).values()
            pairs.append((sum(o for o, _ in found), sum(k for _, k in found)))
        return pairs


def source_job(spark: SparkSession, folder: Path) -> Iterator[Job]:
    """A job whose queries end with the test."""
    register(spark)
    made = Job(spark, folder)
    yield made
    for query in spark.streams.active:
        query.stop()
    made.writer.close()
