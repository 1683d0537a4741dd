"""Targets for a percentile: the arithmetic, and the loop closed under Poisson and self-similar load."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import fmean, median

import numpy as np
import pytest

from floodway.control.base import Observation
from floodway.control.loop import Loop
from floodway.control.percentile import Percentile, Spread, quantile_of_sum
from floodway.control.registry import make_controller
from floodway.simulation.arrivals import poisson, self_similar
from tests.control.micro_batches import Plant, Ran, after, run

BIN_SECONDS = 0.1
SECONDS = 400.0
TARGET = 3.0


def law(quantile: float = 0.95, target: float = TARGET, controller: str = "batch") -> Percentile:
    return Percentile(make_controller(controller, target_seconds=target), quantile, target)


def load(kind: str, capacity: float, overload: float, seed: int) -> Callable[[float], float]:
    """Tuples per second over time, from arrivals of blocks of tuples; little while the plant warms up."""
    make = self_similar if kind == "self-similar" else poisson
    times = make(200.0, SECONDS, np.random.default_rng(seed))
    counts = np.bincount((times / BIN_SECONDS).astype(int), minlength=round(SECONDS / BIN_SECONDS) + 1)
    rates = overload * capacity * counts / counts.mean()
    rates[: round(60.0 / BIN_SECONDS)] = 0.4 * capacity
    return lambda time: float(rates[min(int(time / BIN_SECONDS), len(rates) - 1)])


def measured_quantile(batches: list[Ran], quantile: float) -> float:
    """Over tuples, which lie evenly between the shortest and the longest latency of their batch."""
    low, high = 0.0, max(b.highest for b in batches)
    kept = sum(b.kept for b in batches)
    while high - low > 1e-3:
        middle = (low + high) / 2
        below = sum(b.kept * min(1.0, max(0.0, (middle - b.lowest) / (b.highest - b.lowest))) for b in batches)
        low, high = (middle, high) if below < quantile * kept else (low, middle)
    return low


def test_the_quantile_of_noise_and_width_together_agrees_with_samples() -> None:
    rng = np.random.default_rng(7)
    for deviation, width, quantile in [(0.1, 0.7, 0.95), (0.4, 0.7, 0.99), (0.2, 0.2, 0.5), (0.05, 1.5, 0.9)]:
        drawn = deviation * rng.standard_normal(400_000) + width * (rng.random(400_000) - 0.5)
        expected = float(np.quantile(drawn, quantile))
        assert quantile_of_sum(quantile, deviation, width) == pytest.approx(expected, abs=0.01)


def test_a_steady_job_without_noise_has_its_p95_at_one_point_three_times_its_mean() -> None:
    spread = Spread()
    for _ in range(50):
        spread = spread.after(3.0, 2.0)
    assert spread.ratio(0.95) == pytest.approx(1.3, abs=0.01)
    noisy = Spread()
    for number in range(200):
        noisy = noisy.after(3.0 * (1.3 if number % 2 else 0.7), 2.0)
    assert noisy.ratio(0.95) > spread.ratio(0.95) + 0.15


@pytest.mark.parametrize("kind", ["poisson", "self-similar"])
@pytest.mark.parametrize("overload", [1.3, 2.0, 4.0])
@pytest.mark.parametrize("outliers", [0.0, 0.02])
def test_p95_is_within_ten_percent_of_its_target(kind: str, overload: float, outliers: float) -> None:
    plant = replace(Plant(), outliers=outliers)
    capacity = plant.capacity(TARGET / 1.3)
    found = []
    for seed in range(5):
        rate = load(kind, capacity, overload, seed)
        ran = run(plant, rate, SECONDS, Random(seed), controller=law(), target=TARGET)
        found.append(measured_quantile(after(ran, 130.0), 0.95) / TARGET)
    assert median(found) == pytest.approx(1.0, abs=0.1)
    assert max(found) < 1.2


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_other_percentiles_too(quantile: float) -> None:
    plant = replace(Plant(), outliers=0.0)
    rate = load("poisson", plant.capacity(TARGET / 1.3), 2.0, 1)
    ran = run(plant, rate, SECONDS, Random(1), controller=law(quantile), target=TARGET)
    assert measured_quantile(after(ran, 130.0), quantile) == pytest.approx(TARGET, rel=0.1)


def test_a_higher_percentile_asks_for_a_lower_mean() -> None:
    plant = replace(Plant(), outliers=0.0)
    rate = 1.5 * plant.capacity(TARGET)
    means = []
    for quantile in (0.5, 0.95, 0.99):
        ran = run(plant, lambda _: rate, 200.0, Random(2), controller=law(quantile), target=TARGET)
        means.append(fmean(b.latency for b in after(ran, 100.0)))
    assert means == sorted(means, reverse=True)


def test_it_says_how_far_the_percentile_lies_above_the_mean() -> None:
    loop = Loop(law())
    assert "p95 is 1.30 times the mean" in loop.step(Observation(0.0, 100.0)).reason


def test_a_restart_resumes_the_spread_and_the_law_inside() -> None:
    loop = Loop(law())
    for number in range(20):
        seconds = 1.0 + 0.2 * (number % 3)
        seen = Observation(
            float(number), 900.0, latency_seconds=1.5 * seconds, latency_width_seconds=seconds, kept=500.0,
            offered=900.0, batch_seconds=seconds,
        )  # fmt: skip
        loop.step(seen)
    again = Loop(law(), json.loads(json.dumps(loop.snapshot())))
    assert again.step(seen) == loop.step(seen)
    assert again.forecast() == loop.forecast()


def test_round_a_law_without_forecasts_they_are_there_all_the_same() -> None:
    loop = Loop(law(controller="aurora"))
    for number in range(5):
        work = 100.0 + 50.0 * number
        seen = Observation(
            float(number), 100.0, latency_seconds=1.0, kept=work, offered=work, batch_seconds=0.3 + work / 1000,
            target_seconds=TARGET,
        )  # fmt: skip
        loop.step(seen)
    assert loop.forecast() is not None
