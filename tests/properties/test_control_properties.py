"""Properties of all controllers over arbitrary histories."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.control.base import Controller, Observation
from floodway.control.cost_model import CostModel, learn
from floodway.control.latency import choose_gain, law_factor, stability_bound
from floodway.control.loop import Loop
from floodway.control.registry import controllers, make_controller
from tests.effort import tries

counts = st.floats(0.0, 1e12)
seconds = st.one_of(st.none(), st.floats(0.0, 1e6), st.just(math.nan))
observations = st.builds(
    Observation,
    time_seconds=st.floats(0.0, 1e9),
    waiting=counts,
    latency_seconds=seconds,
    kept=counts,
    batch_seconds=seconds,
    offered=st.one_of(st.none(), counts),
    queued=st.one_of(st.none(), counts),
    miss_ratio=st.one_of(st.none(), st.floats(0.0, 1.0)),
)


def every(floor: float) -> list[Controller[Any]]:
    with_target = {"aurora", "batch", "latency", "tu"}
    return [
        make_controller(name, floor=floor, **({"target_seconds": 1.0} if name in with_target else {}))
        for name in controllers()
    ]


@settings(max_examples=tries(60), deadline=None, derandomize=True)
@given(history=st.lists(observations, max_size=25), floor=st.sampled_from([1e-6, 1.0, 10.0]))
def test_decisions_stay_within_floor_and_waiting_for_any_history(history: list[Observation], floor: float) -> None:
    for controller in every(floor):
        loop = Loop(controller)
        for seen in history:
            decision = loop.step(seen)
            assert min(floor, seen.waiting) <= decision.admit <= seen.waiting, controller.name
            assert math.isfinite(decision.capacity_scale) and decision.capacity_scale >= 0.0
            assert 0.0 <= decision.keep(seen.waiting) <= 1.0


@settings(max_examples=tries(60), deadline=None, derandomize=True)
@given(history=st.lists(observations, max_size=15), cut=st.integers(0, 15))
def test_a_restart_at_any_point_changes_nothing(history: list[Observation], cut: int) -> None:
    for controller in every(1.0):
        straight, resumed = Loop(controller), Loop(controller)
        for i, seen in enumerate(history):
            if i == cut:
                resumed = Loop(controller, resumed.snapshot())
            assert straight.step(seen) == resumed.step(seen), controller.name


@settings(max_examples=tries(100), deadline=None, derandomize=True)
@given(
    target=st.floats(0.01, 100.0),
    tick=st.floats(0.01, 10.0),
    low=st.floats(0.0, 1e4),
    high=st.floats(0.0, 1e4),
)
def test_the_law_falls_with_latency_and_the_chosen_gain_is_stable(
    target: float, tick: float, low: float, high: float
) -> None:
    gain = choose_gain(target, tick)
    assert 0.0 < gain < stability_bound(target, tick)
    low, high = sorted((low, high))
    assert 0.25 <= law_factor(gain, target, high) <= law_factor(gain, target, low) <= 2.0
    assert law_factor(gain, target, target) == 1.0


@settings(max_examples=tries(100), deadline=None, derandomize=True)
@given(
    overhead=st.floats(0.0, 1.0),
    cost=st.floats(1e-6, 1e-1),
    works=st.lists(st.floats(1.0, 1e4), min_size=3, max_size=20),
)
def test_the_cost_model_stays_positive_and_explains_what_it_has_just_seen(
    overhead: float, cost: float, works: list[float]
) -> None:
    model = CostModel()
    for work in works:
        seconds = overhead + cost * work
        before = model.expected(work)
        model = learn(model, work, seconds)
        after = model.expected(work)
        assert model.cost is not None and model.cost > 0.0 and model.overhead > 0.0 and model.offered_cost > 0.0
        assert min(model.var_a, model.var_s, model.var_c) >= 0.0
        assert after is not None
        assert abs(after - seconds) <= (abs(before - seconds) if before else 0.0) + 1e-6 * seconds
