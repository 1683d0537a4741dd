"""A controller and its current state, for callers that step it: the only mutable thing in this room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from floodway.control.base import Controller, Decision, Observation, Plain
from floodway.control.decorator import Decorator
from floodway.control.forecast import Forecast
from floodway.control.forecasting import Forecasting


class Loop:
    """Steps a controller. One that forecasts nothing is given a forecaster, so that its callers can plan ahead too."""

    def __init__(self, controller: Controller[Any], snapshot: Mapping[str, Plain] | None = None) -> None:
        self.controller = _forecasting(controller)
        self._state = self.controller.initial() if snapshot is None else self.controller.restore(snapshot)

    def step(self, observation: Observation) -> Decision:
        """Feed one observation and remember the next state."""
        self._state, decision = self.controller.update(self._state, observation)
        return decision

    def forecast(self, after: Observation | None = None) -> Forecast | None:
        """What is expected of the next batch; None before the first that was measured.

        `after` is a measurement that is to count and that no step has taken in yet.
        """
        state = self._state if after is None else self.controller.update(self._state, after)[0]
        return self.controller.forecast(state)

    def snapshot(self) -> dict[str, Plain]:
        """What a restarted process needs to resume: pass it to a new Loop."""
        return self.controller.snapshot(self._state)


def _forecasting(controller: Controller[Any]) -> Controller[Any]:
    """The controller, with a forecaster next to the law where the law does not forecast."""
    if isinstance(controller, Decorator):
        return replace(controller, law=_forecasting(controller.law))
    forecasts = type(controller).forecast is not Controller.forecast
    return controller if forecasts else Forecasting(controller)
