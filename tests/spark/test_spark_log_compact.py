"""Logs written by a writer an append, as batches do: few segments, every tag found, nothing lost or doubled, ever."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from floodway.spark.log import LogReader, LogWriter, PositionError, Retention, create_log, tally
from floodway.spark.log import tag_index as index
from floodway.spark.log.compact import LARGE, LEAVE_NEWEST, MIN_RUN, SMALL, Sized, runs
from floodway.spark.log.errors import LogError
from floodway.spark.log.segments import SegmentName
from floodway.spark.source.backend import open_backend
from floodway.spark.source.notes import PassingOver
from floodway.spark.source.options import parse_options


def rows(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": list(range(start, start + count))})


def append_once(path: Path, number: int, count: int = 2, *, every: int = 64) -> bool:
    """What a batch's task does; whether it wrote."""
    with LogWriter(path, sync=False, compact_every=every) as writer:
        return not writer.append(rows(number * count, count), tag=f"q:{number}:0").duplicate


def ids(path: Path) -> list[int]:
    reader = LogReader(path)
    return [i for b in reader.read(0, 0, reader.end_positions()[0]) for i in b.column("id").to_pylist()]


def segments(path: Path) -> list[Path]:
    return sorted((path / "p0").glob("*.arrow"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return create_log(tmp_path / "log", "id bigint").path


def test_a_writer_an_append_keeps_few_segments_and_finds_every_tag(log: Path) -> None:
    for number in range(300):
        assert append_once(log, number)
    assert len(segments(log)) < 150
    assert ids(log) == list(range(600))
    with LogWriter(log, sync=False) as writer:
        assert all(writer.append(rows(0, 2), tag=f"q:{n}:0").duplicate for n in range(0, 300, 13))
        assert not writer.append(rows(600, 2), tag="q:300:0").duplicate
    assert tally(log).tagged == {f"q:{n}:0": 2 for n in range(301)}


def test_a_log_that_an_older_writer_left_in_many_segments_is_merged_at_once(log: Path) -> None:
    with LogWriter(log, sync=False, compact_every=0) as writer:
        for number in range(400):
            writer.append(rows(2 * number, 2), tag=f"q:{number}:0")
    append_once(log, 400)
    reader = LogReader(log)
    assert reader.end_positions() == {0: 802} and reader.skipped().merged == 385
    for number in range(401, 500):
        append_once(log, number)
    assert len(segments(log)) < 150 and ids(log) == list(range(1000))


@pytest.mark.parametrize("gone", [range(2, 20), range(20), range(1, 2), range(0)])
def test_a_fresh_listing_prefers_the_longer_of_two(log: Path, gone: range) -> None:
    with LogWriter(log, sync=False, compact_every=0) as writer:
        for number in range(36):
            writer.append(rows(10 * number, 10))
        assert writer.compact() == 20
    # What a scan sees that has read some names before the next compaction removes the parts.
    parts = sorted((log / "p0").glob("*-10.arrow"))
    for place in gone:
        parts[place].unlink()
    reader = LogReader(log)
    assert reader.gaps() == {0: []} and reader.skipped().overlapping == 0
    assert reader.spans({0: 0})[0].end == 360
    assert ids(log) == list(range(360))


class Hiding:
    """A folder scan that misses a file, as one may while a segment is merged under it; the first time only."""

    def __init__(self, name: str) -> None:
        self.name, self.scan, self.hidden = name, os.scandir, False

    def __call__(self, folder: Path) -> Any:
        return self.some(folder) if not self.hidden else self.scan(folder)

    def some(self, folder: Path) -> Any:
        self.hidden = True
        names = [entry for entry in self.scan(folder) if entry.name != self.name]

        class Scan:
            def __enter__(self) -> Iterator[os.DirEntry[str]]:
                return iter(names)

            def __exit__(self, *_: object) -> None:
                pass

        return Scan()


@pytest.mark.parametrize("look", [lambda r: r.spans({0: 10})[0].first, lambda r: len(list(r.read(0, 10, 30))) * 5])
def test_a_hole_is_looked_at_twice_before_a_tuple_counts_as_lost(
    log: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[LogReader], int]
) -> None:
    with LogWriter(log, sync=False) as writer:
        for number in range(3):
            writer.append(rows(10 * number, 10))
    monkeypatch.setattr("floodway.spark.log.listing.os.scandir", Hiding(f"{10:020d}-10.arrow"))
    assert look(LogReader(log)) == 10
    monkeypatch.undo()
    (log / "p0" / f"{10:020d}-10.arrow").unlink()
    with pytest.raises(PositionError, match="missing between segments"):
        list(LogReader(log).read(0, 10, 30))


def test_a_segment_that_cannot_be_looked_at_is_no_loss(log: Path) -> None:
    with LogWriter(log, sync=False) as writer:
        writer.append(rows(0, 10))
        writer.append(rows(10, 10))
    middle = log / "p0" / f"{20:020d}-10.arrow"
    middle.symlink_to(middle)  # opening it fails, and not because it is gone
    reader = LogReader(log)
    with pytest.raises(LogError, match="cannot be read"):
        reader.end_positions()
    backend = PassingOver(open_backend(parse_options({"path": str(log)})), lambda *hole: pytest.fail(f"lost {hole}"))
    with pytest.raises(LogError, match="cannot be read"):
        list(backend.read(0, [(0, 30)]))


class Killed(BaseException):
    """Stands for a kill: nothing catches it on its way out."""


class Kill:
    """Fails the n-th time that a file is named, removed or written, before it happens or right after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
        self.left, self.after = at, after
        for owner, name in ((Path, "rename"), (Path, "unlink"), (os, "pwrite"), (os, "utime")):
            monkeypatch.setattr(owner, name, self.wrapped(getattr(owner, name)))

    def wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                raise Killed
            result = real(*args, **kwargs)
            if self.left == 0:
                raise Killed
            return result

        return call


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_anywhere_in_a_compaction_neither_loses_nor_doubles(tmp_path: Path, log: Path, after: bool) -> None:
    begun = 44  # a compaction lies behind, whose parts the next one removes a few appends later
    for number in range(begun):
        append_once(log, number, every=16)
    for at in range(1, 26):
        path = tmp_path / f"killed{at}"
        shutil.copytree(log, path)
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            kill = Kill(patch, at, after=after)
            for number in range(begun, begun + 20):
                append_once(path, number, every=16)
        assert kill.left == 0, "the kill did not happen"
        # The batch under way is repeated; so may any be.
        append_once(path, number, every=16)
        with LogWriter(path, sync=False, compact_every=16) as writer:
            assert all(writer.append(rows(0, 2), tag=f"q:{again}:0").duplicate for again in range(number + 1)), at
        assert append_once(path, number + 1, every=16)
        assert ids(path) == list(range(2 * (number + 2))), at


def test_a_torn_or_missing_index_forgets_no_tag(log: Path) -> None:
    for number in range(100):
        append_once(log, number, every=16)
    file = log / "p0" / index.INDEX
    with file.open("ab") as torn:
        torn.write(b"1234567")
    assert not append_once(log, 3)
    for number in range(100, 140):
        append_once(log, number, every=16)
    assert file.stat().st_size % 16 == 0
    file.unlink()
    assert not any(append_once(log, number, every=16) for number in range(140))
    for left in (0, 16, file.stat().st_size // 32 * 16):
        file.write_bytes(file.read_bytes()[:left])
        assert not any(append_once(log, number, every=16) for number in range(140)), left
    assert LogReader(log).skipped().foreign == 0


def test_two_tags_with_one_hash_are_two_tags(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("segments", "writer", "tag_index"):
        monkeypatch.setattr(f"floodway.spark.log.{module}.hash_tag", lambda tag: "0" * 16)
    for number in range(60):
        assert append_once(log, number, every=16)
    assert not append_once(log, 5) and not append_once(log, 59)
    assert ids(log) == list(range(120))


def test_retired_tags_leave_the_index(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_LEAST_PRUNED", 8)
    for number in range(100):
        append_once(log, number, every=16)
    with LogWriter(log, sync=False) as writer:
        assert writer.retire(0, Retention(max_bytes=0)) == 198
    assert index.positions(log / "p0", "q:3:0") == []
    counted = tally(log)
    assert (counted.tagged, counted.untagged, counted.retired) == ({"q:99:0": 2}, 0, {0: 198})


@pytest.mark.parametrize("count", [1, 60, 3000, 50_000])
def test_days_of_appends_leave_a_short_chain_and_write_each_tuple_a_few_times(count: int) -> None:
    """The merging rule alone, on names: one append a second of `count` tuples of 40 bytes, for hours."""
    chain: list[Sized] = []
    appends, written = 12_800, 0
    for start in range(0, appends, 64):
        chain += [(SegmentName(n * count, count, "0" * 16), 900 + 40 * count) for n in range(start, start + 64)]
        for tier, below in ((SMALL, None), (LARGE, SMALL)):
            for run in runs(chain[:-LEAVE_NEWEST], tier, below):
                first = next(at for at, (name, _) in enumerate(chain) if name is run[0])
                parts = chain[first : first + len(run)]
                size = sum(size for _, size in parts) - 900 * (len(run) - 1)
                tags = f"ffffffff{sum(name.tags for name in run):08x}"
                chain[first : first + len(run)] = [(SegmentName(run[0].base, run[-1].end - run[0].base, tags), size)]
                written += size
    assert chain[0][0].base == 0 and all(a.end == b.base for (a, _), (b, _) in pairwise(chain))
    least = max(40 * count * appends / LARGE.bytes, appends / LARGE.tags, count * appends / LARGE.tuples)
    assert len(chain) <= 2 * least + LEAVE_NEWEST + 64 + 4 * MIN_RUN
    assert written <= 20 * (40 * count + 900) * appends
