"""The controller closed on a plant like Spark on Kafka: steady overload, steps in load, a compiler that warms up."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import fmean, median, pstdev

import pytest

from floodway.control.registry import make_controller
from tests.control.micro_batches import Plant, Ran, after, kept_rate, mean_latency, run

TARGETS = (2.0, 3.0, 5.0)
OVERLOADS = (1.3, 2.0, 4.0)
WARM_SECONDS = 100.0


def protected(plant: Plant, target: float, load: float, seed: int, seconds: float, before: float = 0.5) -> list[Ran]:
    """A load of `before` times the capacity while the plant warms up, then `load` times it."""
    capacity = plant.capacity(target)

    def rate(time: float) -> float:
        return (before if time >= WARM_SECONDS / 2 else 0.5) * capacity if time < WARM_SECONDS else load * capacity

    controller = make_controller("batch", target_seconds=target)
    return run(plant, rate, seconds, Random(seed), controller=controller, target=target)


def filtered(plant: Plant, rate: float, target: float, seed: int, seconds: float) -> list[Ran]:
    """The warm plant with a fixed filter, tuned so that the mean latency is the target."""
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2.0
        ran = run(plant, lambda _: rate, seconds, Random(seed), fixed_keep=middle)
        low, high = (low, middle) if fmean(b.latency for b in ran) > target else (middle, high)
    return run(plant, lambda _: rate, seconds, Random(seed), fixed_keep=low)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("load", OVERLOADS)
def test_in_steady_overload_the_mean_is_the_target_and_batches_do_not_swing(target: float, load: float) -> None:
    plant = replace(Plant(), outliers=0.0)
    for seed in range(3):
        settled = after(protected(plant, target, load, seed, 340.0), 160.0)
        assert mean_latency(settled) == pytest.approx(target, rel=0.05), f"seed {seed}"
        best = plant.best(target, load * plant.capacity(target))
        assert kept_rate(settled) >= 0.95 * best, f"seed {seed}"
        seconds = [b.seconds for b in settled]
        # The plant's own noise is 5%; a controller that answered it with swings would add to that.
        assert pstdev(seconds) / fmean(seconds) < 0.1, f"seed {seed}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("load", OVERLOADS)
def test_a_step_leads_to_ninety_percent_of_the_final_keep_within_five_batches(target: float, load: float) -> None:
    plant = replace(Plant(), outliers=0.0)
    best = plant.best(target, load * plant.capacity(target)) / (load * plant.capacity(target))
    keeps = []
    for seed in range(9):
        ran = after(protected(plant, target, load, seed, WARM_SECONDS + 20 * target), WARM_SECONDS)
        # The first batch that begins after the step holds what came before it, the next one meets the step.
        keeps.append(fmean(b.keep / best for b in ran[6:9]))
    assert median(keeps) > 0.9
    assert min(keeps) > 0.6


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rise_targets", [1.0, 2.0, 4.0])
def test_a_load_that_rises_is_met_before_its_rate_is_measured(target: float, rise_targets: float) -> None:
    """From half the capacity to twice it: batches that keep all would grow by each of them, and results be late."""
    plant = replace(Plant(), outliers=0.0)
    capacity = plant.capacity(target)

    def rate(time: float) -> float:
        risen = (time - WARM_SECONDS) / (rise_targets * target)
        return capacity * (0.5 + 1.5 * min(1.0, max(0.0, risen)))

    for seed in range(5):
        controller = make_controller("batch", target_seconds=target)
        ran = run(plant, rate, WARM_SECONDS + 15 * target, Random(seed), controller=controller, target=target)
        assert max(b.latency for b in after(ran, WARM_SECONDS)) < 1.35 * target, f"seed {seed}"
        assert mean_latency(after(ran, WARM_SECONDS)) == pytest.approx(target, rel=0.15), f"seed {seed}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("before", "load"), [(4.0, 1.3), (2.0, 1.3), (1.3, 2.0), (4.0, 0.5)])
def test_a_step_from_one_overload_to_another_too(target: float, before: float, load: float) -> None:
    plant = replace(Plant(), outliers=0.0)
    best = plant.best(target, load * plant.capacity(target)) / (load * plant.capacity(target))
    keeps = []
    for seed in range(7):
        ran = after(protected(plant, target, load, seed, WARM_SECONDS + 20 * target, before), WARM_SECONDS)
        keeps.append(fmean(b.keep / best for b in ran[6:9]))
    assert median(keeps) > 0.9


@pytest.mark.parametrize("load", OVERLOADS)
def test_with_outliers_it_keeps_as_many_as_a_filter_tuned_to_the_same_latency(load: float) -> None:
    plant, target = Plant(outliers=0.02), 3.0
    rate = load * plant.capacity(target)
    shares = []
    for seed in range(5):
        ours = after(protected(plant, target, load, seed, 440.0), 140.0)
        assert mean_latency(ours) == pytest.approx(target, rel=0.07), f"seed {seed}"
        warm = replace(plant, warm_factor=1.0)
        peer = filtered(warm, rate, mean_latency(ours), seed, 300.0)
        shares.append(kept_rate(ours) / kept_rate(peer))
    assert median(shares) >= 0.95


def test_below_its_capacity_nothing_is_dropped_once_the_compiler_is_warm() -> None:
    for target in TARGETS:
        ran = protected(Plant(), target, 0.5, 1, 200.0)
        assert all(b.kept == b.offered for b in after(ran, WARM_SECONDS))


def test_a_compiler_that_warms_up_during_the_overload_is_followed() -> None:
    plant, target = replace(Plant(), outliers=0.0, warm_seconds=40.0), 3.0
    rate = 1.3 * plant.capacity(target)
    for seed in range(3):
        controller = make_controller("batch", target_seconds=target)
        ran = run(plant, lambda _: rate, 240.0, Random(seed), controller=controller, target=target)
        warming = [b for b in ran if 40.0 <= b.start < 120.0]
        assert mean_latency(warming) == pytest.approx(target, rel=0.1), f"seed {seed}"
        assert kept_rate(after(ran, 160.0)) >= 0.95 * plant.best(target, rate)


def test_a_start_in_fourfold_overload_before_anything_is_known_ends_at_the_target() -> None:
    """Batches that keep all grow without bound until the first decision acts; then the backlog is shed at once."""
    plant, target = replace(Plant(), outliers=0.0, offered_cost=1e-6, warm_factor=1.5), 3.0
    rate = 4.0 * plant.capacity(target)
    ran = run(
        plant, lambda _: rate, 600.0, Random(1), controller=make_controller("batch", target_seconds=target),
        target=target,
    )  # fmt: skip
    longest = max(range(len(ran)), key=lambda i: ran[i].seconds)
    assert mean_latency(ran[longest + 8 :][:40]) == pytest.approx(target, rel=0.1)
