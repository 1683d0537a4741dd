"""Logs of lines: what is appended is read back, by whoever, however far merges and removals have come."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from floodway.job.store import line_log, line_objects
from floodway.job.store.line_log import FileLog, LineLog
from floodway.job.store.line_objects import GRACE_SECONDS, ObjectLog, chain
from floodway.job.store.store import LocalStore, StoreError
from tests.job.ledgers import Objects
from tests.synced import note_syncs

KINDS = ("disk", "objects")


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", 100)
    monkeypatch.setattr(line_objects, "GROUPS", (4, 16))


def a_log(kind: str, folder: Path) -> LineLog:
    return FileLog(LocalStore(folder), "log") if kind == "disk" else ObjectLog(Objects(folder), "log")


def test_a_new_segment_is_synced_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FileLog(LocalStore(tmp_path), "log")
    end = fill(log, 0, 1)
    synced = note_syncs(monkeypatch)
    end = fill(log, 1, 1, end)
    assert synced == ["file"]
    fill(log, 2, 20, end)
    assert "folder log" in synced


def text(log: LineLog, start: int = 0) -> list[str]:
    return b"".join(part for _, part in log.read(start)).decode().splitlines()


def fill(log: LineLog, first: int, count: int, at: int = 0) -> int:
    for number in range(first, first + count):
        end = log.append(f"line {number}\n".encode(), at)
        assert end is not None
        at = end
    return at


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_read_back_from_every_position(tmp_path: Path, kind: str) -> None:
    log = a_log(kind, tmp_path)
    assert text(log) == [] and log.segments() == [] and log.identity() is None
    ends = [0]
    for number in range(50):
        ends.append(fill(log, number, 1, ends[-1]))
    whole = [f"line {number}" for number in range(50)]
    for reader in (log, a_log(kind, tmp_path)):
        for number, end in enumerate(ends):
            assert text(reader, end) == whole[number:], number
        assert list(reader.read(0))[-1][0] == ends[-1]
    assert all(a < b for a, b in pairwise(ends))
    assert log.identity() == a_log(kind, tmp_path).identity() is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_that_is_not_alone_writes_nothing_and_reads_on(tmp_path: Path, kind: str) -> None:
    one, other = a_log(kind, tmp_path), a_log(kind, tmp_path)
    end = fill(one, 0, 40)
    assert other.append(b"late\n", 0) is None
    *_, (seen, _) = other.read(0)
    assert seen == end
    after = other.append(b"line 40\n", seen)
    assert after is not None and one.append(b"late\n", end) is None
    assert text(one) == [f"line {number}" for number in range(41)]


@pytest.mark.parametrize("kind", KINDS)
def test_old_segments_are_removed_and_positions_stay(tmp_path: Path, kind: str) -> None:
    log = a_log(kind, tmp_path)
    end = fill(log, 0, 50)
    segments = log.segments()
    assert len(segments) > 3
    kept = text(log, segments[-2])
    log.remove_before(segments[-2])
    assert log.segments() == segments[-2:]
    for reader in (log, a_log(kind, tmp_path)):
        assert text(reader) == kept
        assert text(reader, end) == []
    # A writer that never saw the beginning goes on at the end.
    assert a_log(kind, tmp_path).append(b"next\n", end) is not None
    assert text(log) == [*kept, "next"]


@pytest.mark.parametrize("kind", KINDS)
def test_closed_grows_with_the_segments(tmp_path: Path, kind: str) -> None:
    log = a_log(kind, tmp_path)
    end, seen = 0, [0]
    for number in range(50):
        end = fill(log, number, 1, end)
        seen.append(log.closed)
    assert seen == sorted(seen) and seen[-1] in (log.segments()[-1], end // 16 * 16)


def test_a_torn_line_is_passed_over_and_cut_away_by_the_next_writer(tmp_path: Path) -> None:
    log = a_log("disk", tmp_path)
    end = fill(log, 0, 12)
    path = max((tmp_path / "log").glob("*.jsonl"))
    with path.open("ab") as file:
        file.write(b"half a li")
    assert log.torn_bytes() == 9
    assert text(log) == [f"line {number}" for number in range(12)]
    assert fill(log, 12, 1, end) and log.torn == 1 and log.torn_bytes() == 0
    assert text(log) == [f"line {number}" for number in range(13)]


def test_a_folder_that_vanishes_is_begun_anew_where_the_writer_is(tmp_path: Path) -> None:
    log = a_log("disk", tmp_path)
    end = fill(log, 0, 30)
    before = log.identity()
    for path in (tmp_path / "log").iterdir():
        path.unlink()
    fill(log, 30, 1, end)
    assert text(a_log("disk", tmp_path)) == ["line 30"]
    assert log.identity() != before, "readers can tell that this is another log"


def test_a_disk_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(StoreError, match="log cannot be listed: Not a directory"):
        a_log("disk", tmp_path).append(b"line\n", 0)


def test_an_append_is_one_request_and_merged_objects_go_after_a_grace(tmp_path: Path) -> None:
    now, store = [0.0], Objects(tmp_path)
    log = ObjectLog(store, "log", monotonic=lambda: now[0])
    end = fill(log, 0, 3)
    store.asked.clear()
    end = fill(log, 3, 1, end)
    assert store.asked[0] == "create log/000000000003-000000000004.jsonl"
    assert "create log/000000000000-000000000004.jsonl" in store.asked
    assert not any(asked.startswith("read") for asked in store.asked), "a writer knows what it wrote"
    store.asked.clear()
    end = fill(log, 4, 1, end)
    assert store.asked == ["create log/000000000004-000000000005.jsonl"]
    now[0] = GRACE_SECONDS / 3
    end = fill(log, 5, 11, end)
    for step in range(40):
        now[0] += GRACE_SECONDS / 3
        end = fill(log, 16 + step, 1, end)
    spans = [name for name in store.names("log") if name.startswith("log/0")]
    assert "log/000000000000-000000000016.jsonl" in spans
    assert not any(name.startswith("log/000000000004") for name in spans)
    assert text(log) == [f"line {number}" for number in range(56)]


def test_a_writer_that_slept_through_a_merge_does_not_write_into_the_past(tmp_path: Path) -> None:
    """Its number was merged and removed meanwhile: the object that it can create again is one that nobody reads."""
    now = [0.0]
    sleeper = ObjectLog(Objects(tmp_path), "log", monotonic=lambda: now[0])
    end = fill(sleeper, 0, 2)
    other = ObjectLog(Objects(tmp_path), "log", monotonic=lambda: now[0])
    other_end = fill(other, 2, 2, end)
    for step in range(12):
        now[0] += GRACE_SECONDS / 3
        other_end = fill(other, 4 + step, 1, other_end)
    assert not (tmp_path / "log" / "000000000002-000000000003.jsonl").exists()
    assert sleeper.append(b"from the past\n", end) is None
    assert text(sleeper) == text(other) == [f"line {number}" for number in range(16)]
    assert not (tmp_path / "log" / "000000000002-000000000003.jsonl").exists()


def test_a_torn_object_is_passed_over(tmp_path: Path) -> None:
    log = a_log("objects", tmp_path)
    end = fill(log, 0, 2)
    assert Objects(tmp_path).create(f"log/{end:012d}-{end + 1:012d}.jsonl", b"line 2\nhalf a li")
    assert text(log) == ["line 0", "line 1", "line 2"]
    assert log.torn_bytes() == 9
    fill(log, 3, 30, end + 1)
    assert text(a_log("objects", tmp_path)) == [f"line {number}" for number in range(33)]


def test_a_chain_of_objects_covers_what_any_mixture_of_merges_covers() -> None:
    rng = random.Random(7)
    for _ in range(500):
        end = rng.randint(1, 40)
        spans = {(number, number + 1) for number in range(end)}
        for group in (4, 16):
            for begin in range(0, end - group + 1, group):
                if rng.random() < 0.5:
                    spans.add((begin, begin + group))
                    spans -= {(n, n + 1) for n in range(begin, begin + group) if rng.random() < 0.5}
        start = rng.randint(0, end)
        covered = start
        for first, after in chain(spans, start):
            assert first <= covered < after
            covered = after
        assert covered == end
