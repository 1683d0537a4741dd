"""Accuracy as a target on real Spark: estimates within their bounds, accounts, replays, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway import Accuracy, estimates
from floodway.errors import InputError
from floodway.job.ledger.facts import read_rule
from floodway.job.ledger.ledger import Ledger
from floodway.job.status.parts import AccuracyPart
from floodway.planning.estimates.group_sample import Points
from floodway.spark.shed.control_columns import QUOTAS
from floodway.spark.shed.keys.group_keeps import points_of
from floodway.spark.shed.keys.key_columns import KEY, group_hash, sample_inputs, sample_metrics
from floodway.spark.shed.recovery.fate import fate
from floodway.spark.shed.shed import Shedder, shed
from floodway.units import PPM
from tests.spark.shedding import Stream

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, page int, price double"
HEAVY, LIGHT = 2, 98
SIZES = {page: 3000 if page < HEAVY else 40 for page in range(HEAVY + LIGHT)}
"""Two of a hundred pages have 80% of the value."""


def price(page: int, i: int) -> float:
    return (6.0 if page < HEAVY else 2.3) * (1.0 + 0.5 * ((i * 7919) % 101) / 100.0)


def rows(batch: int) -> list[str]:
    pages = [page for page, size in SIZES.items() for _ in range(size)]
    return [
        f'{{"id": {batch * 1_000_000 + i}, "page": {page}, "price": {price(page, i)}}}' for i, page in enumerate(pages)
    ]


def transformed(df: DataFrame, drop: Shedder) -> DataFrame:
    return df.transform(drop)


def accuracy(stream: Stream) -> AccuracyPart:
    status = stream.shed.files.read_status()
    assert status is not None and status.accuracy is not None
    assert status.accuracy.words in status.reason
    return status.accuracy


def test_groups_are_as_accurate_as_asked_though_latency_would_keep_less(spark: SparkSession, tmp_path: Path) -> None:
    options = {"identity": "id", "accuracy": Accuracy("sum(price)", by="page", within=0.05, share=0.75)}
    stream = Stream(spark, tmp_path, SCHEMA, transformed, options, keeps=[0.05])
    stream.start()
    for batch in range(6):
        stream.feed(rows(batch))
    part = accuracy(stream)
    assert part.held and part.bound is not None and 0.0 < part.bound <= 0.05
    assert part.needed_keep is not None and part.allowed_keep == pytest.approx(0.05)
    assert 0.05 < part.needed_keep < 0.6 and part.groups >= HEAVY
    offered, kept = sum(SIZES.values()), len(stream.results[5])
    assert kept / offered == pytest.approx(stream.shed.loop.control.latest.keep_ppm / PPM, abs=0.1) and kept < offered

    # The helper's bounds of the pages that carry the value, in the batches that were cut by a known sample.
    last = spark.createDataFrame([row for batch in (3, 4, 5) for row in stream.results[batch]])
    grouped = last.withColumn("batch", fn.expr("id div 1000000")).groupBy("batch", "page")
    found = grouped.agg(estimates.estimate_sum("price").alias("sum")).filter(f"page < {HEAVY}").collect()
    pages = [page for page, size in SIZES.items() for _ in range(size)]
    truth = {heavy: sum(price(page, i) for i, page in enumerate(pages) if page == heavy) for heavy in range(HEAVY)}
    assert len(found) == 3 * HEAVY
    held = [abs(row["sum"]["value"] - truth[row.page]) <= 0.05 * truth[row.page] for row in found]
    width = [(row["sum"]["high"] - row["sum"]["low"]) / 2 / row["sum"]["value"] for row in found]
    assert sum(held) >= len(held) - 1 and max(width) <= 0.05 * 1.1

    # What was dropped is found again by the facts alone, to the tuple.
    facts = next(one for one in stream.shed.loop.facts.read() if one.batch == 5)
    read = spark.read.schema(SCHEMA).json(str(tmp_path / "in" / "part-00005.json"))
    gone = read.filter(~fate(read, read_rule(stream.shed.files.store), facts))
    kept_ids = {row.id for row in stream.results[5]}
    assert {row.id for row in gone.collect()} == {row.id for row in read.collect()} - kept_ids
    assert Ledger(stream.shed.files.store).fold().differences() == []
    stream.stop()


def test_latency_is_held_where_it_is_preferred(spark: SparkSession, tmp_path: Path) -> None:
    target = Accuracy("count(*)", within=0.001, prefer="latency")
    stream = Stream(spark, tmp_path, SCHEMA, transformed, {"identity": "id", "accuracy": target}, keeps=[0.25])
    stream.start()
    for batch in range(4):
        stream.feed(rows(batch))
    stream.stop()
    part = accuracy(stream)
    assert part.held is False and part.bound is not None and part.bound > 0.001 and part.late_seconds is None
    assert re.search(r"needs 100% of the tuples, latency allows 25%: bounds are .*, wider by", part.words)
    status = stream.shed.files.read_status()
    assert status is not None and status.keep == pytest.approx(0.25, rel=0.02)


def test_a_sample_has_the_values_and_groups_of_its_tuples(spark: SparkSession) -> None:
    """Spark's numbers against numpy's, with negative values, zeros, nulls and a NaN."""
    values = [float(i - 50) * 10.0 ** (i % 5 - 2) for i in range(500)]
    given: list[tuple[int, int, float | None]] = [(i, i % 7, value) for i, value in enumerate(values)]
    given += [(1000, 3, None), (1001, 3, float("nan")), (1002, 3, float("inf"))]
    df = spark.createDataFrame(given, SCHEMA)
    quotas = fn.lit(None).cast("struct<sizes:array<double>>")
    keyed = df.withColumn(KEY, group_hash("page")).withColumn(QUOTAS, quotas)
    points = sample_inputs(Accuracy("sum(price)", by="page"), ["id"], fn.lit(True))
    (row,) = keyed.withColumns(points).agg(*sample_metrics()).collect()
    found: Points = points_of(row["sample"], row["sampled"], ())
    hashes = {r.page: r.h for r in df.select("page", group_hash("page").alias("h")).distinct().collect()}
    assert row["sampled"] == 500 and set(found.groups.tolist()) == set(hashes.values())
    for page, group in hashes.items():
        mine = [value for i, value in enumerate(values) if i % 7 == page]
        sums = [(found.weights * found.values**power)[found.groups == group].sum() for power in (0, 1, 2)]
        assert sums == pytest.approx([np.sum(np.power(mine, power)) for power in (0, 1, 2)], rel=0.05)


def test_what_cannot_be_estimated_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.readStream.format("rate").load()
    for options, message in (
        ({"accuracy": Accuracy("sum(price)")}, "accuracy= estimates 'sum(price)', and that is of no expression"),
        ({"accuracy": Accuracy("sum(max(value))")}, "accuracy= estimates 'sum(max(value))', and that is of no"),
        ({"accuracy": Accuracy("sum(timestamp)")}, "'sum(timestamp)', of type timestamp, not a number"),
        ({"accuracy": Accuracy("count(*)", by="page")}, "accuracy: by= is no column or expression of the stream: page"),
        ({"accuracy": "sum(value)"}, "accuracy='sum(value)' is no target"),
        ({"accuracy": Accuracy("count(*)"), "key": "value"}, "and key= decides otherwise"),
        ({"accuracy": Accuracy("count(*)"), "share_by": "value"}, "and share_by= decides otherwise"),
        ({"accuracy": Accuracy("count(*)"), "utility": "value"}, "and utility= decides otherwise"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            source.transform(shed("x", target_latency="2s", state_dir=str(tmp_path), **options))
