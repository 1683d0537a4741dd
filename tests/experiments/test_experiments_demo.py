"""The demo's parts, and its three runs on real Spark at a small scale: truth, estimates, ledger, table; no speed."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from floodway.experiments.demo import calibration, jobs, story
from floodway.experiments.demo.comparison import rows, save, show
from floodway.experiments.demo.result import DemoBatch, DemoRun, optimum
from floodway.experiments.demo.shop import CATEGORIES, Shop, ShopTotals
from floodway.experiments.demo.shop_feed import TICK, feed, ticks
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch(ended: float, latency: float, orders: int, clicks: int) -> DemoBatch:
    """A batch whose events arrived within a second."""
    return DemoBatch(ended, latency, latency - 0.5, latency + 0.5, orders, clicks)


def made(
    batches: list[DemoBatch], estimated: ShopTotals | None = None, ledger: dict[str, int] | None = None
) -> DemoRun:
    """A run of 10 s with a target of 2 s, offered 99 orders and 890 clicks, and 1 and 10 before it."""
    load = ShopTotals({"books": 890.0}, {"books": 99.0}, {"books": 4950.0})
    warmed = ShopTotals({"books": 10.0}, {"books": 1.0}, {"books": 50.0})
    return DemoRun("made", 10.0, 2.0, load, batches, warmed, estimated, ledger or {})


def test_the_shop_knows_the_truth_about_what_it_made() -> None:
    shop = Shop(seed=3)
    made = [shop.make(500, start_us=0, end_us=1_000_000), shop.make(500, start_us=1_000_000, end_us=2_000_000)]
    events = [row for table in made for row in table.to_pylist()]
    assert [row["offset"] for row in events] == list(range(1000))
    found = ShopTotals({}, {}, {})
    for row in events:
        body = json.loads(row["value"])
        name = CATEGORIES[body["page"] % len(CATEGORIES)]
        counts = found.orders if row["key"] == "order" else found.clicks
        counts[name] = counts.get(name, 0.0) + 1.0
        if row["key"] == "order":
            amount = sum(item["qty"] * item["price"] for item in body["items"])
            found.revenue[name] = found.revenue.get(name, 0.0) + amount
    truth = shop.totals()
    assert (truth.clicks, truth.orders) == (found.clicks, found.orders)
    assert truth.revenue == pytest.approx(found.revenue)
    assert truth.of("order") + truth.of("click") == 1000


def test_the_feeder_writes_a_file_per_tick_on_one_schedule(tmp_path: Path) -> None:
    now = [1_000.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    feed(tmp_path, Shop(seed=3), 1000.0, 1.0, clock=lambda: now[0], sleep=sleep)
    files = sorted(tmp_path.glob("*.parquet"))
    assert [path.name for path in files] == [f"{index:06}.parquet" for index in range(4)]
    assert now[0] == pytest.approx(1_001.0)
    first = pq.read_table(files[1])["timestamp"][0].as_py().timestamp()
    assert first == pytest.approx(1_000.0 + TICK)
    assert sum(pq.read_table(path).num_rows for path in files) == sum(ticks(1000.0, 1.0))


def test_the_load_rises_to_its_rate_and_stays() -> None:
    found = list(ticks(1000.0, 12.0))
    assert 0.25 * 1000 * TICK < found[0] < 0.5 * 1000 * TICK
    assert all(later >= earlier - 1 for earlier, later in pairwise(found))
    assert found[8:] == [250] * 40


def test_a_feeder_whose_parent_is_gone_stops(tmp_path: Path) -> None:
    feed(tmp_path, Shop(seed=3), 1000.0, 1.0, wanted=lambda: False)
    assert list(tmp_path.iterdir()) == []


def test_only_batches_that_end_early_enough_count_and_the_start_is_left_out_of_the_latency() -> None:
    run = made([batch(2.0, 9.0, 10, 10), batch(6.0, 2.0, 10, 20), batch(12.0, 3.0, 0, 30), batch(12.1, 9.0, 50, 50)])
    assert run.latency == pytest.approx((2.0 * 30 + 3.0 * 30) / 60)
    assert run.last_latency == 3.0
    assert (run.processed("order"), run.processed("click")) == (20, 60)
    assert run.share("order") == pytest.approx(20 / 99)


def test_what_is_late_is_processed_but_not_in_time() -> None:
    """The target is 2 s, so a result is in time within 4 s: all of the first batch, half of the second."""
    run = made([batch(6.0, 3.5, 10, 20), batch(8.0, 4.0, 10, 30), batch(11.0, 4.5, 50, 50)])
    assert [run.in_time("order"), run.in_time("click")] == pytest.approx([15.0, 35.0])
    assert run.value_in_time == pytest.approx(185.0)
    assert run.value == 800.0
    assert run.share_in_time("order") == pytest.approx(15 / 99)
    late = made([DemoBatch(9.0, 5.0, 5.0, 5.0, 10, 10)])
    assert late.value_in_time == 0.0


def test_no_run_is_worth_more_than_the_optimum_of_the_same_seconds() -> None:
    """The fastest run processed 500 events: 99 orders and 401 clicks could have been among them."""
    fair, choosy = made([batch(6.0, 2.0, 50, 450)]), made([batch(6.0, 2.0, 99, 301)])
    assert (fair.value, fair.best_value) == (950.0, 1391.0)
    assert choosy.value == choosy.best_value == 1291.0
    assert optimum([fair, choosy]) == 1391.0
    cells = dict(rows([fair, choosy]))
    assert cells["of the optimum"] == ["68%", "93%"]
    assert [run.to_dict(optimum([fair, choosy]))["score"] for run in (fair, choosy)] == [950.0 / 12, 1291.0 / 12]


def test_errors_of_estimates_are_relative_to_the_truth() -> None:
    run = made([], ShopTotals({"books": 891.0}, {"books": 100.0}, {"books": 5050.0}))
    assert run.errors == pytest.approx([-0.01, 0.0, 0.01])
    assert run.estimate("clicks") == pytest.approx((891.0, -0.01))
    assert made([]).errors == []


def test_a_ledger_that_misses_events_is_said() -> None:
    whole = made([], ledger={"offered": 1000, "kept": 400, "dropped": 600})
    short = made([], ledger={"offered": 990, "kept": 400, "dropped": 590})
    table = dict(rows([whole, short, made([])]))
    assert table["ledger"] == ["every event accounted for", "DIFFERS from what was written", "–"]
    assert table["mean latency"] == ["nothing came out"] * 3


@pytest.mark.spark
def test_the_three_runs_at_a_small_scale(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a sample of half the events has a known deviation; Floodway drops at most all but the floor, which
    bounds the deviation of its estimates.
    """
    monkeypatch.setattr(story, "WARM_EVENTS", 500)
    monkeypatch.setattr(story, "WARM_SECONDS", 0.0)
    monkeypatch.setattr(story, "LEDGER_SECONDS", PATIENCE_SECONDS)
    seen: list[tuple[str, float, str]] = []
    runs = [
        story.run(
            spark,
            tmp_path / str(place),
            name,
            3000.0,
            seconds=2.0,
            target=0.5,
            state=tmp_path / "state",
            progress=lambda title, share, remark: seen.append((title, share, remark)),
        )
        for place, name in enumerate(jobs.RUNS)
    ]
    without, protected, sample = runs
    warmed = jobs.STEADY_BATCHES * story.WARM_EVENTS + jobs.SMALL_BATCHES * jobs.SMALL_EVENTS
    made = warmed + sum(ticks(3000.0, 2.0))
    assert {run.truth.of("click") + run.truth.of("order") for run in runs} == {made}
    assert without.estimated is None and without.ledger == {}
    for run, weight in ((sample, 2.0), (protected, 1.0 / jobs.FLOOR)):
        for part in ("clicks", "orders"):
            found, truth = run.estimate(part), sum(getattr(run.truth, part).values())
            assert found is not None
            assert found[0] == pytest.approx(truth, abs=5.0 * (truth * (weight - 1.0)) ** 0.5), (run.name, part)
    assert protected.ledger["offered"] == made == protected.ledger["kept"] + protected.ledger["dropped"]
    for run in runs:
        assert run.value_in_time <= run.value <= run.best_value <= optimum(runs)
        assert all(one.least <= one.latency <= one.most for one in run.batches)
    assert {title for title, _, _ in seen} == set(jobs.RUNS)
    page = io.StringIO()
    show(runs, 0.5, Console(file=page, width=160))
    for words in ("without Floodway", "mean latency", "orders in time", "clicks: truth", "every event accounted for"):
        assert words in page.getvalue()
    for some in (runs[:1], runs):
        drawn = save(tmp_path / "out" / "demo.svg", some, 0.5, 3000.0).read_text(encoding="utf-8")
        assert drawn.startswith("<?xml")


