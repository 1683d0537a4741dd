"""Window Drop on real Spark: every emitted window equals the unshed one, whatever happens on the way."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.job.ledger.ledger import Ledger
from floodway.planning.windows.window_drop import WindowShape, slot_ppm
from floodway.spark.shed.shed import Shedder
from floodway.spark.shed.window_drop import (
    WindowDrop,
    emits,
    in_gaps,
    kept_windows,
    missing_windows,
    passes,
    window_drop,
)
from floodway.units import PPM
from tests.planning.test_planning_window_drop import batches_of
from tests.spark.shedding import Stream

pytestmark = pytest.mark.spark
SCHEMA = "id long, ts timestamp, value double"
SECOND = 1_000_000
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def test_slots_are_those_of_spark(spark: SparkSession) -> None:
    values = [0, 1, -5, START * SECOND, -(1 << 62), (1 << 62) + 12345]
    frame = spark.createDataFrame([(value,) for value in values], "v long")
    hashed = fn.pmod(fn.xxhash64("v", fn.lit(77).cast("bigint")), fn.lit(PPM))
    assert [row[0] for row in frame.select(hashed).collect()] == [slot_ppm(value, 77) for value in values]


@pytest.mark.parametrize(
    "shape",
    [
        WindowShape(10, 10),
        WindowShape(10, 5, batch=2),
        WindowShape(12, 5, offset_us=3, batch=3),
        WindowShape(20, 3, max_gap=2),
    ],
)
def test_fates_are_those_of_the_policy(spark: SparkSession, shape: WindowShape) -> None:
    times = range(-50, 150)
    frame = spark.createDataFrame([(t,) for t in times], "t long")
    keep = fn.lit(400_000)
    found = frame.select("t", passes(shape, fn.col("t"), lambda _: keep, fn.lit(7)).alias("passes")).collect()
    for row in found:
        assert row.passes == any(shape.kept(start, 400_000, 7) for start in batches_of(shape, row.t))
    starts = [t for t in times if (t - shape.offset_us) % shape.slide_us == 0]
    windows = spark.createDataFrame([(t,) for t in starts], "t long").select(
        "t", fn.struct(fn.timestamp_micros("t").alias("start")).alias("window")
    )
    for row in windows.select("t", emits(shape, "window", lambda _: keep, fn.lit(7)).alias("emits")).collect():
        assert row.emits == shape.kept(shape.batch_start(row.t), 400_000, 7)
    # What a backfill is given: every tuple of a window that is not emitted, with those windows.
    asked = (shape, fn.col("t"), lambda _: keep, fn.lit(7))
    gaps = frame.select("t", in_gaps(*asked).alias("in_gaps"), missing_windows(*asked).alias("windows"))
    for row in gaps.select(
        "t", "in_gaps", fn.expr("transform(windows, w -> unix_micros(w.start)) AS starts")
    ).collect():
        around = [start for start in range(-100, 150) if (start - shape.offset_us) % shape.slide_us == 0]
        inside = [start for start in around if start <= row.t < start + shape.size_us]
        missing = {start for start in inside if not shape.kept(shape.batch_start(start), 400_000, 7)}
        assert (set(row.starts), row.in_gaps) == (missing, bool(missing))


def test_a_fixed_keep_on_a_batch_of_data(spark: SparkSession) -> None:
    frame = spark.range(0, 3000).withColumn("ts", fn.timestamp_seconds(fn.col("id") + START))
    whole = aggregated(frame, "20 seconds", "10 seconds")
    shed = aggregated(
        window_drop(frame, "ts", "20 seconds", "10 seconds", keep_ppm=300_000), "20 seconds", "10 seconds"
    )
    emitted = kept_windows(shed, "window", "20 seconds", "10 seconds", keep_ppm=300_000).collect()
    assert 40 < len(emitted) < 140
    assert set(map(fingerprint, emitted)) <= set(map(fingerprint, whole.collect()))
    # Without the filter, windows that share tuples with kept ones come out half.
    assert not set(map(fingerprint, shed.collect())) <= set(map(fingerprint, whole.collect()))


def aggregated(df: DataFrame, size: str, slide: str) -> DataFrame:
    total = fn.sum("id").alias("total")
    return df.groupBy(fn.window("ts", size, slide)).agg(fn.count("*").alias("n"), total)


def fingerprint(row: Any) -> tuple[Any, ...]:
    return (row.window.start, row.window.end, row.n, row.total)


def lines(rng: random.Random, first: int, count: int, from_second: int, to_second: int) -> list[str]:
    """Tuples over a span of event time, in disorder."""
    return [
        json.dumps(
            {
                "id": i,
                "ts": datetime.fromtimestamp(START + rng.uniform(from_second, to_second), tz=UTC).isoformat(),
                "value": 1.0,
            }
        )
        for i in range(first, first + count)
    ]


@pytest.mark.parametrize(
    ("size", "slide", "batch"),
    [pytest.param("10 seconds", "10 seconds", 1, marks=pytest.mark.slow), ("20 seconds", "5 seconds", 2)],
)
def test_every_emitted_window_equals_the_unshed_one(
    spark: SparkSession, tmp_path: Path, size: str, slide: str, batch: int
) -> None:
    """Across micro-batches that overlap in event time, rate changes both ways, a replay and restarts."""
    rng = random.Random(5)

    def windows(df: DataFrame, shed: Shedder) -> DataFrame:
        marked = df.withWatermark("ts", "30 seconds").transform(shed)
        return aggregated(marked, size, slide).transform(shed.kept_windows())

    drop = WindowDrop("ts", size, slide, batch=batch)
    stream = Stream(spark, tmp_path, SCHEMA, windows, {"window": drop})
    stream.start()
    keeps = [1.0, 0.5, 0.2, 0.2, 0.9, 0.9, 0.4, 1.0, 1.0]
    for i, keep in enumerate(keeps):
        stream.keeps.append(keep)
        # Every micro-batch covers 60 s, of which 25 s also belong to the one before.
        stream.feed(lines(rng, i * 400, 400, i * 35, i * 35 + 60))
        if i == 4:
            stream.stop()
            commits = tmp_path / "checkpoint" / "commits"
            last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
            (commits / str(last)).unlink()
            (commits / f".{last}.crc").unlink(missing_ok=True)
            stream.start()
            stream.query.processAllAvailable()
    end = len(keeps) * 35 + 60
    stream.feed(lines(rng, 10_000, 1, end + 300, end + 301))
    stream.feed(lines(rng, 10_001, 1, end + 301, end + 302))
    stream.query.processAllAvailable()
    assert stream.query.exception() is None
    stream.stop()

    emitted = [fingerprint(row) for rows in stream.results.values() for row in rows]
    everything = spark.read.schema(SCHEMA).json(str(tmp_path / "in"))
    unshed = {fingerprint(row) for row in aggregated(everything, size, slide).collect()}
    assert len(emitted) == len(set(emitted))
    assert set(emitted) <= unshed
    assert 0.2 * len(unshed) < len(emitted) < 0.95 * len(unshed)
    epochs = stream.shed.loop.control.table.epochs
    assert any(epoch.emit_ppm < epoch.pass_ppm for epoch in epochs)
    assert epochs[-1].emit_ppm == PPM
    ledger = Ledger(stream.shed.files.store)
    assert ledger.fold().total.dropped.total() > 0
    assert ledger.fold().differences() == []


def test_shapes_that_cannot_be_dropped_by() -> None:
    with pytest.raises(InputError, match="batch= to at least"):
        _ = WindowDrop("ts", "1 hour", "1 second").shape
    with pytest.raises(InputError, match="duration"):
        _ = WindowDrop("ts", "often").shape
