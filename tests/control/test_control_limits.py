"""The limits of admission control beside the latency target: what they do, and what they miss without one."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest

from floodway.control.base import Observation
from floodway.control.gradient import GradientConfig, GradientController
from floodway.control.loop import Loop
from floodway.control.registry import make_controller
from floodway.control.vegas import VegasConfig, VegasController
from tests.control.plant import Engine, run_batches


def steps(loop: Loop, latencies: list[float], waiting: float = 1000.0) -> list[float]:
    return [
        loop.step(Observation(float(i), waiting, latency_seconds=seconds)).admit for i, seconds in enumerate(latencies)
    ]


def test_the_gradient_limit_grows_by_its_queue_while_latency_is_usual_and_shrinks_when_it_rises() -> None:
    loop = Loop(GradientController(GradientConfig(nominal=100.0)))
    admitted = steps(loop, [1.0] * 5)
    assert admitted == sorted(admitted) and admitted[-1] > admitted[0]
    # A queue of ten requests and a weight of one fifth: two requests a batch.
    assert admitted[1] - admitted[0] == pytest.approx(2.0, rel=0.02)
    late = steps(loop, [6.0] * 5)
    assert late == sorted(late, reverse=True)
    assert late[1] / late[0] == pytest.approx(1.0 - 0.2 * (0.5 - 0.1), rel=0.05)


def test_the_gradients_long_mean_recovers_after_an_overload() -> None:
    loop = Loop(GradientController(GradientConfig(nominal=100.0)))
    steps(loop, [10.0] * 50)
    steps(loop, [1.0] * 40)
    assert float(loop.snapshot()["usual_seconds"]) < 3.0


def test_the_vegas_limit_moves_by_one_step_and_keeps_its_queue_between_three_and_six() -> None:
    loop = Loop(VegasController(VegasConfig(nominal=100.0)))
    assert steps(loop, [1.0, 1.0]) == pytest.approx([102.0, 104.0], rel=1e-3)
    held = steps(loop, [1.1] * 3)
    assert held[0] == held[-1]
    assert steps(loop, [2.0]) == pytest.approx([held[-1] - 2.0], rel=1e-2)


def test_the_least_latency_is_measured_anew_when_the_machine_has_become_slower() -> None:
    loop = Loop(VegasController(VegasConfig(nominal=100.0, probe=10.0)))
    steps(loop, [1.0])
    admitted = steps(loop, [3.0] * 30)
    assert admitted[9] < admitted[0]
    assert admitted[-1] > admitted[12], "three seconds are the least there is now"


@pytest.mark.parametrize("name", ["gradient", "vegas"])
def test_a_limit_that_is_not_half_used_stays(name: str) -> None:
    loop = Loop(make_controller(name, nominal=100.0))
    before = loop.step(Observation(0.0, 1000.0, latency_seconds=1.0)).admit
    for latency in (0.1, 50.0):
        loop.step(Observation(1.0, 10.0, latency_seconds=latency))
    assert loop.step(Observation(2.0, 1000.0)).admit == before


@pytest.mark.parametrize("name", ["gradient", "vegas"])
def test_without_a_target_a_limit_bounds_the_latency_but_does_not_hold_it(name: str) -> None:
    """Threefold overload with a target of 3 s: `batch` is there within 2%, the limits are somewhere."""
    engine = Engine()
    away = []
    for controller in (make_controller("batch", target_seconds=3.0), make_controller(name)):
        ran = run_batches(controller, engine, rate=lambda _: 3000.0, seconds=600.0, rng=Random(4))
        late = [b.latency_seconds for b in ran if b.start_seconds > 300.0]
        away.append(abs(fmean(late) / 3.0 - 1.0))
        assert max(late) < 60.0
    assert away[0] < 0.02 < 0.2 < away[1]
