"""Five days, one by one, with files of a fraction of the size, so that they rotate as often as in a year."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.experiments.chaos import months, months_partners
from floodway.experiments.chaos.months_needs import Needs, grown
from floodway.experiments.chaos.months_network import AgeingNetwork
from floodway.experiments.chaos.months_partners import AgeingPartners
from floodway.experiments.chaos.result import Trial
from floodway.job.store import line_log
from floodway.spark.log import LogWriter

SEED = 3
BATCHES_A_DAY = 480


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", 1 << 13)
    monkeypatch.setattr(months, "BATCHES_A_MONTH", BATCHES_A_DAY)
    monkeypatch.setattr(months, "AT_ONCE", 80)
    monkeypatch.setattr(months_partners, "PERIODS", 180)


@pytest.mark.usefixtures("small")
def test_five_days_leave_files_starts_and_audits_as_they_were(tmp_path: Path) -> None:
    result = months.faults(Trial(5, SEED, tmp_path))
    assert (result.tried, result.differences) == (5, [])
    assert result.detail["batches"] == 5 * BATCHES_A_DAY


@pytest.mark.slow
def test_a_year_leaves_files_starts_and_audits_as_they_were(tmp_path: Path) -> None:
    result = months.faults(Trial(12, SEED, tmp_path))
    print(f"12 points, seed {SEED}: {result.detail}")
    assert (result.tried, result.differences) == (12, [])
    assert result.detail["batches"] == 12 * months.BATCHES_A_MONTH


@pytest.mark.usefixtures("small")
def test_a_ledger_that_is_never_rotated_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(months, "LEDGER_SEGMENTS", 1_000_000)
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", 1 << 13)
    monkeypatch.setattr(months, "BATCHES_A_MONTH", 200)
    monkeypatch.setattr(months, "AT_ONCE", 25)
    made, needs = months.AgeingJob(tmp_path, Trial(1, SEED, tmp_path).rng("months")), list[Needs]()
    for _ in range(8):
        made.live()
        told, needed = made.judged()
        assert told == []
        needs.append(needed)
    found = " ".join(grown(needs))
    assert "files is" in found and "disk_bytes is" in found


def partners(folder: Path, kept_days: float) -> AgeingPartners:
    rng = Trial(1, SEED, folder).rng("others")
    return AgeingPartners(folder, rng, month_seconds=28_800.0, kept_days=kept_days)


@pytest.mark.usefixtures("small")
def test_a_journal_that_settles_nothing_would_be_found(tmp_path: Path) -> None:
    made, needs = partners(tmp_path, 1e9), list[Needs]()
    for _ in range(5):
        made.live()
        told, needed = made.judged()
        assert told == []
        needs.append(needed)
    found = " ".join(grown(needs))
    assert "audit_bytes is" in found and "files is" in found


@pytest.mark.usefixtures("small")
def test_books_that_do_not_add_up_would_be_found(tmp_path: Path) -> None:
    made = partners(tmp_path, 7)
    made.live()
    made.balances["A"] += 1.0
    assert any("A has" in text for text in made.judged()[0])


@pytest.mark.usefixtures("small")
def test_a_log_that_takes_a_tag_twice_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogWriter, "_has", lambda writer, state, tag: False)
    made = AgeingNetwork(tmp_path, Trial(1, SEED, tmp_path).rng("others"), batches_a_month=480, at_once=80)
    made.live()
    assert any("the log ends at" in text for text in made.judged()[0])


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
