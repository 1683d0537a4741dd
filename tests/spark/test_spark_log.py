"""The embedded log: what is appended is read back, once, in order, whatever lies around it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from floodway.spark.log import (
    LockedError,
    LogError,
    LogReader,
    LogWriter,
    MissingLogError,
    PositionError,
    Retention,
    SchemaError,
    SegmentError,
    create_log,
    open_log,
)
from floodway.spark.log.segments import CHUNK
from tests.synced import note_syncs

DDL = "id bigint, value double"


def batch(start: int, count: int) -> pa.RecordBatch:
    ids = np.arange(start, start + count)
    return pa.record_batch({"id": ids, "value": ids / 2})


def ids(reader: LogReader, start: int, end: int, partition: int = 0) -> list[int]:
    return [i for b in reader.read(partition, start, end) for i in b.column("id").to_pylist()]


def filled(path: Path, counts: list[int]) -> Path:
    create_log(path, DDL)
    with LogWriter(path, sync=False) as writer:
        for count in counts:
            writer.append(batch(writer.end(), count))
    return path


def test_a_segment_is_synced_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_log(tmp_path / "log", DDL)
    synced = note_syncs(monkeypatch)
    with LogWriter(tmp_path / "log") as writer:
        synced.clear()
        writer.append(batch(0, 3))
        assert synced == ["file", "folder p0"]
    with LogWriter(tmp_path / "log", sync=False) as writer:
        synced.clear()
        writer.append(batch(3, 3))
        assert synced == []


def test_reads_back_any_range_in_order_across_segments(tmp_path: Path) -> None:
    reader = LogReader(filled(tmp_path / "log", [3, 1, 10, CHUNK + 7]))
    end = 14 + CHUNK + 7
    assert reader.end_positions() == {0: end}
    for start, stop in [(0, end), (2, 5), (3, 4), (13, 15), (14 + CHUNK - 1, 14 + CHUNK + 2), (5, 5)]:
        assert ids(reader, start, stop) == list(range(start, stop))


def test_slices_are_views_of_the_file_and_touch_only_their_chunk(tmp_path: Path) -> None:
    reader = LogReader(filled(tmp_path / "log", [3 * CHUNK]))
    before = pa.total_allocated_bytes()
    kept = list(reader.read(0, CHUNK + 5, CHUNK + 10))
    assert [b.num_rows for b in kept] == [5]
    assert pa.total_allocated_bytes() <= before  # less where garbage of earlier tests was collected meanwhile


def test_arrival_is_stored_for_each_tuple(tmp_path: Path) -> None:
    create_log(tmp_path / "log", DDL)
    with LogWriter(tmp_path / "log", clock=lambda: 1_000_000) as writer:
        writer.append(batch(0, 2))
        writer.append(batch(2, 1), arrival=7)
        writer.append(batch(3, 2), arrival=pa.array([8, 9], pa.timestamp("us", tz="UTC")))
        with pytest.raises(SchemaError, match="arrival"):
            writer.append(batch(5, 2), arrival=pa.array([8], pa.timestamp("us", tz="UTC")))
    read = LogReader(tmp_path / "log").read(0, 0, 5)
    micros = [m for b in read for m in b.column("_arrival").cast(pa.int64()).to_pylist()]
    assert micros == [1_000_000, 1_000_000, 7, 8, 9]


def test_partitions_are_numbered_on_their_own(tmp_path: Path) -> None:
    create_log(tmp_path / "log", DDL, partitions=2, stream="clicks")
    with LogWriter(tmp_path / "log") as writer:
        writer.append(batch(0, 5), partition=0)
        writer.append(batch(5, 3), partition=1)
        with pytest.raises(LogError, match="no partition 2"):
            writer.append(batch(8, 1), partition=2)
    reader = LogReader(tmp_path / "log")
    assert reader.end_positions() == {0: 5, 1: 3}
    assert ids(reader, 0, 3, partition=1) == [5, 6, 7]
    assert reader.meta.stream == "clicks"


def test_second_writer_of_a_partition_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    create_log(tmp_path / "log", DDL, partitions=2)
    with LogWriter(tmp_path / "log") as first, LogWriter(tmp_path / "log") as second:
        first.append(batch(0, 1))
        with pytest.raises(LockedError, match="partition 0 has a writer already"):
            second.append(batch(0, 1))
        second.append(batch(0, 1), partition=1)
        first.close()
        assert second.append(batch(1, 1)).base == 1


def test_a_tag_is_appended_once_also_after_a_restart(tmp_path: Path) -> None:
    create_log(tmp_path / "log", DDL)
    with LogWriter(tmp_path / "log") as writer:
        assert not writer.append(batch(0, 4), tag="q:7:0").duplicate
        assert writer.append(batch(0, 4), tag="q:7:0").duplicate
    with LogWriter(tmp_path / "log") as writer:
        assert writer.append(batch(0, 4), tag="q:7:0").duplicate
        assert not writer.append(batch(4, 2), tag="q:8:0").duplicate
        assert not writer.append(batch(6, 0), tag="q:9:0").duplicate
    assert ids(LogReader(tmp_path / "log"), 0, 6) == list(range(6))


def test_tuples_that_do_not_fit_are_refused_and_order_of_columns_does_not_matter(tmp_path: Path) -> None:
    create_log(tmp_path / "log", DDL)
    with LogWriter(tmp_path / "log") as writer:
        with pytest.raises(SchemaError, match="do not fit"):
            writer.append(pa.record_batch({"id": [1]}))
        with pytest.raises(SchemaError, match="do not fit"):
            writer.append(pa.record_batch({"id": ["x"], "value": [1.0]}))
        writer.append(pa.record_batch({"value": [1.0], "id": pa.array([5], pa.int32())}))
    assert ids(LogReader(tmp_path / "log"), 0, 1) == [5]


def test_creating_again_needs_the_same_log(tmp_path: Path) -> None:
    create_log(tmp_path / "log", DDL, partitions=2)
    assert create_log(tmp_path / "log", DDL, partitions=2).partitions == 2
    with pytest.raises(SchemaError, match="exists with the schema"):
        create_log(tmp_path / "log", "id int", partitions=2)
    with pytest.raises(LogError, match=r"2 partition\(s\)"):
        create_log(tmp_path / "log", DDL)
    for bad in ("", "_id bigint", "id bigint, id int", "id nonsense", "id"):
        with pytest.raises(SchemaError):
            create_log(tmp_path / "bad", bad)


def test_missing_or_broken_description_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(MissingLogError, match="no log at"):
        open_log(tmp_path / "nothing")
    create_log(tmp_path / "log", DDL)
    for text in (
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 9, "stream": "s", "schema": "", "partitions": 1}',
    ):
        (tmp_path / "log" / "meta.json").write_text(text)
        with pytest.raises(MissingLogError):
            LogReader(tmp_path / "log")


def test_full_disk_leaves_no_partial_segment_and_the_next_append_works(tmp_path: Path) -> None:
    filled(tmp_path / "log", [5])
    # A file size limit makes the kernel refuse the write as a full disk does.
    code = (
        "import resource, sys, pyarrow as pa\n"
        "from floodway.spark.log import LogWriter, LogError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "w = LogWriter(sys.argv[1])\n"
        "big = pa.record_batch({'id': list(range(5, 5005)), 'value': [0.0] * 5000})\n"
        "try:\n    w.append(big)\nexcept LogError as e:\n    print(e)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "print(w.append(big).base)\n"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "log")]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    lines = done.stdout.strip().splitlines()
    assert "the disk is full" in lines[0] and lines[-1] == "5", done.stdout
    reader = LogReader(tmp_path / "log")
    assert ids(reader, 0, 5005) == list(range(5005))
    assert reader.skipped().leftovers == 0


def test_retention_by_size_keeps_the_newest_and_names_what_is_lost(tmp_path: Path) -> None:
    path = filled(tmp_path / "log", [100] * 10)
    reader = LogReader(path)
    assert reader.end_positions() == {0: 1000}
    sizes = [f.stat().st_size for f in (path / "p0").glob("*.arrow")]
    with LogWriter(path) as writer:
        assert writer.retire(0, Retention(max_bytes=sum(sizes[:3]) + 1)) == 700
        with pytest.raises(PositionError, match=r"position 650 is retired, 50 tuple\(s\) lost") as caught:
            ids(reader, 650, 1000)
        assert (caught.value.first, caught.value.lost) == (700, 50)
        assert reader.earliest_positions() == {0: 700}
        assert ids(reader, 700, 1000) == list(range(700, 1000))
        assert writer.retire(0, Retention(max_bytes=0)) == 200
    assert (reader.earliest_positions(), reader.end_positions()) == ({0: 900}, {0: 1000})


def test_retention_by_age_runs_with_the_appends(tmp_path: Path) -> None:
    path = filled(tmp_path / "log", [10] * 5)
    old = sorted((path / "p0").glob("*.arrow"))[:2]
    for file in old:
        os.utime(file, (0, 0))
    ticks = iter(range(0, 10**9, 2_000_000))
    base = LogReader(path).meta.path.stat().st_mtime_ns // 1000
    with LogWriter(path, retention=Retention(max_age_seconds=3600), clock=lambda: base + next(ticks)) as writer:
        writer.append(batch(50, 10))
    assert LogReader(path).earliest_positions() == {0: 20}


def test_gap_between_segments_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = filled(tmp_path / "log", [10, 10, 10])
    (path / "p0" / f"{10:020d}-10.arrow").unlink()
    reader = LogReader(path)
    assert reader.gaps() == {0: [(10, 20)]}
    spans = [reader.spans({0: start})[0] for start in (3, 10, 15, 20)]
    assert [(s.first, s.end) for s in spans] == [(3, 10), (20, 30), (20, 30), (20, 30)]
    assert ids(reader, 0, 10) == list(range(10))
    with pytest.raises(PositionError, match="position 10 is missing between segments") as caught:
        ids(reader, 5, 25)
    assert caught.value.lost == 10


def test_position_beyond_the_end_is_an_error(tmp_path: Path) -> None:
    reader = LogReader(filled(tmp_path / "log", [10]))
    with pytest.raises(PositionError, match="ends at 10, before position 11"):
        reader.spans({0: 11})
    with pytest.raises(PositionError, match="ends at 10"):
        ids(reader, 0, 20)
    assert reader.spans({0: 10})[0].end == 10


def test_leftovers_foreign_and_torn_files_are_counted_never_read(tmp_path: Path) -> None:
    path = filled(tmp_path / "log", [10, 10])
    folder = path / "p0"
    whole = (folder / f"{0:020d}-10.arrow").read_bytes()
    (folder / ".tmp-1-20").write_bytes(whole)
    (folder / "notes.txt").write_text("hello")
    (folder / "20-10.arrow").write_bytes(whole)
    (folder / f"{20:020d}-10.arrow").write_bytes(whole[:-100])
    (folder / f"{30:020d}-10.arrow").write_text("garbage")
    (folder / f"{40:020d}-10.arrow").write_bytes(b"")
    (folder / f"{5:020d}-10.arrow").write_bytes(whole)
    reader = LogReader(path)
    assert reader.end_positions() == {0: 20}
    skipped = reader.skipped()
    assert (skipped.leftovers, skipped.foreign, skipped.torn, skipped.overlapping) == (1, 2, 3, 1)
    assert ids(reader, 0, 20) == list(range(20))
    with LogWriter(path) as writer, pytest.raises(LogError, match=r"3 torn segment\(s\)"):
        writer.append(batch(20, 1))
    assert not (folder / ".tmp-1-20").exists()


def test_segment_that_lies_about_itself_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "log", [10])
    folder = path / "p0"
    whole = (folder / f"{0:020d}-10.arrow").read_bytes()
    for name in (f"{10:020d}-10.arrow", f"{10:020d}-99.arrow"):
        (folder / name).write_bytes(whole)
        reader = LogReader(path)
        with pytest.raises(SegmentError, match="its name does not say what is in it"):
            ids(reader, 0, reader.end_positions()[0])
        (folder / name).unlink()
    create_log(tmp_path / "other", "id bigint")
    with LogWriter(tmp_path / "other") as writer:
        writer.append(pa.record_batch({"id": list(range(10))}))
    file = f"{0:020d}-10.arrow"
    (folder / file).write_bytes((tmp_path / "other" / "p0" / file).read_bytes())
    with pytest.raises(SegmentError, match="its columns are not the log's"):
        ids(LogReader(path), 0, 10)


def test_listing_follows_a_growing_and_shrinking_log(tmp_path: Path) -> None:
    path = filled(tmp_path / "log", [1])
    reader = LogReader(path)
    with LogWriter(path, sync=False) as writer:
        for n in range(1, 30):
            writer.append(batch(n, 1))
            assert reader.end_positions() == {0: n + 1}
            assert ids(reader, n, n + 1) == [n]
            if n % 10 == 0:
                writer.retire(0, Retention(max_bytes=0))
                assert reader.earliest_positions() == {0: n}
    assert ids(reader, 20, 30) == list(range(20, 30))


def segments(path: Path) -> int:
    return len(list((path / "p0").glob("*.arrow")))


def test_merged_segments_hold_the_same_tuples_times_and_tags(tmp_path: Path) -> None:
    path = tmp_path / "log"
    create_log(path, DDL)
    with LogWriter(path, sync=False, compact_every=0, clock=iter(range(10**6)).__next__) as writer:
        for n in range(100):
            writer.append(batch(3 * n, 3), tag=f"q:{n}:0" if n % 2 else None)
        early = LogReader(path)
        before = pa.Table.from_batches(early.read(0, 0, 300))
        assert (writer.compact(), segments(path)) == (84, 101)
        assert early.end_positions() == {0: 300} and early.skipped().merged == 84
        assert pa.Table.from_batches(LogReader(path).read(0, 0, 300)).equals(before)
        assert (writer.compact(), segments(path)) == (0, 17)
        assert pa.Table.from_batches(early.read(0, 0, 300)).equals(before)
        assert writer.append(batch(0, 3), tag="q:1:0").duplicate
    with LogWriter(path) as writer:
        assert writer.append(batch(0, 3), tag="q:1:0").duplicate
        assert writer.append(batch(0, 3), tag="q:99:0").duplicate
        assert not writer.append(batch(300, 3), tag="q:2:0").duplicate


def test_retention_takes_the_parts_of_a_merged_segment_along(tmp_path: Path) -> None:
    path = filled(tmp_path / "log", [2] * 60)
    with LogWriter(path, sync=False) as writer:
        assert writer.compact() == 44
        assert writer.retire(0, Retention(max_bytes=0)) == 118
    assert LogReader(path).earliest_positions() == {0: 118} and segments(path) == 1


def test_reader_with_an_old_listing_finds_the_merged_segment(tmp_path: Path) -> None:
    path = filled(tmp_path / "log", [2] * 60)
    reader = LogReader(path)
    started = reader.read(0, 0, 120)
    assert next(started).num_rows == 2
    with LogWriter(path, sync=False) as writer:
        assert writer.compact() == 44 and writer.compact() == 0
    assert sum(b.num_rows for b in started) == 118


def test_a_long_feed_keeps_few_segments_and_a_kill_while_merging_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    create_log(path, DDL)
    with LogWriter(path, sync=False) as writer:
        for n in range(1000):
            writer.append(batch(2 * n, 2))
    assert segments(path) < 600
    reader = LogReader(path)
    assert ids(reader, 0, 2000) == list(range(2000))
    # Killed before the merged segment got its name: a leftover, which the next writer clears.
    (path / "p0" / ".tmp-9-0").write_bytes(b"half")
    with LogWriter(path, sync=False) as writer:
        writer.compact()
        writer.compact()
    assert ids(LogReader(path), 0, 2000) == list(range(2000)) and segments(path) < 30


def test_reader_travels_to_another_process(tmp_path: Path) -> None:
    import pickle

    reader = LogReader(filled(tmp_path / "log", [4]))
    ids(reader, 0, 4)
    copy: LogReader = pickle.loads(pickle.dumps(reader))
    assert ids(copy, 1, 3) == [1, 2]
