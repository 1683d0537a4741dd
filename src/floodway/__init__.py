"""Overload management for Spark Structured Streaming.

Importing `floodway` loads neither Spark nor any solver; names below are loaded on first use. Each room offers more:
`floodway.control`, `floodway.network`, `floodway.planning`, `floodway.job`, `floodway.spark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.front import lazy

if TYPE_CHECKING:
    from floodway.control.base import Controller
    from floodway.errors import FloodwayError, InputError
    from floodway.job.options.accuracy import Accuracy
    from floodway.network.file import load_network
    from floodway.spark.measure import estimates
    from floodway.spark.shed.recovery.recover import dropped
    from floodway.spark.shed.shed import shed
    from floodway.spark.shed.window_drop import WindowDrop

__version__ = "0.2.0"

__all__ = [
    "Accuracy",
    "Controller",
    "FloodwayError",
    "InputError",
    "WindowDrop",
    "__version__",
    "dropped",
    "estimates",
    "load_network",
    "shed",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "floodway.control.base": ("Controller",),
        "floodway.errors": ("FloodwayError", "InputError"),
        "floodway.job.options.accuracy": ("Accuracy",),
        "floodway.network.file": ("load_network",),
        "floodway.spark.measure.estimates": (),
        "floodway.spark.shed.recovery.recover": ("dropped",),
        "floodway.spark.shed.shed": ("shed",),
        "floodway.spark.shed.window_drop": ("WindowDrop",),
    },
)
