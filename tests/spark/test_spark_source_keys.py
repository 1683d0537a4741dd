"""Drops by key in the offset: fair shares and first tuples, counted when a batch is cut, and the same in every read."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.errors import InputError
from floodway.job.decision import JobDecision, Mode, StreamDecision
from floodway.job.ledger.ledger import Reason
from floodway.spark.log import Span
from floodway.spark.query.fragment_lines import source_stages
from floodway.spark.query.fragment_sources import dropped_sample
from floodway.spark.source.admit import admit, output_schema, split_ranges
from floodway.spark.source.backend import Piece
from floodway.spark.source.cut import cut_batch
from floodway.spark.source.keys import KeyDrops, hashed_weights, key_hash, key_hashes, parse_keys, with_keys
from floodway.spark.source.offsets import BatchOffset, Range, parse_offset
from floodway.units import PPM
from tests.effort import tries
from tests.oracles.max_min import max_min_shares

SCHEMA = pa.schema([pa.field("tenant", pa.string()), pa.field("page", pa.int64())])
SHARES = KeyDrops("tenant")
PIECE = 500


class Clicks:
    """Two partitions of clicks, read in pieces."""

    def __init__(self, *partitions: Sequence[tuple[str | None, int | None]]) -> None:
        self.rows = partitions

    def read(self, partition: int, runs: Sequence[tuple[int, int]]) -> Iterator[Piece]:
        for start, end in runs:
            for at in range(start, end, PIECE):
                rows = self.rows[partition][at : min(at + PIECE, end)]
                columns = [
                    pa.array([row[0] for row in rows], pa.string()),
                    pa.array([row[1] for row in rows], pa.int64()),
                ]
                arrival = pa.nulls(len(rows), pa.timestamp("us", tz="UTC"))
                batch = pa.RecordBatch.from_arrays([*columns, arrival], names=["tenant", "page", "_arrival"])
                yield np.arange(at, at + len(rows), dtype=np.int64), batch

    def span(self, span: Range) -> Iterator[Piece]:
        return self.read(span[0], [(span[1], span[2])])


def cut(log: Clicks, keep_ppm: int, drops: KeyDrops, mode: Mode = "enforce", salt: int = 5) -> BatchOffset:
    """The batch of all clicks, as Spark's journal gives it back."""
    empty = dict.fromkeys(range(len(log.rows)), 0)
    decision = JobDecision(streams={"s": StreamDecision(keep_ppm)}, mode=mode, salt=salt)
    spans = {partition: Span(0, len(rows)) for partition, rows in enumerate(log.rows)}
    batch = cut_batch(
        BatchOffset("s", empty, empty), spans, decision, arcs=[], limit=None, skip_lost=False, where="log"
    )
    assert batch is not None
    return parse_offset(json.dumps(with_keys(batch, parse_keys(drops.text()), log.span).to_json()))


def admitted(log: Clicks, batch: BatchOffset, splits: int = 1) -> list[dict[str, Any]]:
    schema, rule = output_schema(SCHEMA, ()), batch.admission
    parts = split_ranges(batch.ranges(), rule, splits)
    found = [row for part in parts for one in admit(log, part, rule, {}, schema) for row in one.to_pylist()]
    return sorted(found, key=lambda row: int(row["_id"]))


