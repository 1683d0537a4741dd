"""The ledger: durable, idempotent, tolerant of a torn last line, honest about what it does not know."""

from __future__ import annotations

import multiprocessing
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from floodway.job.ledger import Ledger, LedgerError, LedgerLine
from floodway.job.ledger_memory import RecentLines


def line(batch: int, *, offered: int = 10, kept: int = 4, reason: str = "shedder", at: str = "clicks") -> LedgerLine:
    return LedgerLine("q", batch, at, reason, offered, kept, offered - kept, plan="p1", keep_ppm=400_000, time_us=batch)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "deep" / "ledger.jsonl")
    assert ledger.append([line(0), line(1, kept=10)]) == 2
    assert Ledger(ledger.path).read() == [line(0), line(1, kept=10)]


def test_an_empty_or_missing_ledger_reconciles(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.read() == []
    assert ledger.fold().differences() == []
    assert ledger.fold().total.offered.total() == 0


def test_a_replayed_batch_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append([line(0)])
    # Another writer, as after a restart; the time of writing differs, the counts do not.
    assert Ledger(path).append([replace(line(0), time_us=99), line(1)]) == 1
    assert [entry.batch for entry in Ledger(path).read()] == [0, 1]


def test_two_writers_in_turn_see_each_other(tmp_path: Path) -> None:
    first, second = Ledger(tmp_path / "l.jsonl"), Ledger(tmp_path / "l.jsonl")
    assert first.append([line(0)]) == 1
    assert second.append([line(0), line(1)]) == 1
    assert first.append([line(1), line(2)]) == 1
    assert [entry.batch for entry in first.read()] == [0, 1, 2]


def test_a_replay_that_counts_otherwise_is_a_difference(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append([line(0)])
    assert ledger.append([line(0, kept=5)]) == 1
    assert ledger.append([line(0, kept=5)]) == 0
    assert ledger.fold().total.kept.total() == 4
    (difference,) = ledger.fold().differences()
    assert "a replay counted otherwise" in difference


def test_totals_by_place_and_reason(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append([line(0), line(0, reason="cleaner", offered=4, kept=3), line(1)])
    total = ledger.fold().total
    assert total.dropped == {("clicks", "shedder"): 12, ("clicks", "cleaner"): 1}
    assert total.offered["clicks"] == total.kept["clicks"] + total.dropped.total() == 20


def test_a_torn_last_line_is_passed_over_then_cut_away_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append([line(0), line(1)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    reader = Ledger(path)
    assert reader.read() == [line(0)]
    assert any("torn" in difference for difference in reader.fold().differences())
    writer = Ledger(path)
    assert writer.append([line(1)]) == 1
    assert writer.torn == 1
    assert path.read_bytes() == whole
    assert writer.fold().differences() == []


def test_every_cut_of_the_file_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append([line(0), line(1)])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        Ledger(path).append([line(0), line(1)])
        assert path.read_bytes() == whole, f"cut at byte {length}"


def test_a_foreign_line_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append([line(0)])
    with path.open("ab") as file:
        file.write(b'{"query": "q", "batch": "one"}\n')
    with pytest.raises(LedgerError, match="line 2"):
        Ledger(path).read()
    with pytest.raises(LedgerError, match="line 2"):
        Ledger(path).append([line(1)])


@pytest.mark.parametrize("stored", [b"[]", b"{", b'{"query":1}', b"\xff"])
def test_lines_that_are_no_ledger_lines(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        LedgerLine.decode(stored)


def test_an_unbalanced_line_is_never_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(LedgerError, match="does not balance"):
        ledger.append([line(0), replace(line(1), dropped=7)])
    assert ledger.read() == []


def test_gaps_declared_and_undeclared_are_differences(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    gap = LedgerLine("q", 1, "clicks", "gap", 0, 0, 0, until=2)
    ledger.append([line(0), gap, line(3), line(5)])
    assert ledger.last_batch("q", "clicks") == 5
    assert ledger.last_batch("q", "views") is None
    declared, undeclared = ledger.fold().differences()
    assert "no counts for batches 1 to 2" in declared
    assert undeclared == "query q, clicks: batch 4 is missing from the ledger"


def _write_many(path: Path, first: int) -> None:
    ledger = Ledger(path)
    for batch in range(first, first + 50):
        ledger.append([line(batch)])


def test_concurrent_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(path, first)) for first in (0, 25, 50)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert sorted(entry.batch for entry in Ledger(path).read()) == list(range(100))
    assert Ledger(path).fold().differences() == []


@pytest.fixture
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodway.job.ledger.TAIL_BYTES", 3000)
    monkeypatch.setattr("floodway.job.ledger.PART_BYTES", 700)


@pytest.mark.usefixtures("short_tail")
def test_a_writer_reads_the_end_and_still_knows_every_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append([line(batch) for batch in range(200)])
    for batch in (0, 100, 185, 199):
        assert Ledger(path).append([line(batch)]) == 0, batch
    writer = Ledger(path)
    assert writer.append([line(200), line(3), replace(line(7), query="new")]) == 2
    assert writer.append([replace(line(7), query="new"), replace(line(8), query="new"), line(201)]) == 2
    assert len(Ledger(path).read()) == 204
    assert Ledger(path).last_batch("q", "clicks") == 201
    assert Ledger(path).last_batch("q", "views") is None


@pytest.mark.usefixtures("short_tail")
def test_conflicts_at_the_end_do_not_hide_what_lies_before(tmp_path: Path) -> None:
    """A checkpoint restored from a copy repeats old batches: their conflicts stand behind newer lines."""
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append([line(batch) for batch in range(100)])
    assert Ledger(path).append([line(batch, kept=5) for batch in range(30, 60)]) == 30
    assert Ledger(path).append([line(60), line(61, kept=5), line(30, kept=5)]) == 1
    assert Ledger(path).last_batch("q", "clicks") == 99
    assert len(Ledger(path).read()) == 131


@pytest.mark.usefixtures("short_tail")
def test_a_torn_line_longer_than_a_part_is_cut_away(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append([line(batch) for batch in range(50)])
    whole = path.read_bytes()
    path.write_bytes(whole + b"{" * 2000)
    writer = Ledger(path)
    assert writer.append([line(49)]) == 0 and writer.torn == 1
    assert path.read_bytes() == whole


def test_memory_does_not_grow_with_the_age_of_the_job() -> None:
    recent = RecentLines(kept_batches=100)
    sizes = []
    tracemalloc.start()
    for batch in range(3000):
        for place in range(5):
            recent.add(("q", batch, f"place{place}", "shedder"), (1000 + batch, 400, 600 + batch))
        if batch % 1000 == 999:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[2] < 1.3 * sizes[0], sizes
    assert recent.knows("q", 2999) and not recent.knows("q", 100)
