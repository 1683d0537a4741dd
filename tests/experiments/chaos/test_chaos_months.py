"""A week, day by day, with files of a fraction of the size, so that they rotate as often as in a year."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.experiments.chaos import months
from floodway.experiments.chaos.months import Needs, grown
from floodway.experiments.chaos.result import Trial
from floodway.job.store import line_files

SEED = 3
BATCHES_A_DAY = 480


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "SEGMENT_BYTES", 1 << 13)
    monkeypatch.setattr(months, "BATCHES_A_MONTH", BATCHES_A_DAY)
    monkeypatch.setattr(months, "AT_ONCE", 80)


@pytest.mark.usefixtures("small")
def test_a_week_leaves_files_starts_and_audits_as_they_were(tmp_path: Path) -> None:
    result = months.faults(Trial(7, SEED, tmp_path))
    assert (result.tried, result.differences) == (7, [])
    assert result.detail["batches"] == 7 * BATCHES_A_DAY


@pytest.mark.slow
def test_a_year_leaves_files_starts_and_audits_as_they_were(tmp_path: Path) -> None:
    result = months.faults(Trial(12, SEED, tmp_path))
    print(f"12 points, seed {SEED}: {result.detail}")
    assert (result.tried, result.differences) == (12, [])
    assert result.detail["batches"] == 12 * months.BATCHES_A_MONTH


@pytest.mark.usefixtures("small")
def test_a_ledger_that_is_never_rotated_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(months, "LEDGER_SEGMENTS", 1_000_000)
    monkeypatch.setattr(line_files, "SEGMENT_BYTES", 1 << 13)
    monkeypatch.setattr(months, "BATCHES_A_MONTH", 200)
    monkeypatch.setattr(months, "AT_ONCE", 25)
    told = " ".join(months.faults(Trial(8, SEED, tmp_path)).differences)
    assert "files is" in told and "disk_bytes is" in told


@pytest.mark.parametrize("name", Needs.__slots__)
def test_whatever_a_later_month_needs_more_of_is_found(name: str) -> None:
    first = dict.fromkeys(Needs.__slots__, 100)
    assert grown([Needs(**first)] * 12) == []
    (told,) = grown([*[Needs(**first)] * 11, Needs(**{**first, name: 151})])
    assert told.startswith(f"month 12: {name} is 151")


@pytest.mark.usefixtures("small")
def test_sums_that_do_not_add_up_would_be_found(tmp_path: Path) -> None:
    job = months.AgeingJob(tmp_path, Trial(1, SEED, tmp_path).rng("months"))
    job.live()
    assert job.judged()[0] == []
    job._offered += 1
    assert any("the sums are" in text for text in job.judged()[0])
