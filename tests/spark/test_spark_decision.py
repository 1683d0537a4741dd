"""The decision and its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.job.decision import (
    DecisionError,
    DecisionFile,
    JobDecision,
    StreamDecision,
    read_decision,
    write_decision,
)
from floodway.units import PPM

DECISION = JobDecision("r7", "enforce", 17, {"s": StreamDecision(250_000, 9)}, {"a->b": 5}, "range", 12)


def test_written_is_read_back_and_nothing_else_stays(tmp_path: Path) -> None:
    write_decision(tmp_path / "deep" / "d.json", DECISION)
    assert read_decision(tmp_path / "deep" / "d.json") == DECISION
    assert [f.name for f in (tmp_path / "deep").iterdir()] == ["d.json"]


def test_without_a_file_everything_is_kept_and_observed(tmp_path: Path) -> None:
    decision = read_decision(tmp_path / "none.json")
    assert (decision.mode, decision.keep_ppm("s", waiting=10**9), decision.arc_ppm("a->b")) == (
        "observe",
        PPM,
        PPM,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"plan": "x", "mo',
        "[]",
        '{"mode": "shed"}',
        '{"streams": {"s": {"keep_ppm": 1000001}}}',
        '{"streams": {"s": {"keep_ppm": -1}}}',
        '{"streams": {"s": {"budget": -1}}}',
        '{"arcs": {"a->b": 0.5}}',
        '{"drop": "random"}',
    ],
)
def test_bad_file_is_refused_counted_and_the_last_good_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "d.json"
    write_decision(path, DECISION)
    file = DecisionFile(path)
    assert file.read() == DECISION
    path.write_text(text)
    with pytest.raises(DecisionError):
        read_decision(path)
    assert (file.read(), file.read(), file.refused) == (DECISION, DECISION, 2)
    assert file.last_error
    write_decision(path, JobDecision(plan="r8"))
    assert file.read().plan == "r8"


@pytest.mark.parametrize(("waiting", "keep"), [(0, PPM), (9, PPM), (10, 900_000), (900, 10_000), (9 * PPM + 1, 0)])
def test_budget_takes_precedence_over_keep(waiting: int, keep: int) -> None:
    assert DECISION.keep_ppm("s", waiting=waiting) == keep
    assert DECISION.keep_ppm("other", waiting=waiting) == PPM
