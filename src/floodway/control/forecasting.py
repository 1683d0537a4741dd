"""Forecasts for laws that make none: a cost model beside the law, fed with the same observations.

The law decides as before. The model learns what batches cost (`cost_model`), and from the target that comes with an
observation follows how much work fits: the work of a batch of P* = T / 1.5 that keeps all it is offered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from floodway.control.base import Decision, Observation
from floodway.control.cost_model import CostModel, learn
from floodway.control.decorator import Decorator, WrappedState
from floodway.control.forecast import BATCH_SHARE, Forecast


@dataclass(frozen=True, slots=True)
class ForecasterState(CostModel):
    """The model, and the latest target in seconds; None while no observation has named one."""

    target_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Forecasting(Decorator[ForecasterState]):
    """Any controller, with forecasts.

    >>> from floodway.control.registry import make_controller
    >>> controller = Forecasting(make_controller("aurora", target_seconds=3.0))
    >>> seen = Observation(0.0, waiting=900, kept=100, offered=100, batch_seconds=0.4, target_seconds=3.0)
    >>> state, decision = controller.update(controller.initial(), seen)
    >>> forecast = controller.forecast(state)
    >>> forecast is not None and round(forecast.seconds(offered=100, kept=100), 3)
    0.4
    """

    name: ClassVar[str] = "forecasting"
    signal: ClassVar[str] = "batch_seconds"
    prefix: ClassVar[str] = "forecast."

    def own_initial(self) -> ForecasterState:
        return ForecasterState()

    def update(
        self, state: WrappedState[ForecasterState], observation: Observation
    ) -> tuple[WrappedState[ForecasterState], Decision]:
        own = replace(state.own, target_seconds=observation.target_seconds or state.own.target_seconds)
        if observation.batch is not None:
            seconds, kept = observation.batch
            own = learn(own, kept, seconds, observation.offered)
        law, decision = self.law.update(state.law, observation)
        return WrappedState(law, own), decision

    def forecast(self, state: WrappedState[ForecasterState]) -> Forecast | None:
        own = state.own
        found = own.model_forecast()
        if found is None or own.target_seconds is None:
            return found
        fits = found.whole_work(own.target_seconds / BATCH_SHARE)
        return replace(found, fits=fits) if own.knows(fits) else found
