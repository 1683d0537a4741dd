"""Audits that go on where the last one has ended, on ledgers and logs that retention has cut."""

from __future__ import annotations

import shutil
from collections import Counter
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest

from floodway.job.ledger.audit_point import POINT, REMOVED
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.store import line_log
from floodway.spark.audit.run import Audit, audit
from floodway.spark.log import LogWriter, Retention
from floodway.spark.log.segments import Segment, SegmentName, open_segment
from tests.spark.ageing_run import NETWORK, OFFERED, QUERY, AgeingRun, lines_of

SEGMENT_BYTES = 1 << 13


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", SEGMENT_BYTES)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What was read: lines of ledgers, segments of logs."""
    found: Counter[str] = Counter()
    tally = import_module("floodway.spark.log.reader")
    decode = LedgerLine.decode

    def count_line(raw: bytes) -> LedgerLine:
        found["lines"] += 1
        return decode(raw)

    def count_segment(path: Path, name: SegmentName, schema: pa.Schema) -> Segment:
        found["segments"] += 1
        return open_segment(path, name, schema)

    monkeypatch.setattr(LedgerLine, "decode", count_line)
    monkeypatch.setattr(tally, "open_segment", count_segment)
    return found


def checked(run: AgeingRun, *, full: bool = False) -> Audit:
    result = audit(NETWORK, run.layout, full=full)
    assert (result.batches, result.lines) == (run.batches, 2 * run.batches)
    assert result.tuples_offered == OFFERED * run.batches
    return result


def test_a_ledger_that_retention_has_cut_makes_no_difference(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path)
    run.live(250)
    assert int(run.segments[0].stem) > 0
    result = checked(run)
    assert result.differences == ()
    assert any("retention has removed" in text for text in result.unchecked)


def test_removed_lines_are_still_held_against_the_sink(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path)
    run.live(250)
    with LogWriter(run.sink, sync=False) as writer:
        writer.append(pa.table({"id": [1, 2]}), tag=f"{QUERY}:q:3:0x")
        writer.append(pa.table({"id": [1, 2, 3]}), tag=f"{QUERY}:q:4:1")
    told = " ".join(audit(NETWORK, run.layout).differences)
    assert "2 tuple(s) in the log were not delivered" in told and "were appended to the log" in told


@pytest.mark.parametrize("kept_segments", [3, 1_000])
def test_what_a_second_audit_reads_does_not_grow_with_age(
    tmp_path: Path, read: Counter[str], kept_segments: int
) -> None:
    run = AgeingRun(tmp_path, kept_segments=kept_segments)
    needed = []
    for age in (150, 600):
        run.live(age)
        assert checked(run).differences == ()
        run.live(30)
        read.clear()
        assert checked(run).differences == ()
        needed.append(dict(read))
    longest = max(len(path.read_bytes().splitlines()) for path in run.segments)
    for one in needed:
        # The new lines, those of the batch that was open, and those that the ledger's own sums leave out.
        assert 60 <= one["lines"] <= 60 + 4 + 2 * (60 + longest)
        assert one["segments"] <= 31 + 1
    read.clear()
    checked(run, full=True)
    assert read["lines"] > max(one["lines"] for one in needed) or kept_segments == 3


def test_a_difference_is_told_until_it_is_mended(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path)
    run.live(50)
    assert checked(run).differences == ()
    run.live(50)
    copy = tmp_path / "copy"
    shutil.copytree(run.sink, copy)
    max(run.sink.rglob("*.arrow")).unlink()
    for _ in range(2):
        assert checked(run).differences != ()
    shutil.rmtree(run.sink)
    shutil.copytree(copy, run.sink)
    assert checked(run).differences == ()


def test_a_difference_is_told_after_retention_has_removed_its_lines(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path)
    run.live(50)
    with LogWriter(run.sink, sync=False) as writer:
        writer.append(pa.table({"id": [1, 2]}))
    (told,) = checked(run).differences
    with LogWriter(run.sink, sync=False) as writer:
        run.live(250)
        writer.retire(0, Retention(max_bytes=1))
    assert f"{REMOVED}{told}" in checked(run).differences
    assert f"{REMOVED}{told}" in checked(run).differences
    assert not any(text.startswith(REMOVED) for text in checked(run, full=True).differences)


