"""Batches on record: each once, whole after a restart, downsampled with age and exact in their sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.job.ledger.timeline import DAY
from floodway.job.status import batches as module
from floodway.job.status.batches import FOLDER, HISTORY, Batch, BatchLog, BatchReader, Sketch, segments
from floodway.job.store.store import LocalStore

START = 1_700_000_000


def batch(number: int, query: str = "q", every: int = 1) -> Batch:
    ended = START + every * number
    return Batch(
        query,
        number,
        ended - 1.0,
        float(ended),
        offered=100,
        kept=40,
        keep=0.4,
        reason=f"batch {number}",
        latencies=Sketch.of([(1.0 + number % 3, 40)]),
        delivered={"out": 40},
        work_seconds=0.5,
        busy_seconds=1.0,
    )


def read(store: LocalStore) -> list[Batch]:
    found = BatchReader(store).advance()
    assert found is not None
    return found


def test_a_batch_is_read_as_it_was_written(tmp_path: Path) -> None:
    store, written = LocalStore(tmp_path), [batch(0), batch(0, "other"), batch(1)]
    log = BatchLog(store)
    for one in written:
        log.append(one)
    assert read(store) == written


def test_a_repeated_batch_counts_once_also_after_a_restart(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    log = BatchLog(store)
    assert [log.append(batch(number)) for number in (0, 1, 1)] == [True, True, False]
    reader = BatchReader(store)
    reader.advance()
    again = BatchLog(store, reader.last)
    assert [again.append(batch(number)) for number in (1, 2)] == [False, True]
    assert [one.batch for one in read(store)] == [0, 1, 2]


def test_a_reader_gets_each_batch_once_across_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BATCHES", 3)
    store = LocalStore(tmp_path)
    log, reader, seen = BatchLog(store), BatchReader(store), []
    for number in range(10):
        log.append(batch(number))
        if number % 4 != 2:
            seen += [one.batch for one in reader.advance() or []]
    assert seen == list(range(10))
    assert segments(store) == [0, 1, 2, 3]


def test_old_batches_are_downsampled_and_their_sums_stay_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BATCHES", 16)
    monkeypatch.setattr(module, "MOST_SEGMENTS", 8)
    store, every, count = LocalStore(tmp_path), 300, 3 * DAY // 300
    log = BatchLog(store)
    for number in range(count):
        log.append(batch(number, every=every))
    found = read(store)
    assert len(segments(store)) <= 10
    assert len(found) < 3 * count // 4, "one line per stretch of time"
    assert sum(one.batches for one in found) == count
    assert (sum(one.offered for one in found), sum(one.kept for one in found)) == (100 * count, 40 * count)
    assert sum(one.busy_seconds for one in found) == count
    assert sum(one.delivered["out"] for one in found) == 40 * count
    assert all(one.keep == pytest.approx(0.4) for one in found)
    latencies = Sketch()
    for one in found:
        latencies.merge(one.latencies)
    assert latencies.mean == pytest.approx(2.0)
    assert latencies.quantile(0.5) == pytest.approx(2.0, rel=0.011)
    assert [one.batch for one in found] == sorted(one.batch for one in found)
    newest = [one for one in found if one.batches == 1]
    assert [one.reason for one in newest] == [f"batch {one.batch}" for one in newest]


def test_a_crash_while_history_is_made_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BATCHES", 2)
    monkeypatch.setattr(module, "MOST_SEGMENTS", 4)
    store = LocalStore(tmp_path)
    log = BatchLog(store)
    monkeypatch.setattr(LocalStore, "remove", lambda self, name: None)  # the process ends before any is removed
    for number in range(12):
        log.append(batch(number))
    assert store.read(HISTORY) is not None and segments(store)[0] == 0
    assert sum(one.batches for one in read(store)) == 12
    monkeypatch.undo()
    reader = BatchReader(store)
    reader.advance()
    again = BatchLog(store, reader.last)
    for number in range(12, 300):
        again.append(batch(number))
    assert sum(one.batches for one in read(store)) == 300


def test_another_run_in_the_folder_is_another_log(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    BatchLog(store).append(batch(5))
    reader = BatchReader(store)
    reader.advance()
    for name in store.names(FOLDER):
        store.remove(name)
    assert reader.advance() == [], "nothing new, and what was read stays"
    BatchLog(store).append(batch(0))
    assert reader.advance() is None


def test_a_line_that_is_no_batch_is_passed_over(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write(f"{FOLDER}/00000000.jsonl", batch(0).encode() + b'{"query": "q"}\nnot json\n' + batch(1).encode())
    assert [one.batch for one in read(store)] == [0, 1]


def test_a_clock_set_back_takes_no_batch_out_of_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BATCHES", 4)
    monkeypatch.setattr(module, "MOST_SEGMENTS", 2)
    store = LocalStore(tmp_path)
    log, number = BatchLog(store), 0
    for second in (*range(2 * DAY, 2 * DAY + 40), *range(DAY, DAY + 40)):
        log.append(Batch("q", number, second - 1.0, float(second), offered=3))
        number += 1
    assert store.read(HISTORY) is not None
    reader = BatchReader(store)
    found = reader.advance() or []
    assert sum(batch.batches for batch in found) == number
    assert sum(batch.offered for batch in found) == 3 * number
    assert reader.last == {"q": number - 1}
