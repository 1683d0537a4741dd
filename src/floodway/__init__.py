"""Overload management for Spark Structured Streaming.

Importing `floodway` loads neither Spark nor any solver; names below are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "shed": "floodway.spark.shed.shed",
    "load_network": "floodway.network.file",
    "FloodwayError": "floodway.errors",
}

__all__ = ["FloodwayError", "__version__", "load_network", "shed"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            from floodway.errors import missing_extra

            raise (missing_extra(error) or error) from None
    raise AttributeError(f"module 'floodway' has no attribute {name!r}")
