"""`floodway demo` from start to end, as a new user runs it, only shorter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from floodway.experiments.demo.shop import CATEGORIES, Shop
from floodway.experiments.demo.story import Batch, Run


def test_the_truth_is_what_the_events_say() -> None:
    shop = Shop(seed=3)
    batch = shop.make(5000, start_us=0, end_us=0)
    truth = shop.truth([batch.slice(0, 2000), batch.slice(2000)])
    clicks = orders = revenue = 0.0
    for row in batch.to_pylist():
        event = json.loads(row["value"])
        if row["kind"] == "order":
            orders += 1
            revenue += sum(item["qty"] * item["price"] for item in event["items"])
        else:
            clicks += 1
    assert (sum(truth.clicks.values()), sum(truth.orders.values())) == (clicks, orders)
    assert sum(truth.revenue.values()) == pytest.approx(revenue)
    assert set(truth.clicks) == set(CATEGORIES)


def test_a_score_is_never_above_its_optimum() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        offered = {"order": int(rng.integers(1, 500)), "click": int(rng.integers(1, 5000))}
        batches = [
            Batch(float(ended), 1.0, int(rng.integers(0, offered["order"] // 4 + 1)), int(rng.integers(0, 500)))
            for ended in range(4)
        ]
        earned, optimum = Run("with", 4.0, batches, offered).score
        assert earned <= optimum


@pytest.mark.slow  # a Spark of its own, a calibration and three runs
@pytest.mark.spark
def test_the_demo_runs_and_ends_in_a_picture(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "floodway.cli.main", "demo", "--seconds", "12", "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    body = json.loads(done.stdout)
    assert body["rate"] == pytest.approx(2 * body["capacity"])
    for name in ("without", "sample", "with"):
        assert body[name]["score"] <= body[name]["optimum"] and body[name]["batches"] > 0
    assert body["without"]["error"] is None and body["with"]["error"] is not None
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "page: http://127.0.0.1:" in done.stderr
