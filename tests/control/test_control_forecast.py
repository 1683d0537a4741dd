"""Every law gets forecasts: its own, or those of a model that learns beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from floodway.control.base import Controller, Decision, Forecast, Observation, State
from floodway.control.loop import FinishedBatch, KeepLoop, Loop
from floodway.control.registry import controllers, make_controller

TARGET = 3.0
OVERHEAD, OFFERED_COST, COST = 0.4, 1e-4, 1e-3


@dataclass(frozen=True)
class Everything(Controller[State]):
    """A user's law of a few lines that knows nothing of costs."""

    name: ClassVar[str] = "everything"
    signal: ClassVar[str] = "latency_seconds"

    def initial(self) -> State:
        return State()

    def update(self, state: State, observation: Observation) -> tuple[State, Decision]:
        return state, Decision(observation.waiting, 1.0, "admit all")


@dataclass(frozen=True)
class Foreseeing(Everything):
    """One that has forecasts of its own."""

    name: ClassVar[str] = "foreseeing"

    def forecast(self, state: State) -> Forecast | None:
        return Forecast(overhead_seconds=1.0, kept_cost=2.0, fits=7.0)


def batches(count: int = 12) -> Iterator[FinishedBatch]:
    """Batches back to back whose load varies."""
    started = 1000.0
    for number in range(count):
        offered = 400 + 150 * (number % 4)
        seconds = OVERHEAD + (OFFERED_COST + COST) * offered
        yield FinishedBatch(started, seconds, offered, offered)
        started += seconds


def observations() -> Iterator[Observation]:
    for batch in batches():
        yield Observation(
            batch.started_seconds, waiting=500.0, latency_seconds=1.5 * batch.seconds, kept=batch.kept,
            offered=batch.offered, batch_seconds=batch.seconds, target_seconds=TARGET,
        )  # fmt: skip


def every_law() -> list[Controller[State]]:
    with_target = {"aurora", "batch", "latency", "tu"}
    made = [
        make_controller(name, **({"target_seconds": TARGET} if name in with_target else {})) for name in controllers()
    ]
    return [*made, Everything()]


@pytest.mark.parametrize("controller", every_law(), ids=lambda law: law.name)
def test_every_law_foresees_how_long_a_batch_takes_and_how_much_fits(controller: Controller[State]) -> None:
    loop = Loop(controller)
    assert loop.forecast() is None
    for seen in observations():
        loop.step(seen)
    forecast = loop.forecast()
    assert forecast is not None
    assert forecast.seconds(1000.0, 1000.0) == pytest.approx(OVERHEAD + 1000.0 * (OFFERED_COST + COST), rel=0.1)
    assert forecast.fits == pytest.approx((TARGET / 1.5 - OVERHEAD) / (OFFERED_COST + COST), rel=0.1)


def test_a_law_with_forecasts_of_its_own_is_believed() -> None:
    loop = Loop(Foreseeing())
    for seen in observations():
        loop.step(seen)
    assert loop.forecast() == Forecast(overhead_seconds=1.0, kept_cost=2.0, fits=7.0)


def test_a_users_law_gets_the_same_budget_as_ours_before_the_overload() -> None:
    budgets = []
    for controller in (Everything(), make_controller("batch", target_seconds=TARGET)):
        loop = KeepLoop(controller)
        decided = [loop.step(batch, keep_in_force=1.0, target_seconds=TARGET) for batch in batches()][-1]
        assert decided is not None and decided.keep == 1.0 and decided.budget is not None
        budgets.append(decided.budget.tuples)
    assert budgets[0] == pytest.approx(budgets[1], rel=0.05)


def test_a_restart_resumes_the_forecasts_of_a_users_law() -> None:
    loop = Loop(Everything())
    for seen in observations():
        loop.step(seen)
    assert Loop(Everything(), json.loads(json.dumps(loop.snapshot()))).forecast() == loop.forecast()


def test_a_snapshot_from_before_there_were_forecasts_resumes_the_law() -> None:
    law = make_controller("latency", target_seconds=TARGET, nominal=100.0)
    state, _ = law.update(law.initial(), Observation(0.0, 500.0, latency_seconds=6.0))
    loop = Loop(law, law.snapshot(state))
    assert loop.forecast() is None
    assert loop.step(Observation(1.0, 500.0)).admit == law.update(state, Observation(1.0, 500.0))[1].admit
