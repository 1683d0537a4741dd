"""Asking Spark for more executors while a job is overloaded, where the user says so (`ask_executors=True`).

Spark's dynamic allocation asks for executors by the tasks that wait. A streaming job has few of them, however late it
is: a micro-batch has as many tasks as its source has partitions. So the shed asks by what it measures,

    executors = present + ⌈ present (needed - 1) / efficiency ⌉        (`job/status/parts.py`)

needed being how many times the present capacity would keep everything at the target; at most twice those present, and
at most spark.dynamicAllocation.maxExecutors. It asks once in `EVERY_SECONDS`,
so that what has come shows in the measurements first. It never gives any back: Spark removes those that are idle.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from floodway.errors import InputError
from floodway.job.status.parts import executors_more
from floodway.spark.session.stores import is_connect, runs_here

log = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
COUNT_SECONDS = 2.0
ENABLED, MOST = "spark.dynamicAllocation.enabled", "spark.dynamicAllocation.maxExecutors"


def wanted_executors(present: int, needed: float, most: int | None = None, efficiency: float | None = None) -> int:
    """How many executors to have for `needed` times the capacity of the present ones; `efficiency` if it was measured.

    >>> wanted_executors(2, 1.0), wanted_executors(2, 1.3), wanted_executors(2, 9.0), wanted_executors(2, 9.0, most=3)
    (2, 3, 4, 3)
    """
    asked = min(2 * present, present + (executors_more(present, needed, efficiency) or 0))
    return max(present, asked if most is None else min(asked, most))


@dataclass
class ExecutorRequests:
    """Asks one cluster; `present` counts its executors, `request` asks for so many more."""

    present: Callable[[], int]
    request: Callable[[int], object]
    most: int | None = None
    _last_seconds: float | None = field(default=None, repr=False)

    def take(self, needed: float | None, now_seconds: float, efficiency: float | None = None) -> int:
        """Ask, if more is needed and the last request is long enough ago; how many were asked for."""
        if needed is None or (
            self._last_seconds is not None and 0.0 <= now_seconds - self._last_seconds < EVERY_SECONDS
        ):
            return 0
        present = self.present()
        more = wanted_executors(present, needed, self.most, efficiency) - present
        if more > 0:
            self._last_seconds = now_seconds
            self.request(more)
            log.info("asked for %d executors more: %.2f times the capacity of %d is needed", more, needed, present)
        return more


def executor_count(spark: SparkSession) -> Callable[[], int | None]:
    """How many executors a session has, asked for once in `COUNT_SECONDS`; None where Spark runs here or hides them."""
    if is_connect(spark) or runs_here(spark):
        return lambda: None
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
    asked_at, found = -math.inf, 0

    def count() -> int:
        nonlocal asked_at, found
        if time.monotonic() - asked_at > COUNT_SECONDS:
            asked_at, found = time.monotonic(), len(tracker.getExecutorInfos()) - 1  # one of them is the driver
        return found

    return count


def executor_requests(spark: SparkSession, option: str) -> ExecutorRequests:
    """Requests to the cluster of a session; InputError, which names the option, where it cannot be asked."""
    if is_connect(spark):
        raise InputError(
            f"{option} cannot ask through Spark Connect, which hides the cluster",
            hint="Use a Classic session, or let an autoscaler follow floodway_capacity_needed_ratio",
        )
    conf = spark.sparkContext.getConf()
    if (conf.get(ENABLED) or "false").lower() != "true":
        raise InputError(
            f"{option} works with Spark's dynamic allocation, which is off",
            hint=f"Set {ENABLED}=true, or let an autoscaler follow floodway_capacity_needed_ratio",
        )
    context: Any = spark.sparkContext._jsc.sc()
    most = conf.get(MOST)
    # One of the infos is the driver's.
    return ExecutorRequests(
        lambda: len(context.statusTracker().getExecutorInfos()) - 1,
        context.requestExecutors,
        int(most) if most is not None and most.isdecimal() else None,
    )
