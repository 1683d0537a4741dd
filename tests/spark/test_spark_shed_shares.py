"""Fair shares by key on real Spark: who pays, what the accounts say, replays, and what cannot have a share."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.job.ledger.facts import BatchFacts
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.accuracy import Accuracy
from floodway.spark.shed.bound import KEPT
from floodway.spark.shed.control_columns import AIMED, KEEP, QUOTAS
from floodway.spark.shed.keys.key_columns import KEY, KEY_AT, QUOTA, key_hash, key_inputs, key_metrics, with_quota
from floodway.spark.shed.keys.key_shares import NULL_KEY
from floodway.spark.shed.keys.quotas import QUOTAS_SCHEMA, Quotas, key_counts
from floodway.spark.shed.shed import Shedder, shed
from floodway.units import PPM
from tests.oracles.max_min import max_min_shares
from tests.spark.shedding import Stream

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, tenant int"
OPTIONS = {"identity": "id", "share_by": "tenant"}
SHARE = 1 / 3
NOISY = {0: 8910} | dict.fromkeys(range(1, 100), 10)
"""A hundred tenants, one of which sends 90% of the load."""


def transformed(df: DataFrame, drop: Shedder) -> DataFrame:
    return df.transform(drop)


def rows(batch: int, sizes: Mapping[int, int]) -> list[str]:
    """`sizes[tenant]` tuples of each; -1 has no tenant."""
    tenants = [tenant for tenant, size in sizes.items() for _ in range(size)]
    return [
        f'{{"id": {batch * 1_000_000 + i}' + ("}" if tenant < 0 else f', "tenant": {tenant}}}')
        for i, tenant in enumerate(tenants)
    ]


def feed(stream: Stream, batches: range, sizes: Mapping[int, int]) -> None:
    for batch in batches:
        stream.feed(rows(batch, sizes))


def facts_of(stream: Stream, batch: int) -> BatchFacts:
    return next(one for one in stream.shed.loop.facts.read() if one.batch == batch)


def test_the_other_99_tenants_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, SCHEMA, transformed, OPTIONS, keeps=[SHARE])
    stream.start()
    feed(stream, range(7), NOISY)
    offered = sum(NOISY.values())
    fair = max_min_shares(SHARE * offered, NOISY, {})
    for batch in (4, 5, 6):
        kept = Counter(row.tenant for row in stream.results[batch])
        assert all(kept[tenant] >= 0.99 * NOISY[tenant] for tenant in range(1, 100))
        quotas = dict(facts_of(stream, batch).quotas)
        assert quotas.popitem()[1] / PPM * NOISY[0] == pytest.approx(fair[0], rel=0.02)
        # By hash: within four standard deviations.
        assert kept[0] == pytest.approx(fair[0], abs=4 * (fair[0] * (1 - fair[0] / NOISY[0])) ** 0.5)
        weights = {row.tenant: row._weight for row in stream.results[batch]}
        assert weights[0] * fair[0] == pytest.approx(NOISY[0], rel=0.02) and weights[1] == 1.0

    # The dropped tuples are found again by the facts alone, to the tuple.
    last = spark.read.schema(SCHEMA).json(str(tmp_path / "in" / "part-00006.json"))
    kept_ids = {row.id for row in stream.results[6]}
    assert stream.found_again(6) == {row.id for row in last.collect()} - kept_ids

    ledger = Ledger(stream.shed.files.store).fold()
    assert ledger.differences() == []
    assert ledger.total.by_place()["test"]["share"] > 3 * 0.6 * offered
    assert ledger.total.kept["test"] == sum(map(len, stream.results.values()))
    status = stream.shed.files.read_status()
    assert status is not None and status.shed is not None
    assert [(one.key, round(one.share, 2)) for one in status.keys if one.keep < 1.0] == [("0", 0.9)]

    # The last batch is run again, as after a crash before its commit; meanwhile the decision has changed.
    first_run = {row.id for row in stream.results[6]}
    stream.stop()
    (tmp_path / "checkpoint" / "commits" / "6").unlink()
    (tmp_path / "checkpoint" / "commits" / ".6.crc").unlink(missing_ok=True)
    stream.shed.loop.control.put(replace(stream.shed.loop.control.latest, quotas=None, keep_ppm=10_000))
    stream.settle()
    stream.results.clear()
    stream.start()
    stream.query.processAllAvailable()
    stream.stop()
    assert {row.id for row in stream.results[6]} == first_run


def test_shares_follow_sizes_and_weights(spark: SparkSession, tmp_path: Path) -> None:
    sizes = {tenant: 6000 // (tenant + 1) for tenant in range(30)}
    weights = {0: 3.0, 4: 2.0}
    options = {**OPTIONS, "share_by": "concat('t', tenant)", "weights": {"t0": 3, "t4": 2.0}}
    stream = Stream(spark, tmp_path, SCHEMA, transformed, options, keeps=[SHARE])
    stream.start()
    feed(stream, range(6), sizes)
    stream.stop()
    facts, offered = facts_of(stream, 5), sum(sizes.values())
    named = spark.createDataFrame([(0, tenant) for tenant in sizes], SCHEMA)
    hashed = named.select("tenant", key_hash(fn.expr("concat('t', tenant)")).alias("h")).collect()
    hashes = {row.h: row.tenant for row in hashed}
    keeps = {hashes[key]: ppm / PPM for key, ppm in facts.quotas}
    assert facts.others_ppm is not None
    found = {tenant: keeps.get(tenant, facts.others_ppm / PPM) * size for tenant, size in sizes.items()}
    assert found == pytest.approx(max_min_shares(SHARE * offered, sizes, weights), rel=0.02)
    kept = Counter(row.tenant for row in stream.results[5])
    assert all(kept[tenant] == pytest.approx(count, abs=4 * count**0.5) for tenant, count in found.items())


def test_no_key_is_a_key_and_stale_tuples_are_nobodys(spark: SparkSession, tmp_path: Path) -> None:
    old = '"at": "2020-01-01T00:00:00Z"'
    options = {**OPTIONS, "max_age": "1h", "timestamp": "at", "mode": "observe"}
    stream = Stream(spark, tmp_path, f"{SCHEMA}, at timestamp", transformed, options, keeps=[0.5])
    stream.start()
    for batch in range(6):
        fresh = rows(batch, {-1: 700, 1: 300})
        stream.feed([*fresh, *(f'{{"id": {-i}, "tenant": 2, {old}}}' for i in range(1, 5000))])
    stream.stop()
    assert [len(found) for found in stream.results.values()] == [5999] * 6
    status = stream.shed.files.read_status()
    assert status is not None and status.shed is not None
    assert status.totals.dropped == {} and status.shed.stale == 4999 and status.shed.over > 0
    assert [(one.key, one.share) for one in status.keys] == [("null", 0.7), ("1", 0.3)]


@pytest.mark.parametrize(
    "options",
    [{"share_by": "value % 7"}, {"accuracy": Accuracy("sum(value)", by="value % 7")}],
    ids=["share", "accuracy"],
)
def test_no_tuple_carries_the_quotas_of_all_keys_to_where_it_is_counted(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    source = spark.readStream.format("rate").load()
    shedding = source.transform(shed("x", target_latency="2s", state_dir=str(tmp_path), **options))
    java: Any = shedding._jdf
    node = java.sparkSession().sessionState().optimizer().execute(java.queryExecution().analyzed())
    while node.nodeName() != "CollectMetrics":
        node = node.children().apply(0)
    counted = [str(node.child().output().apply(at).name()) for at in range(node.child().output().size())]
    assert KEPT in counted and QUOTAS not in counted


def test_a_million_keys_are_told_in_bounded_space(spark: SparkSession) -> None:
    """One key has a tenth of the tuples, a tenth has no key, and all others differ."""
    of = "CASE WHEN id % 10 = 0 THEN -1 WHEN id % 10 = 1 THEN null ELSE id END"
    quotas = fn.from_json(fn.lit("{}"), f"struct<{QUOTAS_SCHEMA}>")
    control = {QUOTAS: quotas, KEEP: fn.lit(500_000), AIMED: fn.lit(500_000)}
    marked = with_quota(spark.range(1_000_000).withColumns(control), key_hash(fn.expr(of)))
    (row,) = marked.withColumns(key_inputs(of, fn.lit(True))).agg(*key_metrics()).collect()
    points = Counter(row.key_points)
    (minus,) = spark.range(1).select(key_hash(fn.lit(-1).cast("bigint")).alias("h")).collect()
    assert points[minus.h] == pytest.approx(100, abs=2) and points[NULL_KEY] == pytest.approx(100, abs=2)
    assert len(row.key_points) == 1000 and max(n for key, n in points.items() if key not in (minus.h, NULL_KEY)) == 1
    assert key_counts(row.key_counts) == {0: 1_000_000}


@pytest.mark.parametrize("tuples", [64_000, 66_000, 71_000, 77_000])
def test_the_counts_of_a_hundred_keys_are_exact_in_two_partitions(spark: SparkSession, tuples: int) -> None:
    """Spark joins what two partitions counted at the mean of their places, which is a little beside them."""
    place = fn.expr("CAST(pow(101D, pmod(id * 0.6180339887498949D, 1D)) AS bigint)")
    none = fn.from_json(fn.lit("{}"), f"struct<{QUOTAS_SCHEMA}>")
    rows = spark.range(0, tuples, 1, 2).select(place.alias(KEY_AT)).withColumns({KEY: fn.col(KEY_AT), QUOTAS: none})
    (row,) = rows.withColumns(key_inputs("null", fn.lit(True))).agg(*key_metrics()).collect()
    assert key_counts(row.key_counts) == {one[KEY_AT]: one["count"] for one in rows.groupBy(KEY_AT).count().collect()}


def test_a_batch_finds_the_quotas_that_its_facts_have(spark: SparkSession) -> None:
    """To the millionth, whatever the keep in force is: dropped tuples are found again by the facts."""
    aimed, keeps = 317_003, [0, 1, 79_251, 100_000, 237_117, 317_002, 317_003, 330_001, 396_253, 500_000, 999_999, PPM]
    (hashes,) = spark.range(1).select(*[key_hash(fn.lit(key).cast("bigint")) for key in range(4)]).collect()
    loads = dict(zip(hashes[:3], (0.61, 0.13, 0.02), strict=True))
    for quotas in (
        Quotas.fair(aimed / PPM, loads, 0.002, {hashes[1]: 1.7}),
        Quotas.of_groups(aimed / PPM, list(loads), [0.3, 1.0, 0.123456], 0.4, 0.13, ()),
        Quotas(),
    ):
        text = json.dumps({name: value for name, value in asdict(quotas).items() if value is not None})
        control = {QUOTAS: fn.from_json(fn.lit(text), f"struct<{QUOTAS_SCHEMA}>"), AIMED: fn.lit(aimed)}
        rows = spark.createDataFrame([(keep, key) for keep in keeps for key in range(4)], f"{KEEP} int, key bigint")
        found = with_quota(rows.withColumns(control), key_hash(fn.col("key"))).select(KEEP, KEY, QUOTA).collect()
        for keep, key, quota in found:
            changed, others = quotas.in_batch(keep, aimed)
            assert quota == dict(changed).get(key, others), (quotas, keep, key)


def test_what_cannot_have_a_share_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.readStream.format("rate").load().withColumn("m", fn.create_map("value", "value"))
    place = str(tmp_path)
    for options, message in (
        ({"share_by": "tenant"}, "share_by= is no column or expression of the stream: tenant"),
        ({"share_by": "value +"}, "share_by= is no column or expression of the stream: value +"),
        ({"share_by": "null"}, "share_by= is always null: null"),
        ({"share_by": "m"}, "share_by= is of type map<bigint,bigint>, which has no keys"),
        ({"share_by": "value", "weights": {"gold": 2}}, "weights= names 'gold', and share_by= is of type bigint"),
        ({"share_by": "value", "key": "value"}, "share_by= and key= cannot both decide"),
        ({"share_by": "value", "utility": "value"}, "share_by= and utility= cannot both decide"),
        ({"weights": {"gold": 2}}, "weights= are of keys, and no key is named"),
        ({"share_by": "value", "weights": {"1": 0}}, "the weight 0 of '1' is not a number above 0"),
        ({"share_by": "value", "weights": {"1": "much"}}, "the weight 'much' of '1' is not a number above 0"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            source.transform(shed("x", target_latency="2s", state_dir=place, **options))
