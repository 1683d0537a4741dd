"""What the Spark benchmarks share: one session and one folder each, ready logs, queries that run to their end.

Only `floodway.spark` imports pyspark, so DataFrames are `Any` here and expressions are SQL text.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from floodway.errors import FloodwayError
from floodway.spark.log import LogWriter, create_log
from floodway.spark.session.session import Session, spark_session
from floodway.spark.source import register

Frame = Any
"""A Spark DataFrame."""

NARROW = "id bigint, key int, value double"
WIDE = f"{NARROW}, body string"
SEED = 20070923
_SEGMENT = 100_000
_BODIES = 1000
_PATIENCE_SECONDS = 600


class BenchError(FloodwayError):
    """A benchmark that could not be carried out as described."""


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """One finished micro-batch: tuples that Spark saw, and seconds from trigger to commit."""

    rows: int
    seconds: float


class Workbench:
    """A session with the Floodway source, a folder that goes with it, and fresh names in it."""

    def __init__(self, spark: Session, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._numbers = count()

    def fresh(self, what: str) -> Path:
        """A path that nothing has used yet."""
        return self.folder / f"{what}-{next(self._numbers)}"

    def log(self, tuples: int, schema: str = WIDE, *, segment: int = _SEGMENT) -> Path:
        """A log of made-up tuples in segments of that many, the same for the same arguments."""
        path = self.fresh("log")
        create_log(path, schema, stream="s")
        rng = np.random.default_rng(SEED)
        with LogWriter(path, sync=False) as writer:
            for start in range(0, tuples, segment):
                writer.append(made_up(start, min(segment, tuples - start), rng, wide=schema == WIDE))
        return path

    def stream(self, log: Path, source: str = "floodway", **options: str) -> Frame:
        """A streaming DataFrame over a log."""
        return self.spark.readStream.format(source).options(path=str(log), **options).load()

    def drain(self, frame: Frame, each_batch: Callable[[Frame, int], None] | None = None) -> list[TimedBatch]:
        """Run a query until it has read all there is; without `each_batch` the results are thrown away."""
        writer = frame.writeStream.option("checkpointLocation", str(self.fresh("checkpoint")))
        writer = writer.format("noop") if each_batch is None else writer.foreachBatch(each_batch)
        query = writer.trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(_PATIENCE_SECONDS):
                raise BenchError(f"a query took more than {_PATIENCE_SECONDS} s", hint="Is the machine overloaded?")
        finally:
            query.stop()
        progress = (as_dict(item) for item in query.recentProgress)
        return [
            TimedBatch(int(item["numInputRows"]), item["durationMs"]["triggerExecution"] / 1e3)
            for item in progress
            if item["numInputRows"]
        ]


@contextmanager
def workbench(name: str, conf: Mapping[str, str] | None = None) -> Iterator[Workbench]:
    """Start Spark for one benchmark and leave nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix=f"floodway-{name}-"))
    spark = spark_session(f"floodway-{name}", conf=conf)
    try:
        register(spark)
        yield Workbench(spark, folder)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def made_up(start: int, tuples: int, rng: np.random.Generator, *, wide: bool) -> pa.RecordBatch:
    """Tuples of 20 bytes, or of about 110 with a JSON body."""
    columns: dict[str, Any] = {
        "id": np.arange(start, start + tuples),
        "key": rng.integers(0, _BODIES, tuples).astype(np.int32),
        "value": rng.random(tuples),
    }
    if wide:
        bodies = [
            json.dumps({"user": f"u{i:04d}", "page": f"/shop/item/{i * 7 % 997}", "price": i / 8, "ok": i % 3 > 0})
            for i in range(_BODIES)
        ]
        columns["body"] = pa.array(bodies).take(pa.array(columns["key"]))
    return pa.record_batch(columns)


def tuples_per_second(batches: Sequence[TimedBatch]) -> float:
    """Of the median batch; the first of a query is left out: it starts workers and compiles the plan."""
    return median(batch.rows / batch.seconds for batch in batches[1:] or batches)


def as_dict(progress: Any) -> dict[str, Any]:
    """A query's progress as plain values: some versions of Spark give a dict whose metrics are rows, with its JSON."""
    found: dict[str, Any] = json.loads(progress.json) if hasattr(progress, "json") else progress
    return found
