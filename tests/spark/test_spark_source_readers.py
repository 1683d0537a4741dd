"""The source's readers called as Spark calls them, in this process: limits, targets, starts, damage."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from floodway.errors import InputError
from floodway.job.decision import Drop, JobDecision, StreamDecision, write_decision
from floodway.spark.log import LogError, LogWriter, MissingLogError, PositionError, Retention, SchemaError, create_log
from floodway.spark.query.fragment_lines import source_stages
from floodway.spark.query.layout import RunLayout
from floodway.spark.source.admit import output_schema
from floodway.spark.source.backend import open_backend
from floodway.spark.source.notes import count_gone
from floodway.spark.source.offsets import parse_offset
from floodway.spark.source.options import parse_options
from floodway.spark.source.readers import FloodwayBatchReader, FloodwayStreamReader, Slice


@pytest.fixture
def log(tmp_path: Path) -> Path:
    create_log(tmp_path / "log", "id bigint", partitions=2, stream="s")
    append(tmp_path / "log", 100)
    return tmp_path / "log"


def append(log: Path, count: int) -> None:
    with LogWriter(log, sync=False) as writer:
        for partition in (0, 1):
            ids = writer.end(partition) + np.arange(count) + (partition << 48)
            writer.append(pa.record_batch({"id": ids}), partition)


def stream_reader(log: Path, **given: str) -> FloodwayStreamReader:
    options = parse_options({"path": str(log), **given})
    schema = from_arrow_schema(output_schema(open_backend(options).payload, options.arcs, options.added))
    return FloodwayStreamReader(options, schema)


def ids(reader: FloodwayStreamReader | FloodwayBatchReader, parts: list[Any]) -> list[int]:
    return [i for part in parts for batch in reader.read(part) for i in batch.column("_id").to_pylist()]


def test_batch_is_a_function_of_its_end_offset_alone(log: Path, tmp_path: Path) -> None:
    """Spark asks for the initial offset anew when it replays the first batch: the log may have grown."""
    write_decision(tmp_path / "d", JobDecision(mode="enforce", streams={"s": StreamDecision(500_000)}))
    reader = stream_reader(log, startingOffsets="latest", decision=str(tmp_path / "d"))
    start = reader.initialOffset()
    append(log, 50)
    end = reader.latestOffset(start, ReadAllAvailable())
    first = ids(reader, reader.partitions(start, end))
    write_decision(tmp_path / "d", JobDecision(mode="enforce", streams={"s": StreamDecision(1)}))
    later = stream_reader(log, startingOffsets="latest", decision=str(tmp_path / "d"))
    moved = later.initialOffset()
    assert moved["pos"] == end["pos"] and moved != start
    assert ids(later, later.partitions(moved, json.loads(json.dumps(end)))) == first
    assert 20 < len(first) < 80 and {i & 0xFFFF for i in first} <= set(range(100, 150))


def test_nothing_new_returns_the_very_same_offset(log: Path, tmp_path: Path) -> None:
    reader = stream_reader(log, decision=str(tmp_path / "d"))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    write_decision(tmp_path / "d", JobDecision(plan="new", mode="enforce"))
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    assert reader.partitions(end, end) == []


def test_read_limits_are_honoured(log: Path) -> None:
    reader = stream_reader(log, maxTuplesPerBatch="30")
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    assert reader.latestOffset(start, ReadMaxRows(30))["pos"] == {"0": 15, "1": 15}
    assert reader.latestOffset(start, ReadAllAvailable())["pos"] == {"0": 100, "1": 100}
    assert reader.latestOffset(start, ReadMinRows(201)) == start
    assert reader.latestOffset(start, ReadMinRows(200))["pos"] == {"0": 100, "1": 100}
    with pytest.raises(InputError, match="not supported"):
        reader.latestOffset(start, ReadMaxBytes(1))
    assert stream_reader(log).getDefaultReadLimit() == ReadAllAvailable()


def test_available_now_ignores_what_comes_later(log: Path) -> None:
    reader = stream_reader(log)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    append(log, 10)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["pos"] == {"0": 100, "1": 100}
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.reportLatestOffset() == {"pos": {"0": 110, "1": 110}}


@pytest.mark.parametrize(
    ("starting", "positions"),
    [("earliest", {"0": 0, "1": 0}), ("latest", {"0": 100, "1": 100}), ('{"1": 40}', {"0": 0, "1": 40})],
)
def test_starting_offsets(log: Path, starting: str, positions: dict[str, int]) -> None:
    assert stream_reader(log, startingOffsets=starting).initialOffset()["pos"] == positions


@pytest.mark.parametrize("starting", ["now", "[]", '{"0": "x"}', "3"])
def test_starting_offsets_that_are_none_are_refused(log: Path, starting: str) -> None:
    with pytest.raises(InputError, match="startingOffsets"):
        stream_reader(log, startingOffsets=starting).initialOffset()


def test_reader_travels_to_the_workers_and_opens_its_own_log(log: Path) -> None:
    reader = stream_reader(log, splits="2")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    copy: FloodwayStreamReader = pickle.loads(pickle.dumps(reader))
    parts: list[Any] = pickle.loads(pickle.dumps(reader.partitions(reader.initialOffset(), end)))
    assert all(isinstance(part, Slice) for part in parts)
    assert sorted(ids(copy, parts)) == [i + (p << 48) for p in (0, 1) for i in range(100)]


def test_schema_given_by_hand_must_be_the_sources(log: Path) -> None:
    schema = from_arrow_schema(pa.schema([("id", pa.int32())]))
    reader = FloodwayStreamReader(parse_options({"path": str(log)}), schema)
    with pytest.raises(SchemaError, match="not the source's"):
        reader.initialOffset()


def test_damage_is_named(log: Path) -> None:
    reader = stream_reader(log)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    append(log, 10)
    append(log, 10)
    gap = log / "p0" / f"{100:020d}-10.arrow"
    kept = gap.read_bytes()
    gap.unlink()
    with pytest.raises(PositionError, match="position 100 is retired or missing"):
        reader.latestOffset(end, ReadAllAvailable())
    skipping = stream_reader(log, onLoss="skip")
    after = skipping.latestOffset(end, ReadAllAvailable())
    assert after["lost"] == {"0": 10} and len(ids(skipping, skipping.partitions(end, after))) == 30
    gap.write_bytes(kept)
    for file in (log / "p1").glob("*.arrow"):
        file.unlink()
    with pytest.raises(PositionError, match="ends at 0, before position 100"):
        stream_reader(log).latestOffset(end, ReadAllAvailable())
    (log / "p1" / "writer.lock").unlink()
    (log / "p1").rmdir()
    with pytest.raises(MissingLogError, match="has lost its folder p1"):
        stream_reader(log).latestOffset(end, ReadAllAvailable())


def test_batch_reader_takes_the_start_from_the_journaled_offset(log: Path) -> None:
    reader = stream_reader(log)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(20))
    journaled = json.dumps(end)
    schema = from_arrow_schema(output_schema(pa.schema([("id", pa.int64())]), ()))

    def batch(**given: str) -> FloodwayBatchReader:
        return FloodwayBatchReader(parse_options({"path": str(log), **given}), schema)

    audit = batch(endingOffsets=journaled, startingOffsets=json.dumps(start))
    assert len(ids(audit, audit.partitions())) == 20
    with pytest.raises(InputError, match="not where the batch"):
        batch(endingOffsets=journaled, startingOffsets='{"0": 5, "1": 5}').partitions()
    rest = batch(startingOffsets=journaled)
    assert len(ids(rest, rest.partitions())) == 180


def test_missing_log_is_a_log_error(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no log at"):
        open_backend(parse_options({"path": str(tmp_path / "none")}))


@pytest.mark.parametrize(("added", "names"), [("", ["id"]), ("_arrival", ["id", "_arrival"]), ("_id", ["id", "_id"])])
def test_only_the_columns_asked_for_are_added(log: Path, added: str, names: list[str]) -> None:
    reader = stream_reader(log, added=added)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    assert [batch.schema.names for batch in batches] == [names] * len(batches)
    assert sum(batch.num_rows for batch in batches) == 200
    with pytest.raises(InputError, match="option added names '_wait'"):
        stream_reader(log, added="_wait")


@pytest.mark.parametrize(("drop", "keep_ppm"), [("hash", 1_000_000), ("hash", 400_000), ("range", 500_000)])
def test_what_is_deleted_under_a_batch_is_passed_over_and_counted(tmp_path: Path, drop: Drop, keep_ppm: int) -> None:
    log = tmp_path / "log"
    create_log(log, "id bigint", partitions=2, stream="s")
    for _ in range(3):
        append(log, 1_000)
    decided = JobDecision(mode="enforce", salt=5, streams={"s": StreamDecision(keep_ppm)}, drop=drop)
    write_decision(RunLayout(tmp_path).decision, decided)
    reader = stream_reader(log, decision=str(RunLayout(tmp_path).decision), onLoss="skip")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    offset = parse_offset(end)
    assert offset.lost == {}
    with LogWriter(log, sync=False) as writer:
        # Retired from the front in one partition, torn out of the middle in the other.
        writer.retire(0, Retention(max_bytes=0))
    sorted((log / "p1").glob("*.arrow"))[1].unlink()
    before = count_gone(RunLayout(tmp_path).lost, offset)
    read = ids(reader, reader.partitions(start, end))
    left = [i for i in read if (i >> 48 == 0 and i >= 2_000) or (i >> 48 == 1 and not 1_000 <= i - (1 << 48) < 2_000)]
    assert read == left and read
    gone = count_gone(RunLayout(tmp_path).lost, offset)
    assert (before, gone) == (0, offset.account().kept - len(read)) and gone > 0
    stages = source_stages(offset, RunLayout(tmp_path).lost)
    assert [(str(reason), kept) for reason, _, kept in stages] == [
        ("shedder", offset.account().kept),
        ("retention", len(read)),
    ]
    # A second look finds the same holes and counts them once; a batch that was whole has no line for them.
    assert ids(reader, reader.partitions(start, end)) == read
    assert count_gone(RunLayout(tmp_path).lost, offset) == gone
    append(log, 100)
    later = reader.latestOffset(end, ReadAllAvailable())
    assert [str(reason) for reason, _, _ in source_stages(parse_offset(later), RunLayout(tmp_path).lost)] == ["shedder"]
    failing = stream_reader(log, decision=str(RunLayout(tmp_path).decision))
    with pytest.raises(PositionError, match="accept the loss"):
        ids(failing, failing.partitions(start, end))
