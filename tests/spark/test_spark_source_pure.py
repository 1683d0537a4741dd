"""What a batch admits, without Spark: drops, offsets, cutting, splitting, decoding, options."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.errors import InputError
from floodway.job.decision import JobDecision, Mode, StreamDecision
from floodway.job.ledger.ledger import Reason
from floodway.spark.log import LogWriter, PositionError, Span, create_log
from floodway.spark.query.fragment_lines import source_stages
from floodway.spark.source import BatchOffset, count_kept, parse_offset
from floodway.spark.source.accounts import Account
from floodway.spark.source.admit import joined, split_ranges
from floodway.spark.source.backend import open_backend
from floodway.spark.source.cut import capped, cut_batch
from floodway.spark.source.decode import decode_json, json_schema
from floodway.spark.source.drops import BLOCK, count_kept_hash, kept_mask, kept_runs, mix, tuple_ids
from floodway.spark.source.offsets import Admission
from floodway.spark.source.options import parse_options
from floodway.units import PPM

positions = st.integers(0, 5000)
keeps = st.integers(0, PPM)


def test_mix_is_the_published_generator() -> None:
    # The first three outputs of splitmix64 seeded with 1234567, as published with the generator.
    seeds = np.uint64(1234567) + np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert mix(seeds).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("keep_ppm", [1, 10_000, 250_000, 500_000, 999_000])
def test_hash_keeps_the_fraction_within_binomial_bounds(keep_ppm: int) -> None:
    n, keep = 1_000_000, keep_ppm / PPM
    for salt in range(5):
        kept = count_kept_hash(1, 10**9, 10**9 + n, salt=salt, keep_ppm=keep_ppm)
        assert abs(kept - n * keep) <= 5 * math.sqrt(n * keep * (1 - keep)) + 1, (salt, kept)


def test_salts_are_independent_and_a_lower_keep_is_a_subset() -> None:
    ids = tuple_ids(0, np.arange(200_000))
    low = kept_mask(ids, salt=7, keep_ppm=200_000)
    high = kept_mask(ids, salt=7, keep_ppm=600_000)
    other = kept_mask(ids, salt=8, keep_ppm=200_000)
    assert not np.any(low & ~high)
    assert abs(np.mean(low & other) - 0.04) < 0.003


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    start=positions,
    length=positions,
    split=st.integers(0, 5000),
    keep=keeps,
    salt=st.integers(-(2**63), 2**64),
    size=st.sampled_from([BLOCK, 1024]),
)
def test_runs_are_whole_blocks_cut_at_the_edges_and_add_up(
    start: int, length: int, split: int, keep: int, salt: int, size: int
) -> None:
    end, middle = start + length, start + min(split, length)
    found = partial(kept_runs, 3, salt=salt, keep_ppm=keep, block=size)
    runs = found(start, end)
    kept = {i for a, b in runs for i in range(a, b)}
    assert all(start <= a < b <= end for a, b in runs)
    for i in range(start, end, 37):
        block = range(max(start, i // size * size), min(end, (i // size + 1) * size))
        assert {j in kept for j in block} == {i in kept}
    assert {i for a, b in found(start, middle) + found(middle, end) for i in range(a, b)} == kept


@pytest.mark.parametrize("keep_ppm", [1_000, 100_000, 250_000, 618_034, 900_000])
def test_range_keeps_the_fraction_within_a_few_blocks_for_any_stretch(keep_ppm: int) -> None:
    for salt in range(20):
        for start, blocks in ((0, 10_000), (12_345, 400), (999, 50)):
            runs = kept_runs(2, start * BLOCK, (start + blocks) * BLOCK, salt=salt, keep_ppm=keep_ppm)
            kept = sum(b - a for a, b in runs) / BLOCK
            assert abs(kept - blocks * keep_ppm / PPM) <= 4, (salt, start, kept)


def test_range_keeps_every_block_with_probability_keep_over_the_salts() -> None:
    kept = np.zeros(50)
    for salt in range(4000):
        for a, b in kept_runs(1, 0, 50 * BLOCK, salt=salt, keep_ppm=300_000):
            kept[a // BLOCK : b // BLOCK] += 1
    assert np.all(np.abs(kept / 4000 - 0.3) < 5 * math.sqrt(0.3 * 0.7 / 4000))


def test_offsets_survive_the_journal_and_wrong_ones_are_refused() -> None:
    offset = BatchOffset(
        "s", {0: 1, 1: 2}, {0: 5, 1: 9}, {1: 3}, 11, 250_000, 17, "enforce", "r7", "range", {"a->b": 3}
    )
    body = offset.to_json()
    assert parse_offset(body) == offset
    import json

    assert parse_offset(json.dumps(body)) == offset
    assert offset.ranges() == [(0, 1, 5), (1, 5, 9)]
    assert "block" not in body and offset.admission.block == BLOCK  # as offsets were before topics had blocks
    larger = replace(offset, block=4096)
    assert parse_offset(larger.to_json()) == larger and larger.admission.block == 4096
    for bad in (
        {},
        "nonsense",
        {"v": 2},
        {**body, "keep_ppm": -1},
        {**body, "mode": "x"},
        {**body, "pos": 3},
    ):
        with pytest.raises(InputError):
            parse_offset(bad)


@pytest.mark.parametrize("drop", ["hash", "range"])
@pytest.mark.parametrize(("mode", "fraction"), [("enforce", 0.25), ("observe", 1.0), ("off", 1.0)])
def test_count_kept_follows_mode_and_kind(drop: str, mode: str, fraction: float) -> None:
    start = BatchOffset("s", {0: 0, 1: 0}, {0: 0, 1: 0}).to_json()
    end = parse_offset(
        {**start, "pos": {"0": 400_000, "1": 0}, "keep_ppm": 250_000, "mode": mode, "drop": drop}
    ).to_json()
    counts = count_kept(start, end)
    assert counts[1] == (0, 0) and counts[0][0] == 400_000
    assert counts[0][1] == pytest.approx(400_000 * fraction, rel=0.01)
    assert count_kept(end, end) == {0: (0, 0), 1: (0, 0)}


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    waiting=st.lists(st.integers(0, 1000), min_size=1, max_size=5),
    limit=st.one_of(st.none(), st.integers(1, 2000)),
)
def test_a_limit_is_used_up_and_never_exceeded(waiting: list[int], limit: int | None) -> None:
    spans = {p: Span(10 * p, 10 * p + n) for p, n in enumerate(waiting)}
    ends = capped(spans, limit)
    taken = [ends[p] - spans[p].first for p in spans]
    assert sum(taken) == (sum(waiting) if limit is None else min(limit, sum(waiting)))
    assert all(0 <= t <= n for t, n in zip(taken, waiting, strict=True))


def cut(
    decision: JobDecision, spans: dict[int, Span], *, limit: int | None = None, skip: bool = False
) -> BatchOffset | None:
    previous = BatchOffset("s", {0: 0}, {0: 100})
    return cut_batch(previous, spans, decision, arcs=("a->b",), limit=limit, skip_lost=skip, where="log")


def test_a_changed_decision_alone_cuts_no_batch() -> None:
    assert cut(JobDecision(plan="new", mode="enforce"), {0: Span(100, 100)}) is None


def test_the_limit_of_a_decision_loses_nothing_and_belongs_to_enforce() -> None:
    limited = {"s": StreamDecision(limit=60)}
    found = cut(JobDecision(mode="enforce", streams=limited), {0: Span(100, 300)})
    assert found is not None
    assert (found.end, found.waiting, found.keep_ppm, found.account().kept) == ({0: 160}, 200, PPM, 60)
    less = cut(JobDecision(mode="enforce", streams=limited), {0: Span(100, 300)}, limit=50)
    seen = cut(JobDecision(mode="observe", streams=limited), {0: Span(100, 300)})
    assert less is not None and less.end == {0: 150} and seen is not None and seen.end == {0: 300}


def test_old_tuples_and_those_beyond_a_lag_are_jumped_over_and_accounted_for() -> None:
    asked: list[tuple[int, Span, int]] = []

    def first_since(partition: int, span: Span, age_us: int) -> int:
        asked.append((partition, span, age_us))
        return 150

    previous, spans = BatchOffset("s", {0: 0}, {0: 90}), {0: Span(100, 300), 1: Span(0, 100)}
    decided = {"s": StreamDecision(500_000, max_age_us=7, most_waiting=100)}

    def batch(mode: Mode) -> BatchOffset:
        decision = JobDecision(mode=mode, streams=decided)
        found = cut_batch(
            previous, spans, decision, arcs=(), limit=80, skip_lost=True, where="log", first_since=first_since
        )
        assert found is not None
        return parse_offset(found.to_json())

    found = batch("enforce")
    assert asked == [(0, Span(100, 300), 7), (1, Span(0, 100), 7)]
    # 150 are young enough in partition 0 and none in partition 1; of these the newest hundred stay, and eighty fit.
    assert (found.lost, found.stale, found.lag) == ({0: 10}, {0: 50, 1: 100}, {0: 50})
    assert (found.ranges(), found.waiting) == ([(0, 200, 280)], 300)
    account = found.account()
    assert (account.offered, account.retention, account.stale, account.lag) == (290, 10, 150, 50)
    assert account.kept == 80 - account.shedder < 80
    assert found.account(1).kept == 0 and found.account(1).offered == 100
    stages = source_stages(found)
    assert [stage[0] for stage in stages] == [Reason.SHEDDER, Reason.STALE, Reason.LAG, Reason.RETENTION]
    assert stages[0][1] == 290 and stages[-1][2] == account.kept
    seen = batch("observe")
    assert (seen.stale, seen.lag) == (found.stale, found.lag) and found.would_drop == {}
    assert sum(seen.would_drop.values()) == 200
    assert seen.ranges() == [(0, 100, 153), (1, 0, 27)] and seen.account().kept == 80
    assert [stage[0] for stage in source_stages(seen)] == [Reason.SHEDDER, Reason.RETENTION]
    off = batch("off")
    assert (off.stale, off.lag, off.account().kept) == ({}, {}, 80)
    plain = BatchOffset("s", {0: 0}, {0: 90}).to_json()
    assert "stale" not in plain and "lag" not in plain


def test_a_log_finds_where_an_age_begins(tmp_path: Path) -> None:
    create_log(tmp_path / "log", "id bigint", stream="s")
    with LogWriter(tmp_path / "log") as writer:
        for step in range(20):
            writer.append(pa.table({"id": pa.array(range(7))}), arrival=1_000_000 + 10 * step)
    backend = open_backend(parse_options({"path": str(tmp_path / "log")}))
    span = backend.spans({0: 3})[0]
    for time_us in (0, 1_000_000, 1_000_001, 1_000_095, 1_000_190, 1_000_191):
        expected = next((at for at in range(3, 140) if 1_000_000 + 10 * (at // 7) >= time_us), 140)
        assert backend.first_since(0, span, time_us) == expected


def test_budget_takes_precedence_and_counts_what_the_batch_holds() -> None:
    budget = JobDecision(mode="enforce", streams={"s": StreamDecision(keep_ppm=1, budget=50)}, arcs={"a->b": 7})
    full = cut(budget, {0: Span(100, 300)})
    capped_batch = cut(budget, {0: Span(100, 300)}, limit=100)
    small = cut(budget, {0: Span(100, 150)})
    assert full is not None and capped_batch is not None and small is not None
    assert [b.keep_ppm for b in (full, capped_batch, small)] == [250_000, 500_000, PPM]
    assert (full.waiting, capped_batch.waiting, capped_batch.end) == (200, 200, {0: 200})
    assert full.arcs == {"a->b": 7}


def test_lost_tuples_fail_or_are_journaled() -> None:
    with pytest.raises(PositionError, match=r"position 100 is retired or missing, 20 tuple\(s\) lost"):
        cut(JobDecision(), {0: Span(120, 150)})
    batch = cut(JobDecision(), {0: Span(120, 150)}, skip=True)
    assert batch is not None
    assert (batch.lost, batch.ranges()) == ({0: 20}, [(0, 120, 150)])
    assert batch.account() == Account(offered=50, retention=20) and batch.account().kept == 30


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(0, 100_000), max_size=5), splits=st.integers(1, 4))
def test_splits_cover_every_tuple_once(sizes: list[int], splits: int) -> None:
    ranges = [(p, 5, 5 + n) for p, n in enumerate(sizes) if n]
    parts = split_ranges(ranges, Admission(), splits)
    assert len(parts) <= splits
    flat = [r for part in parts for r in part]
    for partition, start, end in ranges:
        at = start
        for _, a, b in (r for r in flat if r[0] == partition):
            assert a == at and b > a
            at = b
        assert at == end


def test_joined_pieces_hold_all_rows_in_order() -> None:
    pieces = [(np.arange(a, a + 900), pa.record_batch({"x": np.arange(a, a + 900)})) for a in range(0, 90_000, 900)]
    out = list(joined(iter(pieces)))
    assert len(out) == 3
    assert np.concatenate([ids for ids, _ in out]).tolist() == list(range(90_000))
    assert all(ids.tolist() == batch.column("x").to_pylist() for ids, batch in out)


def test_malformed_json_is_marked_and_the_others_are_read() -> None:
    schema = json_schema("id bigint, at timestamp, day date, s string")
    values: list[bytes | None] = [b'{"id": %d, "s": "x"}' % n for n in range(100)]
    values[3], values[50], values[51], values[99] = b"{oops", None, b'{"id": "text"}', b'{"id":1}{"id":2}'
    values[10] = b'{"id": 10, "at": "2024-05-01T10:00:00.000001Z", "day": "2024-05-02", "extra": [1]}'
    rows = decode_json(values, schema).to_pylist()
    assert len(rows) == 100
    bad = {n: row for n, row in enumerate(rows) if row["_error"] is not None}
    assert list(bad) == [3, 50, 51, 99]
    assert [row["_raw"] for row in bad.values()] == [b"{oops", b"", b'{"id": "text"}', b'{"id":1}{"id":2}']
    assert "more than one" in bad[99]["_error"] and "empty" in bad[50]["_error"]
    assert all(row["id"] == n and row["_raw"] is None for n, row in enumerate(rows) if n not in bad)
    assert rows[10]["day"].isoformat() == "2024-05-02" and rows[10]["at"].microsecond == 1
    assert decode_json([], schema).num_rows == 0


def test_bytes_that_are_no_text_are_malformed_and_keep_their_bytes() -> None:
    values = [b'{"id": %d, "s": "x"}' % n for n in range(20)]
    values[7], values[8] = b'{"id": 7, "s": "\xff"}', b'{"id": 8, "s": "caf\xc3\xa9"}'
    decoded = decode_json(values, json_schema("id bigint, s string"))
    decoded.validate(full=True)
    rows = decoded.to_pylist()
    assert [n for n, row in enumerate(rows) if row["_error"] is not None] == [7]
    assert rows[7]["_raw"] == values[7] and "UTF8" in rows[7]["_error"] and rows[8]["s"] == "café"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": "x", "topic": "y", "kafka.bootstrap.servers": "h:1"},
        {"topic": "y", "schema": "id int"},
        {"topic": "y", "kafka.bootstrap.servers": "h:1"},
        {"path": "x", "maxTuplesPerBatch": "0"},
        {"path": "x", "maxTuplesPerBatch": "many"},
        {"path": "x", "onLoss": "shrug"},
        {"path": "x", "pth": "y"},
        {"topic": "y", "kafka.bootstrap.servers": "h:1", "valueFormat": "avro"},
    ],
)
def test_wrong_options_are_refused_with_a_hint(options: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_options(options)
    assert caught.value.hint


def test_options_are_read() -> None:
    options = parse_options({"path": "x", "arcs": "a->b, c->d", "MaxTuplesPerBatch": "7", "onLoss": "skip"})
    assert (options.arcs, options.max_tuples, options.skip_lost) == (("a->b", "c->d"), 7, True)
