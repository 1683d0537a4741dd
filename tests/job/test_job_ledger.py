"""The ledger: durable, idempotent, tolerant of what is torn, honest about what it does not know, of bounded cost."""

from __future__ import annotations

import multiprocessing
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from floodway.job.ledger import ledger_line
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger import Ledger, LedgerError, LedgerLine, LedgerTail
from floodway.job.ledger.ledger_line import RecentLines
from floodway.job.store import line_log, line_objects
from floodway.job.store.store import LocalStore, Store
from tests.job.ledgers import Objects, line, open_segment, stores


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind."""
    return stores(tmp_path)[request.param]


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of about 20 lines, or 16 appends; a writer that remembers 5 to 10 batches."""
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", 4000)
    monkeypatch.setattr(line_objects, "GROUPS", (4, 16))
    monkeypatch.setattr(ledger_line, "KEPT_BATCHES", 5)


def write_one_by_one(store: Store, batches: range) -> None:
    ledger = Ledger(store)
    for batch in batches:
        assert ledger.append([line(batch)]) == 1


def test_what_is_written_is_read_back(store: Store) -> None:
    assert Ledger(store).append([line(0), line(1, kept=10)]) == 2
    assert Ledger(store).read() == [line(0), line(1, kept=10)]


def test_an_empty_or_missing_ledger_reconciles(store: Store) -> None:
    ledger = Ledger(store)
    assert ledger.read() == [] and not ledger.exists()
    fold = ledger.fold()
    assert fold.differences() == [] and fold.lines == 0 and not fold.total.offered
    assert ledger.append([]) == 0 and not ledger.exists()


def test_a_replayed_batch_is_written_once(store: Store) -> None:
    Ledger(store).append([line(0)])
    # Another writer, as after a restart; the time of writing differs, the counts do not.
    assert Ledger(store).append([replace(line(0), time_us=99), line(1)]) == 1
    assert [entry.batch for entry in Ledger(store).read()] == [0, 1]


def test_two_writers_in_turn_see_each_other(store: Store) -> None:
    first, second = Ledger(store), Ledger(store)
    assert first.append([line(0)]) == 1
    assert second.append([line(0), line(1)]) == 1
    assert first.append([line(1), line(2)]) == 1
    assert [entry.batch for entry in first.read()] == [0, 1, 2]
    assert first.fold().total.offered["clicks"] == second.fold().total.offered["clicks"] == 30


def test_a_replay_that_counts_otherwise_is_a_difference(store: Store) -> None:
    ledger = Ledger(store)
    ledger.append([line(0)])
    assert ledger.append([line(0, kept=5)]) == 1
    assert ledger.append([line(0, kept=5)]) == 0
    assert ledger.fold().total.kept["clicks"] == 4
    (difference,) = ledger.fold().differences()
    assert "a replay counted otherwise" in difference


def test_a_torn_last_line_is_passed_over_then_cut_away_and_counted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    Ledger(store).append([line(0), line(1)])
    path = open_segment(store)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    reader = Ledger(store)
    assert reader.read() == [line(0)]
    assert any("torn" in difference for difference in reader.fold().differences())
    writer = Ledger(store)
    assert writer.append([line(1)]) == 1
    assert writer.torn == 1
    assert path.read_bytes() == whole
    assert writer.fold().differences() == []


