"""Every registered controller is put through the same checks."""

from __future__ import annotations

import dataclasses
import json
import math
from random import Random
from typing import Any

import pytest

from floodway.control.base import Controller, Observation, State
from floodway.control.loop import ForecasterState, Forecasting, Loop
from floodway.control.registry import controllers, make_controller
from floodway.errors import InputError

NEEDED: dict[str, dict[str, object]] = {
    "aurora": {"target_seconds": 1.0},
    "batch": {"target_seconds": 1.0},
    "latency": {"target_seconds": 1.0},
    "tu": {"target_seconds": 1.0},
}
OPTIONAL_SIGNALS = [name for name in controllers() if name != "red"]


def make(name: str, **options: object) -> Controller[Any]:
    return make_controller(name, **NEEDED.get(name, {}), **options)


def script(seed: int, length: int = 300) -> list[Observation]:
    """A wild but reproducible history: gaps, outliers, empty queues, clocks that jumped."""
    rng = Random(seed)

    def maybe(value: float) -> float | None:
        return None if rng.random() < 0.2 else value

    return [
        Observation(
            time_seconds=float(i),
            waiting=rng.choice([0.0, 0.4, 1.0, 50.0, 1e4, 1e9]) * rng.random(),
            latency_seconds=maybe(rng.choice([0.0, 0.5, 1.0, 3.0, 1e9, math.nan, math.inf, -1.0])),
            kept=rng.choice([0.0, 1.0, 500.0, 1e8]),
            batch_seconds=maybe(rng.choice([0.0, 1e-9, 0.3, 2.0, 1e7, math.nan])),
            offered=maybe(rng.choice([0.0, 1.0, 800.0, 1e9])),
            queued=maybe(rng.choice([0.0, 75.0, 1e6])),
            miss_ratio=maybe(rng.random()),
            target_seconds=maybe(rng.choice([0.5, 3.0])),
        )
        for i in range(length)
    ]


@pytest.mark.parametrize("name", controllers())
@pytest.mark.parametrize("seed", range(5))
def test_admits_between_floor_and_what_waits_and_stays_finite(name: str, seed: int) -> None:
    loop = Loop(make(name))
    for seen in script(seed):
        decision = loop.step(seen)
        assert decision.admit <= seen.waiting
        assert decision.admit >= min(1.0, seen.waiting)
        assert math.isfinite(decision.capacity_scale) and decision.capacity_scale >= 0.0
        assert 0.0 <= decision.keep(seen.waiting) <= 1.0
        assert decision.reason
        assert all(math.isfinite(v) for v in loop.snapshot().values() if not isinstance(v, str))


@pytest.mark.parametrize("name", controllers())
def test_same_inputs_give_same_outputs_and_the_argument_state_is_untouched(name: str) -> None:
    controller = make(name)
    state = controller.initial()
    for seen in script(7, 60):
        before = dataclasses.replace(state)
        first = controller.update(state, seen)
        assert controller.update(state, seen) == first
        assert state == before
        state = first[0]


@pytest.mark.parametrize("name", OPTIONAL_SIGNALS)
def test_holds_without_its_measurement(name: str) -> None:
    controller = make(name)
    state = controller.initial()
    for seen in script(11, 80):
        missing: dict[str, Any] = {controller.signal: None}
        blind = dataclasses.replace(seen, **missing)
        held, decision = controller.update(state, blind)
        assert held == state
        assert "hold" in decision.reason
        again = controller.update(held, blind)[1]
        assert again.admit == decision.admit
        state = controller.update(state, seen)[0]


@pytest.mark.parametrize("name", controllers())
def test_memory_is_a_fixed_set_of_plain_values(name: str) -> None:
    controller = make(name)
    loop = Loop(controller)
    forecaster = {Forecasting.prefix + f.name for f in dataclasses.fields(ForecasterState)}
    allowed = {"controller", *(f.name for f in dataclasses.fields(controller.initial())), *forecaster}
    for seen in script(3):
        loop.step(seen)
        snapshot = loop.snapshot()
        assert set(snapshot) <= allowed
        assert all(type(value) in (int, float, str) for value in snapshot.values())
    assert isinstance(controller.initial(), State)


@pytest.mark.parametrize("name", controllers())
def test_a_restart_from_a_snapshot_in_json_resumes_exactly(name: str) -> None:
    history = script(5, 120)
    straight = Loop(make(name))
    expected = [straight.step(seen) for seen in history]
    resumed = Loop(make(name))
    got = []
    for seen in history:
        got.append(resumed.step(seen))
        resumed = Loop(make(name), json.loads(json.dumps(resumed.snapshot())))
    assert got == expected


def test_a_snapshot_of_another_controller_is_refused() -> None:
    snapshot = Loop(make("pid")).snapshot()
    with pytest.raises(InputError, match="written by controller 'pid', not by 'red'"):
        Loop(make("red"), snapshot)


@pytest.mark.parametrize(
    "wrong", [{"average": math.nan}, {"average": "x"}, {"averag": 1.0}], ids=["nan", "text", "unknown"]
)
def test_a_damaged_snapshot_is_refused_with_its_key(wrong: dict[str, float | str]) -> None:
    with pytest.raises(InputError, match="averag"):
        Loop(make("red"), {"controller": "red", **wrong})


def test_unknown_names_and_options_are_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="Did you mean latency"):
        make_controller("latencey", target_seconds=1.0)
    with pytest.raises(InputError, match=r"latency\.gian .*Did you mean gain"):
        make_controller("latency", target_seconds=1.0, gian=0.1)
    with pytest.raises(InputError, match=r"batch\.target_seconds is missing"):
        make_controller("batch")


@pytest.mark.parametrize("name", controllers())
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, True, "many"])
def test_a_bad_floor_is_refused_with_its_key(name: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"{name}\.floor"):
        make(name, floor=value)


@pytest.mark.parametrize("name", [name for name in NEEDED if name != "pi"])
@pytest.mark.parametrize("value", [0.0, -2.0, math.nan, "2s"])
def test_a_bad_target_is_refused_with_its_key(name: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"{name}\.target_seconds"):
        make_controller(name, target_seconds=value)


@pytest.mark.parametrize("field", ["waiting", "kept", "offered", "queued"])
def test_an_observation_with_an_impossible_count_is_refused(field: str) -> None:
    counts: dict[str, float] = {"waiting": 1.0, field: -1.0}
    with pytest.raises(InputError, match=rf"observation\.{field}"):
        Observation(0.0, **counts)


def test_a_latency_that_cannot_be_one_counts_as_no_measurement() -> None:
    for value in (math.nan, math.inf, -0.1):
        assert Observation(0.0, 1.0, latency_seconds=value).latency_seconds is None
    assert Observation(0.0, 1.0, latency_seconds=0.1).latency_seconds == 0.1
