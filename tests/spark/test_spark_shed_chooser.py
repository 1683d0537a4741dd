"""What a decision skips, and what a controller sees of a backlog that is skipped. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from floodway.control.loop import BatchBudget
from floodway.control.registry import make_controller
from floodway.job.decision import Mode
from floodway.job.store.store import LocalStore
from floodway.planning.lag import Waiting
from floodway.spark.shed.chooser import Chooser, ShedSettings, entry_budget, first_follow, second_follow
from floodway.spark.shed.control_table import Entry, Table
from floodway.spark.shed.report import BatchReport
from floodway.units import PPM

SETTINGS = ShedSettings("job", 2.0, make_controller("batch", target_seconds=2.0), "enforce", salt=1, skip_when_lag=300)
REPORT = BatchReport(
    "q", "r", 4, 0, 1.0, offered=100, kept=100, seq=0, backlog=1500,
    waiting=(Waiting("clicks", 0, 100, 1100), Waiting("clicks", 1, 0, 500)),
)  # fmt: skip


def entry(mode: Mode) -> Entry:
    return Entry(0, 0, mode=mode)


def test_what_is_skipped_is_no_backlog_to_a_controller() -> None:
    chooser = Chooser(SETTINGS)
    assert chooser.take(REPORT, entry("enforce")).backlog == 300
    decided = chooser.completed(entry("enforce"))
    assert decided.skip == {"clicks": (900, 400)}
    assert Table.decode(Table(decided).encode()) == Table(decided)
    # While the batches go through what is skipped, newer tuples arrive.
    later = replace(REPORT, waiting=(Waiting("clicks", 0, 600, 1300), Waiting("clicks", 1, 100, 600)))
    assert chooser.take(later, entry("enforce")).backlog == 300
    # When they have passed it, nothing is skipped any more.
    passed = replace(REPORT, backlog=10, waiting=(Waiting("clicks", 0, 1290, 1300), Waiting("clicks", 1, 600, 600)))
    assert chooser.take(passed, entry("enforce")).backlog == 10
    assert chooser.completed(decided).skip is None


def test_in_observe_the_backlog_is_what_it_is() -> None:
    chooser = Chooser(SETTINGS)
    assert chooser.take(REPORT, entry("observe")).backlog == 1500
    assert chooser.completed(entry("observe")).skip == {"clicks": (900, 400)}


def test_without_the_option_nothing_is_skipped() -> None:
    chooser = Chooser(replace(SETTINGS, skip_when_lag=None))
    assert chooser.take(REPORT, entry("enforce")) is REPORT
    assert chooser.completed(entry("enforce")).skip is None


def test_after_downtime_the_first_batch_bounds_the_third() -> None:
    """2000 tuples were younger than ten seconds: 200 per second. At a target of 3 s batches take two seconds."""
    settings = replace(SETTINGS, target_seconds=3.0, skip_when_lag=None, max_age_us=10_000_000)
    down = BatchReport("q", "r", 0, 0, 15.0, offered=90_000, kept=2000, seq=0, stale=88_000, skipped=88_000)
    found = first_follow(down, settings, entry("enforce"))
    assert found == (400.0, 200.0, down.ended_us, 1.0)
    bounded, base_us = entry("enforce").following(found), found.base_us
    assert [bounded.keep_at(base_us + seconds * 1_000_000) for seconds in (1, 4, 60)] == [1_000_000, 500_000, 250_000]
    # What the last run decided knows more.
    before = bounded.following(entry_budget(BatchBudget(90.0, surge=3.0, delay_seconds=1.5), 200.0, 0))
    assert first_follow(down, settings, before) == (90.0, 200.0, down.ended_us, 1.0)
    # The batch under way takes long for another reason than a rising load: the process is new.
    assert [before.keep_at(seconds * 1_000_000) for seconds in (1, 2, 60)] == [1_000_000, 300_000, 250_000]
    # How old the rest is nobody knows; nothing was skipped; an autoscaler has its time; nothing is dropped.
    assert first_follow(replace(down, backlog=100), settings, entry("enforce")) is None
    assert first_follow(replace(down, skipped=0), settings, entry("observe")) is None
    assert first_follow(down, replace(settings, shed_after_seconds=90.0), entry("enforce")) is None
    assert first_follow(down, replace(settings, max_age_us=None), entry("enforce")) is None


def test_the_third_batch_follows_the_length_of_the_second(tmp_path: Path) -> None:
    """The first took 3 s. At a target of 3 s one of 2 s is right: after 6 s four times as much as fits has come."""
    settings = replace(SETTINGS, target_seconds=3.0, skip_when_lag=None)
    cold, journal = replace(REPORT, seconds=3.0, backlog=None, waiting=()), LocalStore(tmp_path)
    assert second_follow(cold, journal, settings) is None, "the second one has not begun"
    journal.write("offsets/5", b'v1\n{"batchTimestampMs": 3010}\n{}')
    found = second_follow(cold, journal, settings)
    assert found is not None
    bounded = entry("enforce").following(found)
    fits = 6.0**0.5
    assert [bounded.keep_at(round((3.0 + seconds) * 1e6)) for seconds in (0.1, fits, 2 * fits, 9 * fits)] == [
        PPM, pytest.approx(PPM, rel=1e-4), pytest.approx(PPM / 4, rel=1e-4), PPM // 4,
    ]  # fmt: skip
    # A short first batch says little: nothing is dropped before the second one is longer than it may be.
    short = second_follow(replace(cold, seconds=0.5), LocalStore(tmp_path / "short"), settings)
    assert short is None
    LocalStore(tmp_path / "short").write("offsets/5", b'v1\n{"batchTimestampMs": 510}\n{}')
    short = second_follow(replace(cold, seconds=0.5), LocalStore(tmp_path / "short"), settings)
    assert short is not None and entry("enforce").following(short).keep_at(2_500_000) == pytest.approx(PPM, rel=1e-4)
    for other in (
        replace(settings, shed_after_seconds=90.0), replace(settings, lossless=True),
    ):  # fmt: skip
        assert second_follow(cold, journal, other) is None
    assert second_follow(replace(cold, backlog=100), journal, settings) is None
    assert second_follow(replace(cold, offered=0), journal, settings) is None
    assert second_follow(cold, None, settings) is None
