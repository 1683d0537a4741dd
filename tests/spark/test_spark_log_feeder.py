"""Feeding: the schedule holds on a clock that is late, tuples are as asked, Kafka rows are JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from floodway.spark.log import LogReader, LogWriter, SchemaError, create_log, parse_schema
from floodway.spark.log.feeder import LogTarget, feed
from floodway.spark.log.kafka_target import json_rows
from floodway.spark.log.profiles import DEFAULT_SCHEMA, TupleMaker
from floodway.spark.log.schema import ARRIVAL


class FakeTime:
    """A clock that only sleeping and sending move."""

    def __init__(self, cost: float) -> None:
        self.now = 100.0
        self.cost = cost
        self.sent: list[tuple[float, int, int]] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def send(self, batch: pa.RecordBatch, partition: int) -> None:
        self.now += self.cost
        self.sent.append((self.now, batch.num_rows, partition))


def maker(ddl: str = DEFAULT_SCHEMA) -> TupleMaker:
    return TupleMaker(ddl, np.random.default_rng(3))


def run(world: FakeTime, per_tick: list[int], partitions: int) -> tuple[int, float, tuple[int, ...]]:
    fed = feed(
        world,
        maker(),
        per_tick,
        partitions=partitions,
        tick=0.1,
        clock=world.clock,
        sleep=world.sleep,
        wall_us=lambda: 0,
    )
    return fed.offered, fed.seconds, fed.per_partition


def test_ticks_keep_to_one_schedule_although_sending_takes_time() -> None:
    world = FakeTime(cost=0.03)
    offered, seconds, shares = run(world, [10] * 50, 2)
    assert offered == 500 and shares == (250, 250)
    assert seconds == pytest.approx(5.0 + 2 * 0.03)


def test_a_stall_is_caught_up_without_drift() -> None:
    world = FakeTime(cost=0.0)
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        world.now += seconds + (1.0 if len(sleeps) == 5 else 0.0)
        sleeps.append(seconds)

    fed = feed(
        world,
        maker(),
        [1] * 40,
        partitions=1,
        tick=0.1,
        clock=world.clock,
        sleep=sleep,
        wall_us=lambda: 0,
    )
    assert fed.seconds == pytest.approx(4.0) and fed.worst_lag_seconds == pytest.approx(1.0)


def test_shares_of_odd_counts_go_round() -> None:
    world = FakeTime(cost=0.0)
    offered, _, shares = run(world, [1, 1, 1, 5], 2)
    assert offered == 8 and sum(shares) == 8 and max(shares) - min(shares) <= 2
    assert all(rows > 0 for _, rows, _ in world.sent)


def test_ids_are_unique_over_partitions_and_times_lie_in_their_tick(tmp_path: Path) -> None:
    create_log(tmp_path / "log", DEFAULT_SCHEMA, partitions=3)
    world = FakeTime(cost=0.0)
    with LogWriter(tmp_path / "log", sync=False) as writer:
        feed(
            LogTarget(writer),
            maker(),
            [100, 50, 7],
            partitions=3,
            tick=0.1,
            clock=world.clock,
            sleep=world.sleep,
            wall_us=lambda: 1_000_000,
        )
    reader = LogReader(tmp_path / "log")
    tables = [pa.Table.from_batches(reader.read(p, 0, end)) for p, end in reader.end_positions().items()]
    rows = pa.concat_tables(tables).sort_by("id")
    assert rows.column("id").to_pylist() == list(range(157))
    micros = rows.column("event_time").cast(pa.int64()).to_pylist()
    assert micros == sorted(micros) and micros[0] == 1_000_000 and micros[100] == 1_100_000 and micros[-1] < 1_300_000
    keys = rows.column("key").to_numpy()
    assert np.mean(keys == 0) > 5 * np.mean(keys == 20)


def test_any_flat_schema_can_be_fed_and_nested_ones_are_refused() -> None:
    made = maker("id int, s string, b boolean, f float, d date, n tinyint, t timestamp_ntz, x binary").make(
        20, start_us=0, end_us=20
    )
    assert made.num_rows == 20 and all(column.null_count == 0 for column in made.columns)
    with pytest.raises(SchemaError, match="array<int>"):
        maker("a array<int>")


def test_json_rows_are_objects_that_the_source_reads_back() -> None:
    from floodway.spark.source.decode import decode_json, json_schema

    ddl = "id bigint, `a %` double, s string, b boolean, at timestamp, d date"
    batch = maker(ddl).make(30, start_us=1_700_000_000_000_000, end_us=1_700_000_000_000_030)
    rows = json_rows(batch)
    assert all(set(json.loads(row)) == set(batch.schema.names) for row in rows)
    decoded = decode_json(rows, json_schema(ddl))
    assert decoded.select(batch.schema.names).to_pylist() == batch.to_pylist()
    assert decoded.column("_error").null_count == 30


def test_json_rows_tell_what_is_not_there_as_null() -> None:
    from floodway.spark.source.decode import decode_json, json_schema

    ddl = "id bigint, x double, at timestamp, s string, raw binary"
    schema = parse_schema(ddl)
    empty = dict.fromkeys(schema.names)
    rows = json_rows(pa.RecordBatch.from_pylist([empty, {**empty, "x": float("inf"), "raw": b"k1"}], schema=schema))
    assert [json.loads(row) for row in rows] == [empty, {**empty, "raw": "k1"}]
    assert decode_json(rows, json_schema(ddl)).column("_error").null_count == 2


@pytest.mark.slow
@pytest.mark.timing
def test_fifty_thousand_a_second_are_fed_within_one_percent(tmp_path: Path) -> None:
    """By the arrival times in the log, not by what the feeder says of itself."""
    command = [sys.executable, "-m", "floodway.cli.main", "feed", str(tmp_path / "log")]
    subprocess.run([*command, "--rate", "50000", "--seconds", "10", "--json"], check=True, stdout=subprocess.DEVNULL)
    reader = LogReader(tmp_path / "log")
    arrivals = np.concatenate(
        [batch.column(ARRIVAL).cast(pa.int64()).to_numpy() for batch in reader.read(0, 0, reader.end_positions()[0])]
    )
    seconds = (arrivals - arrivals[0]) / 1e6
    assert len(arrivals) == pytest.approx(500_000, rel=0.01)
    for end in range(2, 10):  # and evenly: at every moment as many have come as should have
        assert np.searchsorted(seconds, end) == pytest.approx(50_000 * end, rel=0.01, abs=5_000)
    assert seconds[-1] == pytest.approx(10.0, rel=0.01, abs=0.11)
