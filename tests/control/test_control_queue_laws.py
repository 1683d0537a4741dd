"""PID, RED', Aurora's step, Tu's law and the PI controller: constants, poles, guards and the closed loop."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import fmean

import numpy as np
import pytest

from floodway.control.aurora import AuroraConfig, AuroraController, aurora_step
from floodway.control.base import Observation
from floodway.control.loop import Loop
from floodway.control.pi import PiConfig, PiController, miss_error
from floodway.control.pid import PidConfig, PidController, PidState, pid_step
from floodway.control.red import RedConfig, RedState, red_drop_ratio, red_step
from floodway.control.tu import TuConfig, TuController, tu_growth
from floodway.errors import InputError
from tests.control.plant import Engine, run_batches


def unclamped_pid_occupancy(start: float, periods: int) -> list[float]:
    """Occupancy under the law with arrivals so large that the ratio is never clamped and X is met exactly."""
    config, state, queue, arrived, served = PidConfig(), PidState(), start * 150.0, 1e6, 5e5
    seen = []
    for _ in range(periods):
        state = pid_step(config, state, queue=queue, arrived=arrived, served=served)
        queue += (1.0 - state.drop_ratio) * arrived - served
        seen.append(queue / 150.0)
    return seen


def test_pid_closed_loop_poles_are_the_papers() -> None:
    c = PidConfig()
    assert (c.k_p, c.k_i, c.k_d, c.reference, c.queue_limit) == (30.0, 18.0, 7.5, 0.5, 150.0)
    # L (1 - z^-1)^2 + (K_P + K_I + K_D) - (K_P + 2 K_D) z^-1 + K_D z^-2 = 0
    poles = np.roots(
        [
            c.queue_limit + c.k_p + c.k_i + c.k_d,
            -2.0 * c.queue_limit - c.k_p - 2.0 * c.k_d,
            c.queue_limit + c.k_d,
        ]
    )
    assert sorted(poles.imag) == pytest.approx([-0.249, 0.249], abs=1e-3)
    assert poles.real == pytest.approx([0.839, 0.839], abs=1e-3)
    assert np.abs(poles) == pytest.approx([0.875, 0.875], abs=1e-3)


def test_pid_step_obeys_equations_5_and_8() -> None:
    before = PidState(error_sum=0.2, last_error=0.1)
    after = pid_step(PidConfig(), before, queue=90.0, arrived=120.0, served=100.0)
    error = 0.5 - 90.0 / 150.0
    growth = 30.0 * error + 18.0 * (0.2 + error) + 7.5 * (error - 0.1)
    assert after.drop_ratio == pytest.approx(1.0 - (growth + 100.0) / 120.0)
    assert after.error_sum == pytest.approx(0.1)
    assert after.last_error == pytest.approx(-0.1)


def test_pid_brings_the_queue_to_its_reference() -> None:
    occupancy = unclamped_pid_occupancy(0.9, 120)
    assert occupancy[-1] == pytest.approx(0.5, abs=1e-3)
    # The loop here has one period of delay more than the paper's transfer function, and still decays.
    assert abs(occupancy[60] - 0.5) < 0.05


def test_pid_sheds_nothing_and_does_not_divide_when_nothing_arrives() -> None:
    state = pid_step(PidConfig(), PidState(error_sum=-3.0), queue=140.0, arrived=0.0, served=50.0)
    assert state.drop_ratio == 0.0
    assert state.error_sum == -3.0


def test_pid_does_not_wind_up_in_a_long_quiet_spell() -> None:
    loop = Loop(PidController())
    for k in range(500):
        loop.step(Observation(float(k), 10.0, kept=100.0, offered=10.0, queued=0.0))
    burst = [
        loop.step(Observation(500.0 + k, 300.0, kept=100.0, offered=300.0, queued=140.0)).keep(300.0) for k in range(3)
    ]
    # A sum of 500 half errors would have kept everything for hundreds of periods.
    assert burst[0] < 0.4


def test_pid_occupancy_stays_centred_at_twenty_percent_overload() -> None:
    rng, loop, queue, seen = Random(9), Loop(PidController()), 0.0, []
    arrived = served = 0.0
    for k in range(1000):
        decision = loop.step(Observation(float(k), 120.0, kept=served, offered=arrived, queued=queue))
        arrived = 120.0 + rng.gauss(0.0, 8.0)
        entering = min(arrived * decision.keep(120.0), 150.0 - queue + 100.0)
        served = min(100.0, queue + entering)
        queue += entering - served
        seen.append(queue / 150.0)
    assert fmean(seen[50:]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("average", "ratio"), [(0.0, 0.0), (29.9, 0.0), (30.0, 0.0), (75.0, 0.05), (120.0, 0.1), (120.1, 1.0)]
)
def test_red_drop_ratio_at_the_papers_thresholds(average: float, ratio: float) -> None:
    assert red_drop_ratio(RedConfig(), RedState(average)) == pytest.approx(ratio)


def test_red_smooths_with_the_papers_weight() -> None:
    state = red_step(RedConfig(), red_step(RedConfig(), RedState(), queue=100.0), queue=100.0)
    assert state.average == pytest.approx(100.0 * (1 - 0.85**2))


def test_red_refuses_thresholds_in_the_wrong_order() -> None:
    with pytest.raises(InputError, match=r"red\.max_threshold .* above red\.min_threshold"):
        RedConfig(min_threshold=50.0, max_threshold=50.0)


def test_aurora_steps_up_and_down_and_stays_in_range() -> None:
    loop = Loop(AuroraController(AuroraConfig(target_seconds=1.0, step=0.1)))
    up = [loop.step(Observation(0.0, 100.0, latency_seconds=2.0)).admit for _ in range(12)]
    assert up[:3] == pytest.approx([90.0, 80.0, 70.0])
    assert up[-1] == 1.0, "all but the floor"
    down = [loop.step(Observation(0.0, 100.0, latency_seconds=1.0)).admit for _ in range(12)]
    assert down[0] == pytest.approx(10.0) and down[-1] == 100.0
    assert aurora_step(0.0, 0.05, overloaded=False) == 0.0


def test_tu_has_a_double_pole_at_seven_tenths() -> None:
    c = TuConfig(1.0)
    assert np.roots([1.0, c.a - 1.0 + c.b0, c.b1 - c.a]) == pytest.approx([0.7, 0.7], abs=1e-6)


def test_tu_closed_loop_decays_like_its_poles_whatever_the_cost() -> None:
    for cost, period in ((0.01, 1.0), (0.002, 5.0)):
        config = TuConfig(2.0, period_seconds=period)
        queue, growth, last, errors = 0.0, 0.0, 2.0, []
        for _ in range(40):
            error = 2.0 - queue * cost / config.headroom
            growth = tu_growth(config, cost=cost, error=error, last_error=last, growth=growth)
            queue, last = queue + growth * period, error
            errors.append(error)
        assert abs(errors[-1]) < 1e-4
        # (A + B k) 0.7^k: with a double pole the ratio tends to 0.7 from above.
        assert errors[20] / errors[19] == pytest.approx(0.7, abs=0.05)


def test_tu_brings_an_overloaded_queue_to_the_target_delay() -> None:
    loop = Loop(TuController(TuConfig(target_seconds=2.0)))
    queue, served, delays, admitted = 0.0, 0.0, [], 0.0
    for k in range(80):
        busy = served * 0.01
        decision = loop.step(Observation(float(k), 300.0, kept=served, batch_seconds=busy or None, queued=queue))
        admitted += decision.admit
        served = min(97.0, queue + decision.admit)
        queue += decision.admit - served
        delays.append(queue * 0.01 / 0.97)
    assert fmean(delays[30:]) == pytest.approx(2.0, rel=0.05)


def test_tu_lets_all_in_below_capacity_and_is_not_wound_up_afterwards() -> None:
    loop = Loop(TuController(TuConfig(target_seconds=2.0)))
    for k in range(300):
        quiet = loop.step(Observation(float(k), 50.0, kept=50.0, batch_seconds=0.5, queued=0.0))
        assert quiet.admit == 50.0
    burst = loop.step(Observation(300.0, 1000.0, kept=50.0, batch_seconds=0.5, queued=0.0))
    # From rest: f_out + (H / c P)(b0 + b1) T = 50 + 97 * 0.09 * 2. Remembering the wanted growth gave 117.
    assert burst.admit == pytest.approx(50.0 + 97.0 * 0.09 * 2.0)


def test_tu_on_micro_batches_goes_by_measured_latency_and_is_not_fooled_by_the_overhead() -> None:
    law = TuController(TuConfig(target_seconds=2.0, nominal=500.0))
    batches = run_batches(law, Engine(overhead=0.3), rate=lambda _: 3000.0, seconds=120.0, rng=Random(1))
    assert fmean(b.latency_seconds for b in batches[-30:]) == pytest.approx(2.0, rel=0.1)


def test_aurora_keeps_up_with_ever_longer_batches_when_it_knows_its_tick() -> None:
    def peak(tick_seconds: float | None) -> float:
        law = AuroraController(AuroraConfig(target_seconds=2.0, tick_seconds=tick_seconds))
        engine = Engine(overhead=0.3)
        batches = run_batches(law, engine, rate=lambda _: 3000.0, seconds=120.0, rng=Random(1))
        return max(b.latency_seconds for b in batches)

    assert peak(None) > 60.0
    assert peak(0.25) < 30.0


def test_pid_gains_scaled_to_another_queue_keep_the_papers_poles() -> None:
    scale = 6000.0 / 150.0
    c = PidConfig(30.0 * scale, 18.0 * scale, 7.5 * scale, queue_limit=6000.0)
    total = c.queue_limit + c.k_p + c.k_i + c.k_d
    assert abs(np.sqrt((c.queue_limit + c.k_d) / total)) == pytest.approx(0.875, abs=1e-3)


def test_pi_error_is_scaled_on_both_sides() -> None:
    assert miss_error(0.505, 0.01) == pytest.approx(-0.5)
    assert miss_error(0.005, 0.01) == pytest.approx(0.5)


def test_pi_settles_where_the_permitted_share_misses() -> None:
    """A processor on which tuples beyond 100 a cycle come too late."""
    loop = Loop(PiController(PiConfig(permitted_miss_ratio=0.05, nominal=400.0)))
    miss, admitted = None, []
    for k in range(300):
        n = loop.step(Observation(float(k), 500.0, miss_ratio=miss)).admit
        miss = max(0.0, n - 100.0) / n
        admitted.append(n)
    assert admitted[-1] == pytest.approx(100.0 / 0.95, rel=0.02)


def test_pi_holds_when_not_overloaded() -> None:
    loop = Loop(PiController(PiConfig(nominal=400.0)))
    for k in range(100):
        assert loop.step(Observation(float(k), 50.0, miss_ratio=0.0)).admit == 50.0
    assert loop.step(Observation(100.0, 1000.0, miss_ratio=0.01)).admit == pytest.approx(400.0)


def test_pi_goes_down_when_deadlines_are_missed_at_little_load() -> None:
    loop = Loop(PiController(PiConfig(permitted_miss_ratio=0.05, nominal=400.0)))
    admitted = [loop.step(Observation(float(k), 50.0, miss_ratio=0.5)).capacity_scale for k in range(20)]
    assert all(later < earlier for earlier, later in pairwise(admitted))
    # By the law's own steps: the little that waits at the moment is no measure of what can be processed.
    assert admitted[0] == pytest.approx(1.0 - 0.1 * 0.45 / 0.95, abs=1e-3)
    # A miss ratio that falls, but not far enough, must not raise what is admitted.
    assert loop.step(Observation(20.0, 50.0, miss_ratio=0.06)).capacity_scale <= admitted[-1]