@pytest.mark.spark
def test_calibration_finds_a_rate_and_what_a_batch_takes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured, then checked with Floodway in the job, both beside a feeder."""
    monkeypatch.setattr(calibration, "LARGE_EVENTS", 2000)
    seen: list[tuple[str, float]] = []

    def progress(title: str, share: float, _: str) -> None:
        seen.append((title, share))

    machine = calibration.calibrate(spark, tmp_path / "calibration", progress, seconds=0.0)
    assert machine.capacity > 0.0 and machine.batch_seconds > 0.0
    known = calibration.Calibrated(machine.capacity, 0.0)
    now = calibration.checked(spark, tmp_path / "check", known, 2.0 * known.capacity, progress, seconds=0.0)
    assert now.capacity == known.capacity
    assert now.batch_seconds > 0.0
    for folder in ("calibration", "check"):
        assert list((tmp_path / folder / "beside").glob("*.parquet")), "measured beside a feeder"
    for title in {title for title, _ in seen}:
        assert [share for one, share in seen if one == title][-1] == 1.0
    assert not spark.streams.active


@pytest.mark.parametrize(
    ("batch_seconds", "target", "seconds"), [(0.2, 3.0, 30.0), (0.5, 4.0, 30.0), (0.7, 6.0, 36.0), (1.5, 12.0, 72.0)]
)
def test_the_target_leaves_most_of_a_batch_for_events(batch_seconds: float, target: float, seconds: float) -> None:
    machine = calibration.Calibrated(capacity=50_000.0, batch_seconds=batch_seconds)
    assert machine.target == target
    assert calibration.load_seconds(target) == seconds
    assert machine.batch_seconds <= machine.target / 1.5 / 4.0


def test_a_machine_that_processes_nearly_all_is_faster_than_measured() -> None:
    """989 events in 10 s and the target of 2 s after them, at a capacity measured as 45 events per second."""
    machine = calibration.Calibrated(capacity=45.0, batch_seconds=0.2)
    assert calibration.faster(machine, made([batch(6.0, 2.0, 99, 600)])) is None
    found = [calibration.faster(machine, made([batch(6.0, 2.0, 99, clicks)])) for clicks in (801, 890)]
    assert [one and one.capacity for one in found] == [75.0, 90.0]


def test_batches_are_offered_until_they_are_no_faster() -> None:
    """The rates of a process that compiles: warm after three batches that are no faster than the fastest before."""
    rates, said = [10.0, 15.0, 20.0, 22.0, 24.0, 24.5, 24.0, 24.9, 30.0], []
    found = iter(rates)
    assert jobs.rates_until_steady(lambda: next(found), 1e9, lambda *one: said.append(one)) == rates[:8]
    assert said == list(enumerate(rates[:8], start=1))
    found = iter(rates)
    assert jobs.rates_until_steady(lambda: next(found), 0.0, lambda *_: None) == rates[: jobs.STEADY_BATCHES]
