"""HOW MUCH, over time: control laws as pure `update(state, observation) -> (state, decision)`; no queues, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.front import lazy

if TYPE_CHECKING:
    from floodway.control.base import Controller, Decision, Observation, State, bounded
    from floodway.control.loop import Loop
    from floodway.control.registry import controllers, make_controller

__all__ = [
    "Controller",
    "Decision",
    "Loop",
    "Observation",
    "State",
    "bounded",
    "controllers",
    "make_controller",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "floodway.control.base": (
            "Controller",
            "Decision",
            "Observation",
            "State",
            "bounded",
        ),
        "floodway.control.loop": ("Loop",),
        "floodway.control.registry": (
            "controllers",
            "make_controller",
        ),
    },
)
