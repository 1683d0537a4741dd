"""The DISSP law: the guards round it one by one, then the loop closed on the paper's engine."""

from __future__ import annotations

from functools import cache
from random import Random
from statistics import fmean, pstdev

import pytest

from floodway.control.base import Observation
from floodway.control.latency import (
    LatencyConfig,
    LatencyController,
    LatencyState,
    choose_gain,
    law_factor,
    stability_bound,
)
from floodway.control.loop import Loop
from tests.control.plant import Tick, paper_rate, run_engine

CAPACITY = 400.0
"""Tuples/s, below the least offered rate of 500: the engine is overloaded all the time."""

TARGETS = (0.5, 1.0, 2.0, 3.0)
SETTLED = 40.0


def controller(gain: float | None = 0.1, **options: float) -> LatencyController:
    return LatencyController(LatencyConfig(target_seconds=1.0, gain=gain, nominal=100.0, **options))


def see(waiting: float, latency: float | None) -> Observation:
    return Observation(0.0, waiting, latency_seconds=latency)


def test_the_law_is_the_papers_equation_7() -> None:
    state, decision = controller().update(LatencyState(100.0, 100.0), see(500, 0.5))
    assert state.n == pytest.approx(100.0 * (1 + 0.1 * 0.5))
    assert decision.admit == state.n
    assert decision.capacity_scale == pytest.approx(1.05)


def test_floor_keeps_n_from_being_absorbed_at_zero() -> None:
    loop = Loop(controller(gain=1.0))
    for _ in range(50):
        assert loop.step(see(500, 1e6)).admit >= 1.0
    admitted = [loop.step(see(500, 0.0)).admit for _ in range(20)]
    assert admitted[-1] == 500.0, "from 0 the law could never come back"


def test_floor_is_in_the_unit_of_work() -> None:
    loop = Loop(controller(gain=1.0, floor=0.01))
    admitted = [loop.step(see(500, 1e6)).admit for _ in range(60)]
    assert admitted[-1] == 0.01


def test_cap_keeps_n_at_what_waits_so_that_it_reacts_at_once_afterwards() -> None:
    loop = Loop(controller())
    for _ in range(100):
        assert loop.step(see(120, 0.1)).admit <= 120
    # Without the cap n would have grown to 100 * 1.09^100, and the next lines would admit all for 80 ticks.
    assert loop.step(see(500, 2.0)).admit == pytest.approx(120 * 0.9)


def test_hold_without_measurement() -> None:
    before = LatencyState(100.0, 100.0)
    state, decision = controller().update(before, see(500, None))
    assert state == before
    assert decision.admit == 100.0
    assert decision.reason == "hold: no measurement"


@pytest.mark.parametrize("latency", [0.01, 5.0])
def test_hold_when_less_waits_than_n_neither_winds_up_nor_drags_down(latency: float) -> None:
    loop = Loop(controller())
    for _ in range(200):
        quiet = loop.step(see(20, latency))
        assert quiet.admit == 20
        assert quiet.capacity_scale == 1.0
    assert loop.step(see(500, 1.0)).admit == pytest.approx(100.0)


def test_one_outlier_costs_no_more_than_one_gain() -> None:
    state, _ = controller().update(LatencyState(100.0, 100.0), see(500, 3600.0))
    assert state.n == pytest.approx(90.0)
    assert law_factor(5.0, 1.0, 100.0) == 0.25
    assert law_factor(5.0, 1.0, 0.0) == 2.0


def test_without_a_nominal_it_admits_all_until_the_first_latency_above_target() -> None:
    loop = Loop(LatencyController(LatencyConfig(target_seconds=1.0, gain=0.1)))
    assert loop.step(see(10, None)).admit == 10
    assert loop.step(see(700, 0.9)).admit == 700
    first = loop.step(see(800, 1.5))
    assert first.admit == pytest.approx(800 * 0.95)
    assert first.capacity_scale == 1.0
    assert loop.step(see(900, 1.5)).capacity_scale == pytest.approx(0.95)


def test_a_target_changed_while_running_takes_effect_at_once() -> None:
    state = LatencyState(100.0, 100.0)
    seen = Observation(0.0, 500, latency_seconds=1.5, target_seconds=3.0)
    assert controller().update(state, seen)[0].n == pytest.approx(105.0)


