"""A query that is prepared while another application runs it waits at its gate, then goes on from the checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from floodway.contracts.federation_file import FragmentSpec
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.query.catalogue import load_catalogue
from floodway.spark.query.fragment_query import FragmentQuery
from floodway.spark.query.journal import checkpoint_id, journaled_batches
from floodway.spark.query.moving_fragment import MovingLayout, moving_query, rehearse
from floodway.spark.source import register
from floodway.spark.source.gate import OPEN, SHUT, GateShutError, decide, remove, wait_at, waiting
from tests.agent.federation_on_spark import wait
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = FragmentSpec("sums", "A", "tens", {"input": "in"}, "out")
CATALOGUE = "tests.agent.federation_catalogue"


@pytest.mark.parametrize("text", [OPEN, SHUT])
def test_a_gate_is_waited_at_until_it_is_decided(tmp_path: Path, text: str) -> None:
    gate = tmp_path / "gate"
    ended: list[str] = []

    def walk() -> None:
        try:
            wait_at(gate)
            ended.append(OPEN)
        except GateShutError:
            ended.append(SHUT)

    thread = threading.Thread(target=walk)
    thread.start()
    while not waiting(gate).exists():
        assert thread.is_alive()
    assert ended == []
    decide(gate, text)
    thread.join()
    assert ended == [text]
    remove(gate)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_whose_driver_has_died_does_not_wait_for_ever(tmp_path: Path) -> None:
    parents = iter([4711, 4711, 1])
    with pytest.raises(GateShutError, match="nobody is left"):
        wait_at(tmp_path / "gate", sleep=lambda seconds: None, parent=lambda: next(parents))


def put(log: Path, first: int, last: int) -> None:
    with LogWriter(log, sync=False) as writer:
        writer.append(pa.table({"id": list(range(first, last))}))


def windows(path: Path) -> list[int]:
    reader = LogReader(path)
    end = reader.end_positions()[0]
    return sorted(row["first"] for batch in reader.read(0, 0, end) for row in batch.to_pylist())


def is_started(query: FragmentQuery) -> bool:
    return query.run_id is not None


@pytest.mark.spark
def test_a_prepared_query_goes_on_where_the_other_one_ended(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    create_log(tmp_path / "in", "id bigint")
    put(tmp_path / "in", 0, 55)
    catalogue, layout = load_catalogue(CATALOGUE), MovingLayout.of(tmp_path, SPEC.name)
    rehearse(spark, SPEC, catalogue, tmp_path, tmp_path / "rehearsal")
    assert [path.name for path in tmp_path.iterdir()] == ["in"], "a rehearsal leaves nothing behind"

    first = moving_query(spark, SPEC, catalogue, layout)
    assert checkpoint_id(first.checkpoint) is None
    first.process_available()
    batches = journaled_batches(first.checkpoint)
    assert windows(tmp_path / "out") == [0, 10, 20, 30, 40]

    gates = [tmp_path / "gates" / str(number) for number in range(2)]
    given_up = moving_query(spark, SPEC, catalogue, layout, gate=gates[0])
    given_up.prepare(wait_seconds=PATIENCE_SECONDS)
    assert waiting(gates[0]).exists() and is_started(given_up) and given_up.failure() is None
    given_up.stop()
    assert not is_started(given_up) and list((tmp_path / "gates").iterdir()) == []

    query = moving_query(spark, SPEC, catalogue, layout, gate=gates[1], trigger_seconds=0.1)
    query.prepare(wait_seconds=PATIENCE_SECONDS)
    put(tmp_path / "in", 55, 95)
    assert journaled_batches(query.checkpoint) == batches, "nothing is cut before the gate opens"
    query.start(wait_seconds=PATIENCE_SECONDS)
    try:
        wait("all windows", lambda: len(windows(tmp_path / "out")) >= 9, lambda: query.failure() or "still at it")
    finally:
        query.stop()
    assert windows(tmp_path / "out") == list(range(0, 90, 10))
    assert list((tmp_path / "gates").iterdir()) == []


@pytest.mark.spark
def test_what_runs_in_this_application_is_not_started_beside_itself(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    create_log(tmp_path / "in", "id bigint")
    put(tmp_path / "in", 0, 25)
    catalogue, layout = load_catalogue(CATALOGUE), MovingLayout.of(tmp_path, SPEC.name)
    running = moving_query(spark, SPEC, catalogue, layout)
    running.start(wait_seconds=PATIENCE_SECONDS)
    try:
        other = moving_query(spark, SPEC, catalogue, layout, gate=tmp_path / "gate")
        other.prepare(wait_seconds=PATIENCE_SECONDS)
        assert not is_started(other) and running.failure() is None
        running.stop()
        other.start(wait_seconds=PATIENCE_SECONDS)
        assert is_started(other)
        other.stop()
    finally:
        running.stop()
