"""What is older than `max_age` when its batch begins is skipped, with a reason of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from floodway.errors import InputError
from floodway.job.ledger.facts import read_rule
from floodway.job.ledger.ledger import Ledger
from floodway.spark.shed.shed import Shedder, shed
from tests.spark.shedding import Stream

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, at timestamp"
OPTIONS = {"identity": "id", "max_age": "1h", "timestamp": "at"}


def transformed(df: DataFrame, drop: Shedder) -> DataFrame:
    return df.transform(drop)


def rows(first: int, number: int, *, old: bool) -> list[str]:
    moment = "2020-01-01T00:00:00Z" if old else datetime.now(UTC).isoformat()
    return [f'{{"id": {i}, "at": "{moment}"}}' for i in range(first, first + number)]


def test_stale_tuples_are_skipped_counted_and_known_afterwards(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, SCHEMA, transformed, OPTIONS)
    stream.start()
    stream.feed([*rows(0, 300, old=True), *rows(300, 100, old=False), '{"id": 400}'])
    assert {row.id for row in stream.results[0]} == set(range(300, 401))
    assert {row._weight for row in stream.results[0]} == {1.0}
    stream.keeps.append(0.5)
    stream.feed(rows(500, 1000, old=False))
    stream.feed([*rows(2000, 1000, old=False), *rows(3000, 70, old=True)])
    stream.stop()
    assert all(row.id < 3000 for row in stream.results[2])

    ledger = Ledger(stream.shed.files.store)
    fold = ledger.fold()
    assert fold.differences() == []
    dropped = fold.total.by_place()["test"]
    assert dropped["stale"] == 370
    assert dropped["shedder"] == 1000 - len(stream.results[2])
    assert fold.total.offered["test"] == 401 + 1000 + 1070
    assert fold.total.kept["test"] == sum(map(len, stream.results.values()))
    facts = stream.shed.loop.facts.read()
    assert all(one.stale_before_us is not None and one.stale_before_us > 1_600_000_000_000_000 for one in facts)
    assert read_rule(stream.shed.files.store).timestamp == "at"


def test_observe_counts_what_it_would_skip(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, SCHEMA, transformed, {**OPTIONS, "mode": "observe"})
    stream.start()
    stream.feed([*rows(0, 30, old=True), *rows(30, 10, old=False)])
    stream.stop()
    assert len(stream.results[0]) == 40
    status = stream.shed.files.read_status()
    assert status is not None and status.shed is not None
    assert (status.shed.stale, status.totals.dropped) == (30, {})


def test_an_age_needs_a_timestamp(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value", "timestamp AS at", "'x' AS timestamp")
    place = str(tmp_path)
    with pytest.raises(InputError, match="'timestamp' is of type string"):
        stream.transform(shed("a", target_latency="2s", max_age="10s", state_dir=place))
    with pytest.raises(InputError, match="'nowhere' is no column"):
        stream.transform(shed("a", target_latency="2s", max_age="10s", timestamp="nowhere", state_dir=place))
    with pytest.raises(InputError, match="max_age='old' is not a duration"):
        shed("a", target_latency="2s", max_age="old")