def test_every_cut_of_the_file_is_survived(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    Ledger(store).append([line(0), line(1)])
    path = open_segment(store)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        Ledger(store).append([line(0), line(1)])
        assert path.read_bytes() == whole, f"cut at byte {length}"


def test_a_ledger_cut_under_a_running_writer_goes_on(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    writer = Ledger(store)
    writer.append([line(0), line(1)])
    path = open_segment(store)
    path.write_bytes(line(0).encode())
    assert writer.append([line(2)]) == 1
    assert [entry.batch for entry in Ledger(store).read()] == [0, 2]
    assert writer.fold().differences() == ["query q, clicks: batch 1 is missing from the ledger"]


def test_a_foreign_line_is_counted_and_the_ledger_goes_on(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    Ledger(store).append([line(0)])
    with open_segment(store).open("ab") as file:
        file.write(b'{"query": "q", "batch": "one"}\n')
    assert Ledger(store).append([line(1)]) == 1
    assert Ledger(store).read() == [line(0), line(1)]
    assert Ledger(store).fold().differences() == ["lines of the ledger that cannot be read: 1"]


def test_a_ledger_of_version_1_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    for use in (lambda: Ledger(LocalStore(tmp_path)).fold(), lambda: Ledger(LocalStore(tmp_path)).append([line(0)])):
        with pytest.raises(LedgerError, match=r"holds a ledger of version 1\. Read it with the version of Floodway"):
            use()


@pytest.mark.parametrize(
    "stored", [b"[]", b"{", b'{"query":1,"v":2}', b"\xff", line(0).encode().replace(b'"v":2', b'"v":3')]
)
def test_lines_that_are_no_ledger_lines(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        LedgerLine.decode(stored)


def test_an_unbalanced_line_is_never_written(store: Store) -> None:
    ledger = Ledger(store)
    with pytest.raises(LedgerError, match="does not balance"):
        ledger.append([line(0), replace(line(1), dropped=7)])
    assert ledger.read() == []


def test_gaps_declared_and_undeclared_are_differences(store: Store) -> None:
    ledger = Ledger(store)
    gap = LedgerLine("q", 1, "clicks", "gap", 0, 0, 0, until=2)
    ledger.append([line(0), gap, line(3), line(5)])
    assert ledger.last_batch("q", "clicks") == 5
    assert ledger.last_batch("q", "views") is None
    declared, undeclared = ledger.fold().differences()
    assert "no counts for batches 1 to 2" in declared
    assert "batch 4 is missing" in undeclared


def _write_many(kind: str, folder: Path, first: int) -> None:
    ledger = Ledger(stores(folder)[kind])
    for batch in range(first, first + 50):
        ledger.append([line(batch)])


@pytest.mark.parametrize("kind", ["disk", "objects"])
def test_concurrent_writers_lose_and_double_nothing(tmp_path: Path, kind: str) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(kind, tmp_path, first)) for first in (0, 25, 50)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    found = Ledger(stores(tmp_path)[kind])
    assert sorted(entry.batch for entry in found.read()) == list(range(100))
    assert found.fold().differences() == []


@pytest.mark.usefixtures("short_segments")
def test_a_writer_knows_every_line_however_old(store: Store) -> None:
    write_one_by_one(store, range(200))
    for batch in (0, 100, 185, 199):
        assert Ledger(store).append([line(batch)]) == 0, batch
    writer = Ledger(store)
    assert writer.append([line(200), line(3), replace(line(7), query="new")]) == 2
    assert writer.append([replace(line(7), query="new"), replace(line(8), query="new"), line(201)]) == 2
    assert len(Ledger(store).read()) == 204
    assert Ledger(store).last_batch("q", "clicks") == 201
    assert Ledger(store).last_batch("q", "views") is None


@pytest.mark.usefixtures("short_segments")
def test_conflicts_at_the_end_do_not_hide_what_lies_before(store: Store) -> None:
    """A checkpoint restored from a copy repeats old batches: their conflicts stand behind newer lines."""
    write_one_by_one(store, range(100))
    ledger = Ledger(store)
    assert sum(ledger.append([line(batch, kept=5)]) for batch in range(30, 60)) == 30
    assert Ledger(store).append([line(60), line(61, kept=5), line(30, kept=5)]) == 1
    assert Ledger(store).last_batch("q", "clicks") == 99
    assert len(Ledger(store).read()) == 131


@pytest.mark.usefixtures("short_segments")
def test_sums_outlive_the_segments_they_stand_for(store: Store) -> None:
    ledger = Ledger(store, kept_segments=3)
    for batch in range(120):
        ledger.append([line(batch), line(batch, reason="delivered", at="sink", kept=10)])
    kept = ledger.read()
    assert 0 < len(kept) < 120, "old segments are gone"
    for reader in (ledger, Ledger(store)):
        fold = reader.fold()
        assert fold.lines == 240 and fold.total.offered["clicks"] == 1200 and fold.total.delivered["sink"] == 1200
        assert fold.differences() == []
        assert reader.last_batch("q", "clicks") == 119
    # A replay of a batch whose line is gone counts nothing twice.
    assert Ledger(store).append([line(3)]) == 0


@pytest.mark.usefixtures("short_segments")
def test_a_backfill_of_batches_whose_lines_are_gone_is_counted_once(store: Store) -> None:
    ledger, gap = Ledger(store, kept_segments=3), LedgerLine("q", 4, "clicks", "gap", 0, 0, 0, until=4)
    for batch in range(120):
        ledger.append([gap if batch == 4 else line(batch)])
    assert ledger.read()[0].batch > 4
    recovered = [line(batch, offered=6, kept=6, reason="recovered") for batch in (3, 4)]
    for writer in (ledger, Ledger(store)):
        written = writer.append([line(4), *recovered])
        assert written == (3 if writer is ledger else 0)
    for batch in range(120, 240):
        ledger.append([line(batch)])
    assert not any(one.reason == "recovered" for one in ledger.read())
    for writer in (ledger, Ledger(store)):
        assert writer.append(recovered) == 0 and writer.append([line(3), line(4)]) == 0
        fold = writer.fold()
        assert (fold.total.recovered["clicks"], fold.total.offered["clicks"], fold.differences()) == (12, 2400, [])
        assert [fold.is_recovered("q", "clicks", batch) for batch in (2, 3, 4, 5)] == [False, True, True, False]


@pytest.mark.usefixtures("short_segments")
def test_what_was_recovered_does_not_hide_that_an_old_batch_was_counted(store: Store) -> None:
    write_one_by_one(store, range(100))
    ledger = Ledger(store)
    assert ledger.append([line(3, offered=6, kept=6, reason="recovered")]) == 1
    assert ledger.append([line(3)]) == 0 and Ledger(store).append([line(3)]) == 0
    assert ledger.fold().total.offered["clicks"] == 1000


@pytest.mark.usefixtures("short_segments")
def test_what_a_start_reads_does_not_grow_with_the_age_of_the_job(tmp_path: Path) -> None:
    store = Objects(tmp_path)
    asked = []
    for begin in (0, 100):
        write_one_by_one(store, range(begin, begin + 100))
        store.asked.clear()
        assert Ledger(store).append([line(begin + 100, at="other")]) == 1
        asked.append(sum(text.startswith("read") for text in store.asked))
    assert asked[1] <= asked[0] + 2 and asked[1] < 16, asked


@pytest.mark.usefixtures("short_segments")
def test_broken_sums_are_passed_over_and_lost_ones_are_told(store: Store) -> None:
    ledger = Ledger(store, kept_segments=3)
    for batch in range(120):
        ledger.append([line(batch)])
    newest, older = sorted((name for name in store.names("ledger") if "sums-" in name), reverse=True)
    store.write(newest, b"{")
    assert Ledger(store).fold().total.offered["clicks"] == 1200
    store.write(older, b'{"id": 3}')
    fold = Ledger(store).fold()
    assert fold.total.offered["clicks"] < 1200
    assert any("the sums of the lines before position" in text for text in fold.differences())


def test_a_reader_goes_on_from_its_last_look_and_notices_another_ledger(store: Store) -> None:
    writer, tail, fold = Ledger(store), LedgerTail(store), Fold()
    assert tail.advance(fold) and fold.lines == 0
    writer.append([line(0)])
    writer.append([line(1)])
    assert tail.advance(fold) and tail.advance(fold) and fold.lines == 2
    for name in store.names("ledger"):
        store.remove(name)
    assert tail.advance(fold) and fold.lines == 2, "what was removed stays until something new is there"
    Ledger(store).append([line(7)])
    assert not tail.advance(fold)


@pytest.mark.usefixtures("short_segments")
def test_a_reader_that_starts_late_has_the_sums_of_one_that_saw_everything(store: Store) -> None:
    writer, early = Ledger(store), Fold()
    tail = LedgerTail(store)
    for batch in range(120):
        kept = batch % 11
        writer.append([replace(line(batch, kept=kept), time_us=batch * 7_000_000)])
        tail.advance(early)
    late = Fold()
    LedgerTail(store).advance(late)
    assert late.snapshot() == early.snapshot()
    assert late.timeline.window(840, 100)[1] == early.timeline.window(840, 100)[1] > 0


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
    assert recent.reasons("q", 2999, "place4") == ["shedder"] and recent.reasons("q", 100, "place4") == []
