"""The micro-batch controller: the loop closed on P = a + c n, with noise and late figures.

`test_control_micro_batches.py` closes it on a plant like Spark on Kafka.
"""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest

from floodway.control.base import Observation
from floodway.control.batch import BatchConfig, BatchLatencyController
from floodway.control.cost_model import CostModel, learn
from floodway.control.loop import Loop
from tests.control.plant import Batch, Engine, run_batches

STEP = 20.0
CASES = [
    (target, overhead, delay)
    for target in (0.5, 1.0, 2.0, 3.0)
    for overhead in (0.1, 0.3, 0.5)
    for delay in (1, 2)
    if 1.5 * overhead < target
]


def control(target: float, **options: float) -> BatchLatencyController:
    return BatchLatencyController(BatchConfig(target_seconds=target, **options))


def step_response(target: float, engine: Engine, seed: int, seconds: float = 80.0) -> list[Batch]:
    """The batches after a step from 0.5 to 3 times the capacity."""

    def rate(time_seconds: float) -> float:
        return (0.5 if time_seconds < STEP else 3.0) * engine.capacity

    batches = run_batches(control(target), engine, rate=rate, seconds=STEP + seconds, rng=Random(seed))
    return [batch for batch in batches if batch.start_seconds >= STEP]


def relative(batches: list[Batch], target: float) -> list[float]:
    return [batch.latency_seconds / target for batch in batches]


@pytest.mark.parametrize(("target", "overhead", "delay"), CASES)
def test_a_step_settles_after_two_reports_or_within_five_seconds_and_stays(
    target: float, overhead: float, delay: int
) -> None:
    for seed in range(3):
        after = step_response(target, Engine(overhead=overhead, delay=delay), seed)
        late = [b for i, b in enumerate(after) if i > 2 * delay and b.start_seconds - STEP >= 5.0]
        assert max(abs(x - 1.0) for x in relative(late, target)) < 0.1, f"seed {seed}"
        assert fmean(relative(late, target)) == pytest.approx(1.0, abs=0.02)
        assert max(relative(after, target)) < 1.15, "no overshoot on the way"


@pytest.mark.parametrize("target", [1.0, 2.0, 3.0])
def test_three_batches_are_enough_when_figures_come_one_batch_late(target: float) -> None:
    after = step_response(target, Engine(overhead=0.3, delay=1), seed=3)
    assert all(abs(x - 1.0) < 0.1 for x in relative(after[3:], target))


@pytest.mark.parametrize(("target", "overhead", "delay"), CASES)
def test_the_mean_holds_under_ten_percent_noise(target: float, overhead: float, delay: int) -> None:
    engine = Engine(overhead=overhead, delay=delay, noise=0.1)
    after = step_response(target, engine, seed=4, seconds=100.0)
    assert fmean(relative(after[8:], target)) == pytest.approx(1.0, abs=0.03)


def test_a_large_noise_near_the_floor_does_not_make_it_admit_without_bound() -> None:
    for seed in range(20):
        after = step_response(0.5, Engine(overhead=0.3, delay=2, noise=0.1), seed, seconds=40.0)
        assert max(relative(after, 0.5)) < 2.0, f"seed {seed}"


def test_without_control_the_same_plant_diverges() -> None:
    engine = Engine(overhead=0.3, noise=0.0)
    waiting, duration, durations = 300.0, 0.3, []
    for _ in range(8):
        duration = engine.overhead + engine.cost * waiting
        waiting = 3.0 * engine.capacity * duration
        durations.append(duration)
    assert durations[-1] > 1000.0


def test_kept_work_rises_with_the_target_and_uses_the_capacity() -> None:
    shares = []
    for target in (1.0, 2.0, 3.0):
        after = step_response(target, Engine(overhead=0.3, noise=0.02), seed=1)[4:]
        shares.append(sum(b.kept for b in after) / sum(b.seconds for b in after) / 1000.0)
    assert shares == sorted(shares)
    # The most an engine with an overhead of 0.3 s can do in batches of T / 1.5.
    assert shares == pytest.approx([1 - 0.3 / (t / 1.5) for t in (1.0, 2.0, 3.0)], rel=0.03)


def test_nothing_is_shed_below_capacity_when_the_target_leaves_room() -> None:
    engine = Engine(overhead=0.3)
    batches = run_batches(control(2.0), engine, rate=lambda _: 500.0, seconds=60.0, rng=Random(1))
    assert all(b.kept == b.offered for b in batches[3:])


def test_latency_that_batch_times_do_not_explain_is_learned_before_the_overload() -> None:
    after = step_response(2.0, Engine(overhead=0.3, offset=0.4), seed=1)
    assert all(abs(x - 1.0) < 0.1 for x in relative(after[4:], 2.0))


def test_latency_beyond_what_the_model_may_explain_is_left_to_the_correction() -> None:
    """An offset above half the target: b stops there, and the law of h has to find the rest."""
    engine = Engine(overhead=0.3, offset=1.2)
    batches = run_batches(control(2.0), engine, rate=lambda _: 3000.0, seconds=80.0, rng=Random(1))
    assert fmean(relative(batches[-40:], 2.0)) == pytest.approx(1.0, abs=0.03)


def test_a_dearer_tuple_is_followed() -> None:
    engine = Engine(overhead=0.3, delay=2)
    batches = run_batches(
        control(2.0),
        engine,
        rate=lambda _: 5000.0,
        seconds=90.0,
        rng=Random(1),
        cost=lambda t: 0.001 if t < 30.0 else 0.003,
    )
    late = [b for b in batches if b.start_seconds > 30.0][7:]
    assert all(abs(x - 1.0) < 0.1 for x in relative(late, 2.0))