def noisy(tuples: int = 4000, tenants: int = 20) -> Clicks:
    """One tenant sends nine tenths."""
    rng = random.Random(7)
    names = [*["noisy"] * 9 * tenants, *(f"t{number}" for number in range(tenants))]
    return Clicks(*[[(rng.choice(names), rng.randrange(50)) for _ in range(tuples // 2)] for _ in range(2)])


def test_who_sends_most_loses_and_nobody_else() -> None:
    log = noisy()
    batch = cut(log, 300_000, SHARES)
    kept = Counter(row["tenant"] for row in admitted(log, batch))
    offered = Counter(tenant for rows in log.rows for tenant, _ in rows)
    assert all(kept[name] == offered[name] for name in offered if name != "noisy")
    assert kept.total() == pytest.approx(0.3 * offered.total(), rel=0.05)
    account = batch.account()
    assert (account.offered, account.kept) == (offered.total(), kept.total())
    assert (account.share, account.shedder) == (offered["noisy"] - kept["noisy"], 0)
    stages = {reason: (given, left) for reason, given, left in source_stages(batch)}
    assert stages[Reason.SHARE] == (offered.total(), kept.total()) and batch.keys is not None
    assert batch.keys.large[0][:2] == ("noisy", offered["noisy"])


def test_weights_estimate_what_was_offered() -> None:
    log = noisy(20_000)
    rows = admitted(log, cut(log, 250_000, SHARES))
    estimate = sum(row["_weight"] for row in rows if row["tenant"] == "noisy")
    offered = sum(tenant == "noisy" for part in log.rows for tenant, _ in part)
    assert estimate == pytest.approx(offered, rel=0.05)
    assert all(row["_weight"] == 1.0 for row in rows if row["tenant"] != "noisy")


def test_a_tenant_of_weight_three_gets_three_times_the_share() -> None:
    rng = random.Random(3)
    log = Clicks([(rng.choice(["gold", "free"]), None) for _ in range(20_000)])
    kept = Counter(row["tenant"] for row in admitted(log, cut(log, 200_000, replace(SHARES, weights={"gold": 3.0}))))
    assert kept["gold"] / kept["free"] == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("keep_ppm", [50_000, 333_333, 700_000])
def test_shares_are_those_of_the_linear_program(keep_ppm: int) -> None:
    """A hundred tenants at up to twenty times what fits, of many sizes."""
    counts = {number: 4000 // (number + 1) + 1 for number in range(100)}
    weights = {0: 2.0, 7: 0.5}
    rows: list[tuple[str | None, int | None]] = [
        (str(key), None) for key, count in counts.items() for _ in range(count)
    ]
    batch = cut(Clicks(rows), keep_ppm, KeyDrops("tenant", {str(key): weight for key, weight in weights.items()}))
    assert batch.keys is not None
    keeps = dict(zip(batch.keys.keys, batch.keys.keeps, strict=True))
    total = sum(counts.values())
    fair = max_min_shares(total * keep_ppm / PPM, {key: float(count) for key, count in counts.items()}, weights)
    for key, count in counts.items():
        assert keeps[key_hash(str(key))] * count / PPM == pytest.approx(fair[key], rel=0.001, abs=0.01)


@given(st.integers(0, 10**6), st.sampled_from([0, 50_000, 400_000, 900_000]), st.booleans(), st.integers(0, 3))
@settings(max_examples=tries(40), deadline=None, derandomize=True)
def test_what_is_counted_at_the_cut_is_what_every_read_lets_pass(
    seed: int, keep_ppm: int, by_share: bool, rare: int
) -> None:
    rng = random.Random(seed)
    tenants = [f"t{number}" for number in range(rng.choice([3, 300]))] + [None]
    log = Clicks(
        *[[(rng.choice(tenants), rng.choice([None, *range(40)])) for _ in range(rng.randrange(1, 1500))] for _ in "ab"]
    )
    drops = KeyDrops("tenant" if by_share or not rare else "", {}, "page" if rare else "", rare)
    batch = cut(log, keep_ppm, drops)
    kept = admitted(log, batch)
    assert batch.account().kept == len(kept) == len(admitted(log, batch, splits=4))
    assert kept == admitted(log, batch, splits=4)
    gone = dropped_sample(log, batch, 10_000)
    ids = [] if gone is None else gone["origin_id"].to_pylist()
    assert sorted([*ids, *(row["_id"] for row in kept)]) == sorted(
        (partition << 48) + at for partition, rows in enumerate(log.rows) for at in range(len(rows))
    )


def test_every_key_that_comes_in_goes_out() -> None:
    rng = random.Random(11)
    log = Clicks(*[[("x", number if number < 300 else rng.randrange(3)) for number in range(4000)] for _ in "ab"])
    rows = admitted(log, cut(log, 150_000, KeyDrops(rare_by="page", keep_rare=2)))
    kept = Counter(row["page"] for row in rows)
    offered = Counter(page for part in log.rows for _, page in part)
    assert all(kept[page] >= min(2, offered[page]) for page in offered)
    assert kept.total() == pytest.approx(0.15 * offered.total(), rel=0.1)
    assert sum(row["_weight"] for row in rows) == pytest.approx(offered.total(), rel=0.1)


def test_observe_drops_nothing_and_says_what_enforcing_would() -> None:
    log = noisy()
    batch = cut(log, 300_000, SHARES, "observe")
    assert batch.account().kept == batch.account().offered == len(admitted(log, batch))
    assert batch.would_drop["share"] == cut(log, 300_000, SHARES).account().share > 0
    assert cut(log, 300_000, SHARES, "off").keys is None and cut(log, PPM, SHARES).keys is None


def test_hashes_tell_values_apart_and_are_the_same_in_every_process() -> None:
    assert key_hashes(pa.array(["a", "b", None, "a"])).tolist() == [key_hash("a"), key_hash("b"), 0, key_hash("a")]
    assert key_hash("a") == 2_285_969_620_036_808
    numbers = key_hashes(pa.array([1, None, 2], pa.int32()))
    assert numbers[1] == 0 and hashed_weights({"2": 3.0}, pa.int64()) == {int(numbers[2]): 3.0}
    with pytest.raises(InputError, match="no value of a column of type int64"):
        hashed_weights({"gold": 3.0}, pa.int64())
