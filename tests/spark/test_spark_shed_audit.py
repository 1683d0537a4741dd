"""A shed's ledger against the commits of its query, on files as Spark and a shed leave them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from floodway.cli.audit import audit
from floodway.errors import InputError
from floodway.job.ledger.backfill import BackfillStep, recovered_lines
from floodway.job.ledger.facts import BatchFacts
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.places import ShedFiles
from floodway.job.store import line_log
from floodway.job.store.store import LocalStore
from floodway.spark.audit.shed import ShedAudit, audit_shed
from floodway.spark.shed.checkpoints import MOST, Record, first_record, note_checkpoint, noted_checkpoints

NOW = 1_700_000_000.0
LONG_AGO_US = 1_600_000_000_000_000


def line(batch: int, reason: str = "shedder", until: int | None = None) -> LedgerLine:
    counts = (10, 4, 6) if reason == "shedder" else (0, 0, 0)
    return LedgerLine("q", batch, "clicks", reason, *counts, time_us=LONG_AGO_US, until=until)


def job(root: Path, committed: range, lines: list[LedgerLine]) -> ShedFiles:
    files = ShedFiles(root / "clicks")
    Ledger(files.store).append(lines)
    (files.folder / "status.json").write_text("{}")
    checkpoint = root / "checkpoint"
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
    for batch in committed:
        path = checkpoint / "commits" / str(batch)
        path.write_text("v1\n{}")
        os.utime(path, (LONG_AGO_US / 1e6, LONG_AGO_US / 1e6))
    note_checkpoint(files, "q", str(checkpoint))
    return files


def found(root: Path, committed: range, lines: list[LedgerLine]) -> ShedAudit:
    return audit_shed("clicks", job(root, committed, lines), NOW)


def test_a_shed_that_counted_every_commit_reconciles(tmp_path: Path) -> None:
    result = found(tmp_path, range(3), [line(0), line(1), line(2)])
    assert result.differences == ()
    assert (result.batches, result.offered, result.kept, result.dropped, result.gaps) == (3, 30, 12, 18, 0)


def test_a_commit_without_a_line_is_a_difference(tmp_path: Path) -> None:
    result = found(tmp_path, range(4), [line(0), line(1), line(2)])
    assert result.differences == ("query q, batch 3: committed by Spark, not in the ledger",)


def test_a_declared_gap_is_told_once_and_counted(tmp_path: Path) -> None:
    result = found(tmp_path, range(5), [line(0), line(1, "gap", until=3), line(4)])
    assert result.differences == ("query q, clicks: no counts for batches 1 to 3",)
    assert result.gaps == 3


def test_a_line_without_a_commit_is_a_difference(tmp_path: Path) -> None:
    result = found(tmp_path, range(2), [line(0), line(1), line(2)])
    assert any("batch 2: in the ledger, not committed by Spark" in text for text in result.differences)


def test_what_has_just_happened_is_not_judged(tmp_path: Path) -> None:
    files = job(tmp_path, range(3), [line(0), line(1)])
    assert audit_shed("clicks", files, LONG_AGO_US / 1e6 + 5.0).differences == ()
    assert len(audit_shed("clicks", files, LONG_AGO_US / 1e6 + 15.0).differences) == 1


def test_batches_before_the_shed_and_those_that_spark_forgot_are_no_difference(tmp_path: Path) -> None:
    assert found(tmp_path / "later", range(5), [line(3), line(4)]).differences == ()
    forgot = found(tmp_path / "forgot", range(3, 5), [line(batch) for batch in range(5)])
    assert forgot.differences == ()
    assert any("no longer has the commits of batches 0 to 2" in text for text in forgot.unchecked)


def test_batches_before_the_first_line_are_a_difference_if_the_shed_was_there(tmp_path: Path) -> None:
    files = job(tmp_path, range(5), [line(3), line(4)])
    first_record(LocalStore(tmp_path / "checkpoint"), "clicks", Record(since=2, state="file:///gone"))
    assert audit_shed("clicks", files, NOW).differences == ("query q, batch 2: committed by Spark, not in the ledger",)


def test_a_query_without_a_known_checkpoint_is_told_and_may_be_named(tmp_path: Path) -> None:
    files = job(tmp_path, range(4), [line(0)])
    (files.folder / "checkpoints.json").unlink()
    assert any("name it with --checkpoint" in text for text in audit_shed("clicks", files, NOW).unchecked)
    assert len(audit_shed("clicks", files, NOW, [str(tmp_path / "checkpoint")]).differences) == 3
    with pytest.raises(InputError, match="not a checkpoint"):
        audit_shed("clicks", files, NOW, [str(tmp_path)])


def test_only_the_latest_checkpoints_are_kept(tmp_path: Path) -> None:
    files = ShedFiles(tmp_path)
    for number in range(MOST + 3):
        note_checkpoint(files, f"q{number}", f"/c/{number}")
    assert list(noted_checkpoints(files)) == [f"q{number}" for number in range(3, MOST + 3)]


def invoke(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(audit)
    return CliRunner().invoke(app, arguments)


def test_audit_finds_a_shed_by_name_as_top_does(tmp_path: Path) -> None:
    job(tmp_path, range(2), [line(0), line(1)])
    for state in (tmp_path, tmp_path / "clicks"):
        done = invoke("--shed", "clicks", "--state", str(state), "--json")
        body = json.loads(done.stdout)
        assert done.exit_code == 0 and body["reconciled"] and body["offered"] == 20
    wrong = tmp_path / "wrong"
    job(wrong, range(3), [line(0), line(1)])
    done = invoke("--shed", "clicks", "--state", str(wrong))
    assert done.exit_code == 1 and "batch 2: committed by Spark" in done.stdout
    assert isinstance(invoke("net.yaml", "--shed", "clicks").exception, InputError)
    assert isinstance(invoke().exception, InputError)


def test_what_a_second_audit_of_a_shed_reads_does_not_grow_with_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", 1 << 13)
    files = job(tmp_path, range(0), [line(0)])
    ledger, checkpoint, last, needed = Ledger(files.store, kept_segments=3), tmp_path / "checkpoint", 0, []
    for age in (100, 1000):
        for more in (age, 20):
            ledger.append([line(last + n) for n in range(1, more + 1)])
            last += more
            for batch in range(last - 50, last + 1):
                (checkpoint / "commits" / str(batch)).write_text("v1\n{}")
            read = 0
            decode = LedgerLine.decode

            def count(raw: bytes, decode: Callable[[bytes], LedgerLine] = decode) -> LedgerLine:
                nonlocal read
                read += 1
                return decode(raw)

            with monkeypatch.context() as patch:
                patch.setattr(LedgerLine, "decode", count)
                result = audit_shed("clicks", files, NOW)
            assert (result.differences, result.batches) == ((), last + 1)
        needed.append(read)
    longest = max(len(path.read_bytes().splitlines()) for path in (files.folder / "ledger").glob("*.jsonl"))
    assert all(20 <= one <= 2 * (20 + longest) for one in needed)


def test_what_backfills_recovered_and_lost_is_told_with_what_remains(tmp_path: Path) -> None:
    files = job(tmp_path, range(3), [line(0), line(1), line(2)])
    assert "recovered" not in invoke(str(files.folder)).stdout
    for batch, recovered, told in (
        (0, 6, "6 recovered, 0 lost; 12 dropped tuples remain"),
        (1, 4, "10 recovered, 2 lost; 6 dropped tuples remain"),
        (2, 6, "12 kept + 16 recovered + 2 lost = 30 offered"),
    ):
        step = BackfillStep((BatchFacts("q", batch, LONG_AGO_US, "enforce", 10, 4, 400_000, 1),))
        Ledger(files.store).append(recovered_lines("clicks", step, [recovered], LONG_AGO_US))
        done = invoke(str(files.folder))
        assert done.exit_code == 0 and told in done.stdout
    body = json.loads(invoke(str(files.folder), "--json").stdout)
    assert (body["dropped"], body["recovered"], body["lost"], body["remaining"]) == (18, 16, 2, 0)


def test_more_recovered_than_dropped_is_a_difference(tmp_path: Path) -> None:
    twice = LedgerLine("q", 1, "clicks", "recovered", 7, 7, 0, time_us=LONG_AGO_US)
    result = found(tmp_path, range(2), [line(0), line(1), replace(twice, batch=0), twice])
    assert result.differences == ("clicks: 12 tuples were dropped, and 14 of them recovered or lost",)


def test_a_line_that_was_too_young_to_be_judged_is_judged_by_the_next_audit(tmp_path: Path) -> None:
    files = job(tmp_path, range(2), [line(0), line(1), line(2), line(3)])
    assert audit_shed("clicks", files, LONG_AGO_US / 1e6 + 5.0).differences == ()
    told = audit_shed("clicks", files, LONG_AGO_US / 1e6 + 15.0).differences
    assert [text[:16] for text in told] == ["query q, batch 2", "query q, batch 3"]


def test_a_changed_line_of_a_shed_is_found_by_a_full_audit(tmp_path: Path) -> None:
    files = job(tmp_path, range(5), [line(batch) for batch in range(5)])
    assert audit_shed("clicks", files, NOW).differences == ()
    (segment,) = (files.folder / "ledger").glob("*.jsonl")
    segment.write_text(segment.read_text().replace('"kept":4', '"kept":5', 1).replace('"dropped":6', '"dropped":5', 1))
    told = audit_shed("clicks", files, NOW, full=True).differences
    assert told == ("segment 0 of the ledger has changed since the last audit",)