def test_an_unreachable_target_is_reported_with_the_floor_and_work_goes_on() -> None:
    engine = Engine(overhead=0.5, delay=2)
    batches = run_batches(control(0.5), engine, rate=lambda _: 3000.0, seconds=60.0, rng=Random(1))
    late = batches[-20:]
    assert all(b.decision.unreachable for b in late)
    assert all(b.decision.floor_seconds == pytest.approx(0.75, rel=0.1) for b in late)
    assert all(b.kept > 10.0 for b in late), "shedding everything would not help"
    # Out of reach by half, for long: 1.5 times the floor, where a third of the time is work.
    assert fmean(b.latency_seconds for b in late) == pytest.approx(1.5 * 0.75, rel=0.1)
    assert sum(b.kept for b in late) / sum(b.seconds for b in late) == pytest.approx(1000.0 / 3.0, rel=0.15)
    assert "below the floor" in late[-1].decision.reason


def test_a_reachable_target_is_not_reported_as_unreachable() -> None:
    for seed in range(5):
        after = step_response(1.0, Engine(overhead=0.5), seed)
        assert not any(b.decision.unreachable for b in after)


def test_an_old_backlog_after_a_restart_is_shed_once_and_does_not_count_as_latency_for_good() -> None:
    engine = Engine(overhead=0.3)
    loop = Loop(control(2.0))
    run_batches(control(2.0), engine, rate=lambda _: 3000.0, seconds=20.0, rng=Random(1), loop=loop)
    loop = Loop(control(2.0), loop.snapshot())
    old = Observation(100.0, 3000.0, latency_seconds=3600.0, kept=1000.0, batch_seconds=1.3, offered=1e7)
    loop.step(old)
    batches = run_batches(
        control(2.0), engine, rate=lambda _: 3000.0, seconds=20.0, rng=Random(2), backlog=1e7, loop=loop
    )
    assert all(abs(x - 1.0) < 0.1 for x in relative(batches[4:], 2.0))


def test_a_single_slow_batch_costs_little_and_is_forgotten() -> None:
    loop = Loop(control(2.0))
    engine = Engine(overhead=0.3, noise=0.0)
    usual = run_batches(control(2.0), engine, rate=lambda _: 3000.0, seconds=60.0, rng=Random(1), loop=loop)
    n, waiting = usual[-1].kept, usual[-1].offered
    pause = Observation(60.0, waiting, latency_seconds=8.0, kept=n, batch_seconds=7.0, offered=waiting)
    assert loop.step(pause).admit > 0.85 * n
    again = run_batches(control(2.0), engine, rate=lambda _: 3000.0, seconds=20.0, rng=Random(1), loop=loop)
    assert again[-1].kept == pytest.approx(n, rel=0.02)


def test_work_may_be_counted_in_cpu_seconds() -> None:
    """n in CPU-seconds of planned work on two cores: c is 1/2, whatever a tuple costs."""
    engine = Engine(overhead=0.3, cost=0.5)
    law = control(2.0, floor=1e-4, nominal=2.0 * 2.0 / 1.5)
    batches = run_batches(law, engine, rate=lambda _: 6.0, seconds=60.0, rng=Random(1))
    assert fmean(relative(batches[5:], 2.0)) == pytest.approx(1.0, abs=0.03)
    # g is the share of the nominal capacity that the overhead leaves: 1 - a / P*.
    assert batches[-1].decision.capacity_scale == pytest.approx(1 - 0.3 / (2.0 / 1.5), rel=0.1)


def test_a_gain_beyond_the_bound_for_two_batches_of_delay_is_warned_about() -> None:
    assert [w.bound for w in control(1.0, gain=0.5).warnings] == [0.4]
    assert control(1.0, gain=0.3).warnings == ()
    assert control(1.0).warnings == ()


def test_model_stays_positive_when_the_figures_slope_downwards() -> None:
    model = CostModel()
    for n, seconds in [(100.0, 5.0), (400.0, 1.0), (800.0, 0.5), (50.0, 6.0)]:
        model = learn(model, n, seconds)
        assert model.cost is not None and model.cost > 0.0
        assert model.overhead >= 0.0


def test_model_keeps_the_overhead_through_a_thousand_steady_batches() -> None:
    rng = Random(5)
    model = CostModel()
    for n in (100.0, 900.0, 300.0, 700.0):
        model = learn(model, n, 0.3 + 0.001 * n)
    for _ in range(1000):
        n = 500.0 * rng.gauss(1.0, 0.03)
        model = learn(model, n, (0.3 + 0.001 * n) * rng.gauss(1.0, 0.05))
    assert model.overhead == pytest.approx(0.3, rel=0.15)


def test_a_batch_without_work_teaches_nothing() -> None:
    assert learn(CostModel(), 0.0, 3.0) == CostModel()


def test_a_job_that_is_all_overhead_finds_out_that_work_is_cheap() -> None:
    """A batch takes 1.5 s whatever it holds and 1 s per unit of work: a target of 3 s leaves room for 0.5 a batch."""
    config = BatchConfig(target_seconds=3.0, nominal=2.0, floor=0.002, cost_guess=1.0)
    controller = BatchLatencyController(config)
    state = controller.initial()
    work = 0.005  # what a first batch happens to hold
    for number in range(20):
        seconds = 1.5 + work
        seen = Observation(3.0 * number, waiting=10.0, kept=work, offered=10.0, batch_seconds=seconds)
        state, decision = controller.update(state, seen)
        work = decision.admit
    assert work == pytest.approx(0.5, rel=0.1)