def test_a_changed_old_line_is_found_by_a_full_audit(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path, kept_segments=1_000)
    run.live(300)
    assert checked(run).differences == ()
    first = run.segments[0]
    first.write_text(first.read_text().replace('"plan":"p"', '"plan":"z"', 1))
    run.live(10)
    assert audit(NETWORK, run.layout).differences == ()
    told = ("segment 0 of the ledger has changed since the last audit",)
    assert audit(NETWORK, run.layout, full=True).differences == told
    assert audit(NETWORK, run.layout, full=True).differences == told


def test_a_ledger_that_says_other_than_its_sums_is_found_by_a_full_audit(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path, kept_segments=1_000)
    run.live(300)
    first = run.segments[0]
    first.write_text(first.read_text().replace('"kept":5', '"kept":4').replace('"dropped":5', '"dropped":6'))
    told = audit(NETWORK, run.layout, full=True).differences
    assert any("has saved the sums" in text for text in told)


def test_tuples_that_come_after_their_batch_was_audited_are_found(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path)
    run.live(50)
    assert checked(run).differences == ()
    with LogWriter(run.sink, sync=False) as writer:
        writer.append(pa.table({"id": [1, 2]}), tag=f"{QUERY}:q:7:1")
    assert any("2 tuple(s) of batches up to 48 came after" in text for text in checked(run).differences)


def test_a_batch_whose_lines_come_in_parts_is_looked_at_again(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path)
    run.live(50)
    shed, delivered = lines_of(50, 5)
    Ledger(run.layout.store).append([shed])
    audit(NETWORK, run.layout)
    Ledger(run.layout.store).append([delivered])
    told = audit(NETWORK, run.layout).differences
    assert any("q, batch 50: the ledger says 5 tuples were delivered, the log holds 0" in text for text in told)


def test_a_compacted_sink_is_counted_from_where_the_last_audit_has_ended(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path)
    run.live(60)
    assert checked(run).differences == ()
    run.live(60)
    with LogWriter(run.sink, sync=False) as writer:
        assert writer.compact(0) > 0
    assert checked(run).differences == ()
    assert checked(run, full=True).differences == ()


def test_a_query_whose_checkpoint_is_gone_leaves_no_batch_open(tmp_path: Path, read: Counter[str]) -> None:
    run = AgeingRun(tmp_path, kept_segments=1_000)
    run.live(40)
    (run.checkpoint / "metadata").write_text('{"id":"6f0c2c5e-1b2a-4c8e-9d3f-000000000000"}')
    for folder in ("offsets", "commits"):
        shutil.rmtree(run.checkpoint / folder)
    first = audit(NETWORK, run.layout)
    read.clear()
    second = audit(NETWORK, run.layout)
    assert first.differences == second.differences == () and read["segments"] == 0
    assert any("its checkpoint is gone" in text for text in second.unchecked)


@pytest.mark.parametrize("point", [b"{", b'{"version": 9}'])
def test_a_point_that_is_of_no_use_makes_an_audit_start_over(tmp_path: Path, point: bytes) -> None:
    run = AgeingRun(tmp_path)
    run.live(50)
    assert checked(run).differences == ()
    run.layout.store.write(POINT, point)
    result = checked(run)
    assert result.differences == () and any("everything was audited again" in text for text in result.unchecked)
    assert checked(run).unchecked != result.unchecked


def test_a_ledger_that_was_begun_anew_is_audited_from_its_start(tmp_path: Path) -> None:
    run = AgeingRun(tmp_path)
    run.live(50)
    assert checked(run).differences == ()
    shutil.rmtree(tmp_path)
    again = AgeingRun(tmp_path)
    again.live(20)
    assert checked(again).differences == ()
