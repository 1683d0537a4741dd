"""The whole past of a job in some hundred points: nothing left out of the sums, pauses seen, latency over all of it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from floodway.dashboard.board import Board
from floodway.dashboard.gauge import Gauge
from floodway.dashboard.job_sources import Reading, StateSource
from floodway.dashboard.past import MOST_POINTS, whole
from tests.dashboard.made_state import CLICKS, ORDERS, MadeJob, demo_network


def reading(job: MadeJob) -> Reading:
    (found,) = StateSource([job.root]).read()
    return found


def test_a_day_with_a_pause_is_whole_and_adds_up_exactly(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "demo", 1_700_000_000)
    job.start()
    job.long(1200, every=20, latency=1.8)
    job.now += 40_000
    job.long(1000, every=20, latency=3.6)
    job.run(30, latency=3.6)
    read = reading(job)
    assert read.figures is not None
    samples, total = whole(read, Gauge(demo_network())), read.figures.fold.total
    assert MOST_POINTS * 0.9 <= len(samples) <= MOST_POINTS + 10
    assert samples[0].time - 1_700_000_000 < 300 and samples[-1].time == job.now
    came: Counter[str] = Counter()
    for one in samples:
        came.update(offered=round(one.offered * one.seconds), kept=round(one.kept * one.seconds))
        came.update({reason: round(rate * one.seconds) for reason, rate in one.dropped.items()})
    assert came == {
        "offered": total.offered["clicks"] + total.offered["orders"],
        "kept": total.kept["clicks"] + total.kept["orders"],
        "shedder": total.dropped["clicks", "shedder"],
        "shedder, inside": total.dropped["enrich->billing", "shedder"],
    }
    assert sum(one.seconds for one in samples) == read.figures.fold.timeline.running.count()
    rates = [one.offered for one in samples[1:] if one.offered and one.seconds > 60]
    assert rates == pytest.approx([CLICKS + ORDERS] * len(rates), rel=0.001)
    gaps = [(earlier, later) for earlier, later in pairwise(samples) if later.time - earlier.time > 30_000]
    assert [(earlier.offered, later.offered) for earlier, later in gaps] == [(0.0, 0.0)], "the pause, seen as one"
    assert [one.latency for one in samples if one.seconds and one.time < gaps[0][0].time][5] == pytest.approx(1.8)
    assert samples[-1].latency == pytest.approx(3.6)
    assert samples[-5].score == pytest.approx(1852.0, rel=0.001)


def test_a_short_run_has_a_point_for_some_seconds_only_and_loses_nothing_between(made: MadeJob) -> None:
    samples = whole(reading(made), None, most=12)
    assert 10 <= len(samples) <= 12
    assert {round(sample.offered) for sample in samples} == {CLICKS + ORDERS}


def test_the_board_tells_the_whole_past_of_a_job_by_its_name(made: MadeJob) -> None:
    board = Board(StateSource([made.root]))
    told = board.whole("demo")
    assert told is not None and len(told) == 31
    assert board.whole("other") is None
    assert board.snapshot()["jobs"][0]["began"] == made.now - 31


@pytest.mark.parametrize("late", [1, 9, 14])
def test_batches_that_take_long_leave_no_holes_in_the_rates(tmp_path: Path, late: int) -> None:
    job = MadeJob(tmp_path / "demo", 1_700_000_000)
    job.start()
    job.long(40, every=20)
    (shown,) = Board(StateSource([job.root]), clock=lambda: float(job.now + late)).snapshot()["jobs"]
    rates = [one["offered"] for one in shown["history"][20:]]
    assert len(rates) > 300 and rates == pytest.approx([CLICKS + ORDERS] * len(rates))
    assert shown["score"] == pytest.approx(1852.0), "measured, not planned"
