"""Of lines that a job writes for years the newest are kept: files, bytes and what a start reads are bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from floodway.job.store import line_log
from floodway.job.store.line_log import FileLog, KeptLines
from floodway.job.store.store import LocalStore


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_year_of_lines_takes_no_more_than_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """365 days of 100 appends each, with segments as much smaller than the real ones as the year is shorter."""
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", 2_000)
    store, sizes = LocalStore(tmp_path), []
    lines = KeptLines(store, "figures", kept_segments=4)
    for day in range(365):
        if day % 50 == 49:
            lines = KeptLines(store, "figures", kept_segments=4)  # the job was restarted
        for batch in range(100):
            lines.append([{"day": day, "batch": batch, "text": "x" * 20}])
        sizes.append(size(tmp_path))
    assert max(sizes) <= 5 * 2_000 + 200
    kept = list(lines.read())
    assert kept[-1] == {"day": 364, "batch": 99, "text": "x" * 20}
    numbers = [100 * line["day"] + line["batch"] for line in kept]
    assert numbers == list(range(numbers[0], 36_500)) and len(numbers) > 100, "the newest, without a hole"
    assert len(list(lines.latest())) < len(kept)


def test_a_start_reads_the_newest_segments_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", 2_000)
    lines = KeptLines(LocalStore(tmp_path), "figures", kept_segments=100)
    for number in range(3_000):
        lines.append([{"number": number}])
    read: list[int] = []
    real = FileLog._read

    def counting(self: FileLog, begin: int, offset: int) -> Any:
        for position, part in real(self, begin, offset):
            read.append(len(part))
            yield position, part

    monkeypatch.setattr(FileLog, "_read", counting)
    again = KeptLines(LocalStore(tmp_path), "figures", kept_segments=100)
    again.append([{"number": 3_000}])
    assert [line["number"] for line in again.latest()][-1] == 3_000
    assert sum(read) < 4 * 2_000 < size(tmp_path) / 4


def test_two_processes_that_append_in_turn_lose_nothing(tmp_path: Path) -> None:
    first, second = (KeptLines(LocalStore(tmp_path), "figures") for _ in range(2))
    for number in range(10):
        (first, second)[number % 2].append([{"number": number}])
    assert [line["number"] for line in first.read()] == list(range(10))


def test_what_is_torn_or_no_object_is_passed_over(tmp_path: Path) -> None:
    lines = KeptLines(LocalStore(tmp_path), "figures")
    lines.append([{"number": 0}])
    (segment,) = (tmp_path / "figures").glob("*.jsonl")
    with segment.open("ab") as file:
        file.write(b'[1]\n"x"\n\xff\n{"num')
    again = KeptLines(LocalStore(tmp_path), "figures")
    assert list(again.read()) == [{"number": 0}]
    again.append([{"number": 1}])
    assert list(again.read()) == [{"number": 0}, {"number": 1}]
