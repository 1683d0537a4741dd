"""The join by count windows: against a scan, over batches and replays, and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.errors import InputError
from floodway.network.model import Operator, OperatorKind
from floodway.spark.query.count_join import (
    ARRIVED,
    IDENTITY,
    SIDE,
    ColumnSource,
    CountJoin,
    JoinWindows,
    join_batches,
)
from floodway.spark.query.operators import apply_operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as Frame

    from floodway.spark.session.session import Session

ROW = pa.struct([pa.field("n", pa.int64())])
ROWS = pa.schema(
    {SIDE: pa.int32(), IDENTITY: pa.int64(), ARRIVED: pa.int64(), "_weighed": pa.float64(), "left": ROW, "right": ROW}
)
RESULT = pa.schema(
    [("a", pa.int64()), ("b", pa.int64()), ("_id", pa.int64()), ("_arrival", pa.int64()), ("_weight", pa.float64())]
)
TAKEN = [ColumnSource("a", "left", "n"), ColumnSource("b", "right", "n")]
JOIN = Operator("j", "A", ("x", "y"), OperatorKind.JOIN, cost=0.0, selectivity=0.5, windows=(3.0, 2.0))


def rows(sides: list[int], first: int) -> pa.RecordBatch:
    """Tuples numbered by arrival, each on one side."""
    numbers = list(range(first, first + len(sides)))
    own = [[{"n": n} if side == which else None for n, side in zip(numbers, sides, strict=True)] for which in (0, 1)]
    columns = [pa.array(sides, pa.int32()), pa.array(numbers), pa.array(numbers), pa.array([2.0] * len(sides))]
    return pa.RecordBatch.from_arrays([*columns, *(pa.array(values, ROW) for values in own)], schema=ROWS)


def scanned(sides: list[int], windows: tuple[int, int]) -> set[tuple[int, int]]:
    """All pairs that meet, tuple by tuple."""
    held: tuple[list[int], list[int]] = ([], [])
    found = set()
    for number, side in enumerate(sides):
        for other in held[1 - side][-windows[1 - side] :]:
            found.add((number, other) if side == 0 else (other, number))
        held[side].append(number)
    return found


def joined(join: CountJoin, batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch], folder: Path) -> list[pa.Table]:
    found = []
    for number, batch in enumerate(batches):
        run = join_batches(join, TAKEN, RESULT, JoinWindows(folder, number))
        found.append(pa.Table.from_batches(list(run(iter([batch]))), RESULT))
    return found


@given(st.lists(st.integers(0, 1), max_size=60), st.integers(1, 5), st.integers(1, 5), st.integers(1, 20))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_every_tuple_meets_the_last_of_the_other_side_over_batches(
    tmp_path_factory: pytest.TempPathFactory, sides: list[int], w1: int, w2: int, step: int
) -> None:
    folder = tmp_path_factory.mktemp("join")
    cuts = [rows(sides[at : at + step], at) for at in range(0, len(sides), step)]
    found = joined(CountJoin((w1, w2), 1.0, 0), cuts, folder)
    pairs = [(row["a"], row["b"]) for table in found for row in table.to_pylist()]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == scanned(sides, (w1, w2))
    for row in (row for table in found for row in table.to_pylist()):
        assert row["_arrival"] == min(row["a"], row["b"]) and row["_weight"] == 4.0


def test_a_replay_gives_the_same_and_old_windows_go(tmp_path: Path) -> None:
    rng = random.Random(5)
    join = CountJoin((4, 6), 0.4, 9)
    cuts = [rows([rng.randint(0, 1) for _ in range(10)], 10 * n) for n in range(15)]
    first = joined(join, cuts, tmp_path)
    again = join_batches(join, TAKEN, RESULT, JoinWindows(tmp_path, 14))
    assert pa.Table.from_batches(list(again(iter([cuts[14]]))), RESULT).equals(first[14])
    assert sorted(int(path.stem) for path in tmp_path.glob("*.arrow")) == list(range(5, 15))


def test_the_share_of_pairs_is_the_selectivity_and_every_join_has_its_own() -> None:
    side = np.arange(20_000) % 2
    ids = np.arange(20_000).astype(np.uint64)
    one, other = (
        {pair for found in CountJoin((50, 50), 0.1, salt).pairs(0, side, ids) for pair in zip(*found, strict=True)}
        for salt in (1, 2)
    )
    meet = 20_000 * 50
    assert len(one) == pytest.approx(0.1 * meet, rel=0.02)
    assert len(one & other) == pytest.approx(0.01 * meet, rel=0.1)


@pytest.mark.spark
def test_results_have_the_columns_of_both_sides_and_the_older_arrival(spark: Session) -> None:
    left = frame(spark, [(1, 10, 5), (2, 20, 6)])
    right = frame(spark, [(3, 15, 7)])
    found = apply_operator(replace(JOIN, selectivity=1.0), [left, right]).orderBy("key").collect()
    assert [(row["key"], row["y_key"], row["_arrival"].timestamp()) for row in found] == [(5, 7, 10.0), (6, 7, 15.0)]
    assert len({row["_id"] for row in found}) == 2


@pytest.mark.spark
def test_what_loses_the_arrival_is_refused_with_words(spark: Session) -> None:
    whole = frame(spark, [(1, 10, 5)])
    with pytest.raises(InputError, match="from y has no column '_arrival'"):
        apply_operator(JOIN, [whole, whole.drop("_arrival")])
    losing = Operator("f", "A", ("x",), run="tests.spark.test_spark_count_join:without_arrival")
    with pytest.raises(InputError, match="how late its results are"):
        apply_operator(losing, [whole])


def without_arrival(df: Frame) -> Frame:
    return df.drop("_arrival")


def frame(spark: Session, values: list[tuple[int, int, int]]) -> Frame:
    df = spark.createDataFrame(values, "_id bigint, at bigint, key int")
    return df.selectExpr("key", "_id", "timestamp_seconds(at) AS _arrival", "1D AS _weight")
