"""What a DataFrame's plan says of the place where a shed is applied."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

_ONE_TO_ONE = frozenset({"Project", "SubqueryAlias", "EventTimeWatermark", "View"})
"""Nodes of a plan that hand on as many rows as they get."""


def stands_on_source(df: DataFrame) -> bool:
    """Whether every row that a source hands over is a row of this DataFrame; False where the plan is not to be had."""
    plan: Any = getattr(df, "_jdf", None)  # Spark Connect has none
    if plan is None:
        return False
    node = plan.queryExecution().analyzed()
    while str(node.nodeName()) in _ONE_TO_ONE:
        node = node.children().apply(0)
    return str(node.nodeName()).startswith("StreamingRelation")