@pytest.mark.parametrize(("target", "bound"), [(0.5, 0.4), (1.0, 0.2222), (2.0, 0.1176), (3.0, 0.08)])
def test_stability_bound_of_the_papers_targets(target: float, bound: float) -> None:
    assert stability_bound(target, 0.25) == pytest.approx(bound, abs=1e-4)
    assert choose_gain(target, 0.25) == pytest.approx(bound / 2, abs=1e-4)
    warnings = LatencyController(LatencyConfig(target_seconds=target, gain=0.1)).warnings
    assert [w.key for w in warnings] == (["latency.gain"] if target == 3.0 else [])
    assert not LatencyController(LatencyConfig(target_seconds=target)).warnings


def delayed_loop(gain: float, delay: int = 12, ticks: int = 1500) -> list[float]:
    """l(t) = T n(t - delay) / n*: the loop of Proposition 1, started at half the load; relative latencies."""
    loop = Loop(LatencyController(LatencyConfig(target_seconds=3.0, gain=gain, nominal=50.0)))
    kept = [50.0] * (delay + 1)
    for _ in range(ticks):
        kept.append(loop.step(see(1e9, 3.0 * kept[-delay - 1] / 100.0)).admit)
    return [n / 100.0 for n in kept]


def test_the_papers_gain_oscillates_at_three_seconds_and_the_chosen_one_does_not() -> None:
    papers, chosen = delayed_loop(0.1), delayed_loop(choose_gain(3.0, 0.25))
    assert max(papers) > 1.3
    assert max(chosen) < 1.06
    above = delayed_loop(0.14)
    assert max(above[-100:]) - min(above[-100:]) > 0.3, "beyond the bound it swings for ever"
    assert max(chosen[-100:]) - min(chosen[-100:]) < 1e-6


@cache
def settled(target: float) -> tuple[Tick, ...]:
    law = LatencyController(LatencyConfig(target_seconds=target))
    ticks = run_engine(law, capacity=CAPACITY, seconds=160.0, rng=Random(1))
    return tuple(tick for tick in ticks if tick.time_seconds > SETTLED)


def latencies(ticks: tuple[Tick, ...]) -> list[float]:
    return [tick.latency_seconds for tick in ticks if tick.latency_seconds is not None]


def test_without_control_latency_diverges_above_capacity_and_not_below() -> None:
    over = run_engine(None, capacity=CAPACITY, seconds=80.0, rng=Random(1))
    below = run_engine(None, capacity=1600.0, seconds=80.0, rng=Random(1))
    marks = [over[i].latency_seconds or 0.0 for i in (80, 160, 240, 319)]
    assert marks == sorted(marks) and marks[-1] > 25.0
    assert max(tick.latency_seconds or 0.0 for tick in below) < 0.3


@pytest.mark.parametrize("target", TARGETS)
def test_mean_latency_stays_at_the_target_on_the_papers_workload(target: float) -> None:
    ticks = settled(target)
    assert fmean(latencies(ticks)) == pytest.approx(target, rel=0.1)
    # The processor is full: nothing is shed that could have been served.
    assert sum(tick.served for tick in ticks) == pytest.approx(CAPACITY * 120.0, rel=0.01)


def test_tuples_kept_and_spread_rise_with_the_target() -> None:
    kept = [fmean(tick.kept for tick in settled(target)) for target in TARGETS]
    spread = [pstdev(latencies(settled(target))) for target in TARGETS]
    assert kept == sorted(kept) and kept[-1] > 4 * kept[0]
    assert spread == sorted(spread) and spread[-1] > 4 * spread[0]


def test_nothing_is_shed_below_capacity_even_after_an_overload() -> None:
    def rate(time_seconds: float) -> float:
        return paper_rate(time_seconds) if time_seconds < 60.0 else 300.0

    law = LatencyController(LatencyConfig(target_seconds=1.0))
    ticks = run_engine(law, capacity=CAPACITY, seconds=120.0, rng=Random(2), rate=rate)
    quiet = [tick for tick in ticks if tick.time_seconds > 70.0]
    assert all(tick.kept == tick.waiting for tick in quiet)
    assert max(latencies(tuple(quiet))) < 0.3
