"""A year in small: files of a sixty-fourth of the size, so that they rotate as often as in a year."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.experiments.chaos import months
from floodway.experiments.chaos.result import Trial
from floodway.job.store import line_files


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "SEGMENT_BYTES", 1 << 16)
    monkeypatch.setattr(months, "BATCHES_A_MONTH", 2000)
    monkeypatch.setattr(months, "AT_ONCE", 50)


def test_a_year_leaves_files_starts_and_audits_as_they_were(tmp_path: Path) -> None:
    result = months.faults(Trial(12, 3, tmp_path))
    assert (result.tried, result.differences) == (12, [])
    assert result.detail["batches"] == 24_000


def test_a_ledger_that_is_never_rotated_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(months, "LEDGER_SEGMENTS", 1_000_000)
    told = " ".join(months.faults(Trial(8, 3, tmp_path)).differences)
    assert "files is" in told and "disk_bytes is" in told


def test_sums_that_do_not_add_up_would_be_found(tmp_path: Path) -> None:
    job = months.AgeingJob(tmp_path, Trial(1, 3, tmp_path).rng("months"))
    job.live()
    assert job.judged()[0] == []
    job._offered += 1
    assert any("the sums are" in text for text in job.judged()[0])
