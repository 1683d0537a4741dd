"""Window Drop in the offset: what a batch journals, and that windows stay whole over batches, restarts and plans."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.errors import InputError
from floodway.job.decision import JobDecision, Mode, StreamDecision
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_keeps import WindowKeeps, from_numbers
from floodway.spark.log import LogReader, LogWriter, Span, create_log
from floodway.spark.query.fragment_sources import dropped_sample
from floodway.spark.source.admit import admit, output_schema
from floodway.spark.source.backend import Backend, Piece, open_backend
from floodway.spark.source.cut import cut_batch
from floodway.spark.source.offsets import BatchOffset, Range, count_kept, parse_offset
from floodway.spark.source.options import parse_options
from floodway.spark.source.windows import drops_text, parse_drops, with_windows
from floodway.units import PPM
from tests.effort import tries
from tests.planning.whole_windows import is_whole

SHAPE = WindowShape(10, 5)
SCHEMA = pa.schema([pa.field("event_time", pa.timestamp("us", tz="UTC"))])


def piece(first: int, times: list[int | None]) -> Piece:
    column = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    arrival = pa.nulls(len(times), pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_arrays([column, arrival], names=["event_time", "_arrival"])
    return np.arange(first, first + len(times), dtype=np.int64), batch


class Times:
    """A log of event times in one partition."""

    def __init__(self) -> None:
        self.times: list[int | None] = []

    def read(self, partition: int, runs: Sequence[tuple[int, int]]) -> Iterator[Piece]:
        for start, end in runs:
            yield piece(start, self.times[start:end])

    def span(self, span: Range) -> Iterator[Piece]:
        return self.read(span[0], [(span[1], span[2])])


def cut(previous: BatchOffset, log: Times, decision: JobDecision, drops: dict[str, WindowKeeps]) -> BatchOffset:
    arcs = [at for at in drops if at != previous.stream]
    batch = cut_batch(
        previous, {0: Span(0, len(log.times))}, decision, arcs=arcs, limit=None, skip_lost=False, where="log"
    )
    assert batch is not None
    return with_windows(previous, batch, drops, log.span)


def decided(keep_ppm: int, mode: Mode = "enforce", arc_ppm: int = PPM) -> JobDecision:
    return JobDecision(streams={"s": StreamDecision(keep_ppm)}, arcs={"m->g": arc_ppm}, mode=mode)


def admitted(log: Times, batch: BatchOffset, arcs: tuple[str, ...] = ()) -> pa.Table:
    schema = output_schema(SCHEMA, arcs)
    rules = {arc: batch.window_rule(arc) for arc in arcs}
    return pa.Table.from_batches(list(admit(log, batch.ranges(), batch.admission, rules, schema)), schema)


@given(st.integers(0, 10**6), st.sampled_from([SHAPE, WindowShape(7, 7), WindowShape(12, 5), WindowShape(9, 3)]))
@settings(max_examples=tries(60), deadline=None, derandomize=True)
def test_windows_that_leave_are_whole_over_batches_restarts_and_plans(seed: int, shape: WindowShape) -> None:
    rng = random.Random(seed)
    log, passed = Times(), Counter[int]()
    offset = BatchOffset("s", {0: 0}, {0: 0})
    for step in range(20):
        log.times += [3 * step + rng.randint(-8, 12) for _ in range(rng.randint(1, 15))]
        modes: list[Mode] = ["enforce", "enforce", "observe", "off"]
        plan = decided(rng.choice([0, 300_000, 700_000, PPM]), rng.choice(modes))
        offset = parse_offset(json.dumps(cut(offset, log, plan, {"s": WindowKeeps(shape)}).to_json()))
        kept = admitted(log, offset)
        assert kept.num_rows == offset.account().kept == sum(offset.passed.values())
        assert admitted(log, offset).equals(kept)
        passed.update(kept["event_time"].cast(pa.int64()).to_pylist())
        offered = Counter(time for time in log.times if time is not None)
        keeps = from_numbers(offset.windows["s"])
        for start in range(-20, 80):
            if start % shape.slide_us == 0 and is_whole(keeps, start):
                window = range(start, start + shape.size_us)
                assert all(passed[time] == offered[time] for time in window)


def test_a_change_of_plan_waits_for_windows_that_begin_later() -> None:
    log, drops = Times(), {"s": WindowKeeps(SHAPE)}
    log.times = [0, 4, 12]
    first = cut(BatchOffset("s", {0: 0}, {0: 0}), log, decided(PPM), drops)
    assert (first.seen_us, first.newest_id, first.passed) == (12, 2, {0: 3})
    log.times += [13, 14, 16]
    lowered = cut(first, log, decided(0), drops)
    assert from_numbers(lowered.windows["s"]).history[-1] == (15, 0)
    # 13 and 14 lie in windows [5, 15) and [10, 20), which have begun; 16 too, in [10, 20).
    assert lowered.account().kept == 3
    log.times += [21, 22]
    later = cut(lowered, log, decided(0), drops)
    # Only the first tuple with a new latest time passes, for the watermark.
    assert admitted(log, later)["event_time"].cast(pa.int64()).to_pylist() == [22]
    assert later.account().shedder == 1
    sample = dropped_sample(log, later, 10)
    assert sample is not None and sample["origin_id"].to_pylist() == [6]
    assert count_kept(lowered.to_json(), later.to_json()) == {0: (2, 1)}


def test_a_plan_that_is_only_observed_drops_nothing() -> None:
    log = Times()
    log.times = list(range(100))
    batch = cut(BatchOffset("s", {0: 0}, {0: 0}), log, decided(0, "observe"), {"s": WindowKeeps(SHAPE)})
    assert batch.keep_ppm == 0
    assert batch.account().kept == 100


def test_tuples_without_a_time_are_left_to_the_aggregate() -> None:
    log = Times()
    log.times = [1, None, 2, None]
    batch = cut(BatchOffset("s", {0: 0}, {0: 0}), log, decided(0), {"s": WindowKeeps(SHAPE)})
    assert admitted(log, batch)["_id"].to_pylist() == [1, 2, 3]


def test_an_arc_inside_drops_by_its_own_windows_and_salt() -> None:
    log, arc = Times(), WindowKeeps(SHAPE, salt=3)
    log.times = list(range(400))
    batch = cut(BatchOffset("s", {0: 0}, {0: 0}), log, decided(PPM, arc_ppm=500_000), {"m->g": arc})
    found = admitted(log, batch, ("m->g",))
    assert found.num_rows == 400 and batch.passed == {}
    passes = from_numbers(batch.windows["m->g"]).passes(np.arange(400))
    assert found["_keep:m->g"].to_pylist()[:-1] == [PPM * int(kept) for kept in passes[:-1]]
    assert 0 < passes.sum() < 400


def test_windows_that_began_under_random_drops_or_other_windows_do_not_count_as_whole() -> None:
    log = Times()
    log.times = [0, 3, 7]
    thinned = BatchOffset("s", {0: 0}, {0: 2}, keep_ppm=500_000, mode="enforce")
    batch = cut(thinned, log, decided(PPM), {"s": WindowKeeps(SHAPE)})
    keeps = from_numbers(batch.windows["s"])
    assert not is_whole(keeps, 5) and is_whole(keeps, 10)
    log.times += [21]
    other = cut(batch, log, decided(PPM), {"s": WindowKeeps(WindowShape(4, 4))})
    changed = from_numbers(other.windows["s"])
    assert changed.shape == WindowShape(4, 4)
    assert not is_whole(changed, 20) and is_whole(changed, 24)


def test_the_reader_takes_one_column_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    create_log(path, "id bigint, event_time timestamp", stream="s")
    with LogWriter(path) as writer:
        rows = pa.table({"id": [1, 2], "event_time": pa.array([5, 25], pa.int64()).cast(pa.timestamp("us", tz="UTC"))})
        writer.append(rows)
    assert LogReader(path).end_positions() == {0: 2}
    narrow: Backend = open_backend(parse_options({"path": str(path), "schema": "event_time timestamp"}))
    batch = BatchOffset("s", {0: 0}, {0: 2}, keep_ppm=0, mode="enforce")
    found = with_windows(
        BatchOffset("s", {0: 0}, {0: 0}), batch, {"s": WindowKeeps(SHAPE)}, lambda at: narrow.read(at[0], [at[1:]])
    )
    assert (found.seen_us, found.passed) == (25, {0: 1})


def test_the_option_of_the_reader() -> None:
    drops = {"s": WindowKeeps(SHAPE, 2)}
    assert parse_drops(drops_text(drops)) == drops
    with pytest.raises(InputError, match="windows"):
        parse_drops('{"s": [1]}')
    assert replace(drops["s"], salt=0) != drops["s"]
