"""What a log lets go: no more than it was told to keep lies on the disk, and nothing that a reader waits for goes."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from floodway.spark.log import LogReader, LogWriter, Retention, create_log, tally
from floodway.spark.query.sinks import _append

WIDE = "x" * 1000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return create_log(tmp_path / "log", "id bigint, text string").path


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"id": list(range(start, start + count)), "text": [WIDE] * count})


def on_disk(log: Path) -> int:
    return sum(file.stat().st_size for file in (log / "p0").glob("*.arrow"))


def test_merged_parts_count_and_go_first(log: Path) -> None:
    with LogWriter(log, sync=False, compact_every=0) as writer:
        for number in range(60):
            writer.append(rows(number, 1))
        plain = on_disk(log)
        assert writer.compact() == 44
        assert on_disk(log) > 1.2 * plain
        assert writer.retire(0, Retention(max_bytes=plain)) == 0, "without the parts all of it fits"
        assert on_disk(log) <= plain and LogReader(log).earliest_positions() == {0: 0}
        assert writer.retire(0, Retention(max_bytes=plain // 2)) == 44
    assert on_disk(log) <= plain // 2
    assert [b.num_rows for b in LogReader(log).read(0, 44, 60)] == [1] * 16


def test_nothing_from_the_first_unread_tuple_on_goes(log: Path) -> None:
    with LogWriter(log, sync=False, compact_every=0) as writer:
        for number in range(10):
            writer.append(rows(10 * number, 10))
        for unread, earliest in (({}, 0), ({0: 9}, 0), ({0: 35}, 30), ({0: 40}, 40), ({0: 1000}, 90)):
            writer.retire(0, Retention(max_bytes=1, max_age_seconds=1e-9, unread_from=unread))
            assert LogReader(log).earliest_positions() == {0: earliest}, unread


def test_a_sink_whose_writer_lives_for_one_append_keeps_to_its_bytes(log: Path) -> None:
    kept = Retention(max_bytes=100_000)
    for number in range(150):
        _append(rows(2 * number, 2), str(log), 0, f"q:{number}:0", kept)
        assert on_disk(log) <= 100_000
    counted = tally(log)
    # Merged segments are small beside what may be kept, or most of it would go at once.
    assert len(counted.tagged) >= 20 and counted.retired[0] + sum(counted.tagged.values()) == 300
    _append(rows(0, 2), str(log), 0, "q:149:0", kept)
    assert tally(log) == counted


def test_a_tag_that_was_retired_is_free_again_for_the_same_writer(log: Path) -> None:
    for number in range(20):
        _append(rows(number, 1), str(log), 0, f"q:{number}:0")
    with LogWriter(log, sync=False) as writer:
        writer.append(rows(20, 1), tag="q:20:0")
        assert writer.retire(0, Retention(max_bytes=0)) == 20
        assert not writer.append(rows(21, 1), tag="q:3:0").duplicate
        assert writer.append(rows(21, 1), tag="q:20:0").duplicate


def test_age_is_that_of_the_newest_part(log: Path) -> None:
    with LogWriter(log, sync=False, compact_every=0) as writer:
        for number in range(40):
            writer.append(rows(number, 1))
        for file in sorted((log / "p0").glob("*.arrow"))[:30]:
            os.utime(file, (0, 0))
        writer.compact()
        assert writer.retire(0, Retention(max_age_seconds=3600)) == 30
    assert LogReader(log).earliest_positions() == {0: 30}


def test_a_writer_whose_clock_is_set_back_goes_on_to_let_go(log: Path) -> None:
    now = [1_700_000_000_000_000]
    with LogWriter(log, sync=False, retention=Retention(max_bytes=20_000), clock=lambda: now[0]) as writer:
        writer.append(rows(0, 5))
        now[0] -= 86_400_000_000
        for number in range(1, 20):
            writer.append(rows(5 * number, 5))
            now[0] += 2_000_000
    assert on_disk(log) <= 20_000
