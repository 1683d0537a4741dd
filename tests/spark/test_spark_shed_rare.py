"""The first tuples of every key are kept: every key that comes in goes out, and what was dropped is known."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from floodway.errors import InputError
from floodway.job.ledger.ledger import Ledger
from floodway.spark.shed.keys.rare import FIRST, NOBODY, ORDINARY, UNKNOWN, counter
from floodway.spark.shed.shed import Shedder, shed
from tests.spark.shedding import Stream

SCHEMA = "id bigint, tenant int, at timestamp"
RARE = range(1, 201)
"""Tenants with one or two tuples per batch, beside one with thousands."""


def transformed(df: DataFrame, drop: Shedder) -> DataFrame:
    return df.transform(drop)


def repartitioned(df: DataFrame, drop: Shedder) -> DataFrame:
    return df.repartition(3, "id").transform(drop)


def rows(batch: int) -> list[str]:
    tenants = [0] * 5000 + [tenant for tenant in RARE for _ in range(1 + tenant % 2)]
    random.Random(batch).shuffle(tenants)
    fresh = [f'{{"id": {batch * 10_000 + i}, "tenant": {tenant}}}' for i, tenant in enumerate(tenants)]
    old = [f'{{"id": {batch * 10_000 + 9000 + i}, "tenant": {1000 + i}, "at": "2020-01-01"}}' for i in range(50)]
    return [*old, *fresh]


@pytest.mark.parametrize("number", [1, 3])
def test_the_first_of_every_key_are_found_in_the_order_of_the_task(number: int) -> None:
    random.seed(number)
    keys = [random.choice([NOBODY, *range(40), random.randrange(2**53)]) for _ in range(3000)]
    parts = [pd.Series(keys[at : at + 700], dtype="int64") for at in range(0, len(keys), 700)]
    found = [what for part in counter(number, 10_000)(iter(parts)) for what in part]
    seen: Counter[int] = Counter()
    for key, what in zip(keys, found, strict=True):
        seen[key] += 1
        assert what == (FIRST if key != NOBODY and seen[key] <= number else ORDINARY)


def test_keys_that_there_is_no_room_for_are_told() -> None:
    parts = [pd.Series([5, 6, 5], dtype="int64"), pd.Series([7, 5, 6, 7], dtype="int64")]
    found = [list(part) for part in counter(2, 2)(iter(parts))]
    assert found == [[FIRST, FIRST, FIRST], [UNKNOWN, ORDINARY, FIRST, UNKNOWN]]


@pytest.mark.spark
@pytest.mark.parametrize("share_by", [None, "tenant"])
def test_every_key_that_comes_in_goes_out(spark: SparkSession, tmp_path: Path, share_by: str | None) -> None:
    by = {"rare_by": "tenant"} if share_by is None else {"share_by": share_by}
    options = {"identity": "id", "keep_rare": 1, "max_age": "1h", "timestamp": "at", **by}
    stream = Stream(spark, tmp_path, SCHEMA, transformed, options, keeps=[0.2])
    stream.start()
    for batch in range(6):
        stream.feed(rows(batch))
    stream.stop()
    fresh = 5000 + sum(1 + tenant % 2 for tenant in RARE)
    for batch in (3, 4, 5):
        kept = Counter(row.tenant for row in stream.results[batch])
        assert kept.keys() == {0, *RARE}
        assert sum(kept.values()) < 0.4 * fresh
        estimate = sum(row._weight for row in stream.results[batch])
        assert estimate == pytest.approx(fresh, rel=0.2)
        assert any(row._weight == 1.0 for row in stream.results[batch] if row.tenant == 0)
    last = spark.read.schema(SCHEMA).json(str(tmp_path / "in" / "part-00005.json"))
    kept_ids = {row.id for row in stream.results[5]}
    assert stream.found_again(5) == {row.id for row in last.collect()} - kept_ids
    assert Ledger(stream.shed.files.store).fold().differences() == []
    status = stream.shed.files.read_status()
    assert status is not None and status.shed is not None
    assert (status.shed.first, status.shed.stale) == (201, 50)
    assert status.reason.endswith("201 tuples of the last batch are the first of their keys and stay")


@pytest.mark.spark
def test_each_task_keeps_its_first_ones(spark: SparkSession, tmp_path: Path) -> None:
    options = {"identity": "id", "keep_rare": 2, "rare_by": "tenant % 10"}
    stream = Stream(spark, tmp_path, SCHEMA, repartitioned, options, keeps=[0.01])
    stream.start()
    for batch in range(5):
        stream.feed(rows(batch))
    stream.stop()
    assert {row.tenant % 10 for row in stream.results[4]} == set(range(10))
    status = stream.shed.files.read_status()
    assert status is not None and status.shed is not None and status.shed.first == 3 * 10 * 2


@pytest.mark.spark
def test_what_has_no_first_tuples_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.readStream.format("rate").load()
    for options, message in (
        ({"keep_rare": 1}, "keep_rare= keeps tuples of every key, and no key is named"),
        ({"rare_by": "value"}, "keep_rare= does not say how many tuples of each"),
        ({"keep_rare": 0, "rare_by": "value"}, "keep_rare=0 is no number of tuples in [1, 10000]"),
        ({"keep_rare": 1, "rare_by": "value", "key": "value"}, "key= keeps or drops tuples together"),
        ({"keep_rare": 1, "rare_by": "tenant"}, "rare_by= is no column or expression of the stream: tenant"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            source.transform(shed("x", target_latency="2s", state_dir=str(tmp_path), **options))
