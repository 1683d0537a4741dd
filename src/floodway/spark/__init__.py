"""The ONLY importer of pyspark: source, drops, logs between nodes, statistics, deployment, one-line shed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.front import lazy

if TYPE_CHECKING:
    from floodway.spark.log import LogReader, LogWriter, create_log, parse_schema
    from floodway.spark.measure import estimates
    from floodway.spark.query.catalogue import Catalogue
    from floodway.spark.shed.window_drop import WindowDrop
    from floodway.spark.source import register
    from floodway.spark.source.offsets import BatchOffset, count_kept

__all__ = [
    "BatchOffset",
    "Catalogue",
    "LogReader",
    "LogWriter",
    "WindowDrop",
    "count_kept",
    "create_log",
    "estimates",
    "parse_schema",
    "register",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "floodway.spark.log": (
            "LogReader",
            "LogWriter",
            "create_log",
            "parse_schema",
        ),
        "floodway.spark.measure.estimates": (),
        "floodway.spark.query.catalogue": ("Catalogue",),
        "floodway.spark.shed.window_drop": ("WindowDrop",),
        "floodway.spark.source": ("register",),
        "floodway.spark.source.offsets": (
            "BatchOffset",
            "count_kept",
        ),
    },
)
