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

from floodway.experiments.demo import story
from floodway.experiments.demo.result import DemoBatch, DemoRun
from floodway.experiments.demo.shop import CATEGORIES, Shop, ShopTotals
from floodway.experiments.demo.shop_feed import TICK, feed, ticks
from floodway.experiments.demo.table import rows, save, show
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def test_only_batches_that_end_in_time_count_and_the_start_is_left_out_of_the_latency() -> None:
    run = made(
        [
            DemoBatch(2.0, 9.0, 10, 10),
            DemoBatch(6.0, 2.0, 10, 20),
            DemoBatch(12.0, 3.0, 0, 30),
            DemoBatch(12.1, 9.0, 50, 50),
        ]
    )
    assert run.latency == pytest.approx((2.0 * 30 + 3.0 * 30) / 60)
    assert run.last_latency == 3.0
    assert (run.processed("order"), run.processed("click")) == (20, 60)
    assert run.share("order") == pytest.approx(20 / 99)


def test_the_value_is_at_most_that_of_the_best_choice() -> None:
    fair, choosy = made([DemoBatch(6.0, 2.0, 50, 450)]), made([DemoBatch(6.0, 2.0, 99, 401)])
    assert (fair.value, fair.best_value) == (950.0, 1391.0)
    assert choosy.value == choosy.best_value == 1391.0


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
    monkeypatch.setattr(story, "WARM_BATCHES", 2)
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
        for place, name in enumerate(story.RUNS)
    ]
    without, sample, protected = runs
    made = story.WARM_BATCHES * story.WARM_EVENTS + sum(ticks(3000.0, 2.0))
    assert {run.truth.of("click") + run.truth.of("order") for run in runs} == {made}
    assert without.estimated is None and without.ledger == {}
    for run, weight in ((sample, 2.0), (protected, 1.0 / story.FLOOR)):
        for part in ("clicks", "orders"):
            found, truth = run.estimate(part), sum(getattr(run.truth, part).values())
            assert found is not None
            assert found[0] == pytest.approx(truth, abs=5.0 * (truth * (weight - 1.0)) ** 0.5), (run.name, part)
    assert protected.ledger["offered"] == made == protected.ledger["kept"] + protected.ledger["dropped"]
    for run in runs:
        assert run.value <= run.best_value
    assert {title for title, _, _ in seen} == set(story.RUNS)
    page = io.StringIO()
    show(runs, 0.5, Console(file=page, width=160))
    for words in ("without Floodway", "mean latency", "orders processed", "clicks: truth", "every event accounted for"):
        assert words in page.getvalue()
    assert save(tmp_path / "demo.svg", runs, 0.5, 3000.0).read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.spark
def test_calibration_finds_a_rate_and_what_a_batch_takes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "LARGE_EVENTS", 2000)
    seen: list[float] = []
    machine = story.calibrate(spark, tmp_path / "calibration", lambda _, share, __: seen.append(share), seconds=0.0)
    assert machine.capacity > 0.0 and machine.batch_seconds > 0.0
    assert seen == sorted(seen) and seen[-1] == 1.0
    assert not spark.streams.active


@pytest.mark.parametrize(("batch_seconds", "target", "seconds"), [(0.2, 3.0, 36.0), (0.4, 4.0, 36.0), (0.7, 7.0, 56.0)])
def test_the_target_leaves_most_of_a_batch_for_events(batch_seconds: float, target: float, seconds: float) -> None:
    machine = story.Calibrated(capacity=50_000.0, batch_seconds=batch_seconds)
    assert machine.target == target
    assert story.load_seconds(target) == seconds
    assert machine.batch_seconds <= machine.target / 1.5 / 5.0
