"""CPU time of one streaming query among others in its application.

Spark runs the jobs of a streaming query in a job group of its own, so the CPU time of their tasks is its own:

    cpu      = Σ executorCpuTime over the stages of its jobs
    waiting  = Σ (executorRunTime − executorCpuTime): tasks that wait, for Python workers above all

Python workers serve all queries of an application and say nothing of whose work they do. Their time is shared among the
queries as the tasks' waiting was (`PythonShares`).

A reading asks for the jobs that have ended since the last one: a few calls a batch, whatever ran before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_ENDED = ("SUCCEEDED", "FAILED")


@dataclass(frozen=True, slots=True)
class Spent:
    """What jobs that have ended took, in seconds of CPU and of waiting."""

    cpu: float = 0.0
    waiting: float = 0.0


class QueryCpu:
    """The CPU time of one run of a streaming query; `run_id` is Spark's."""

    def __init__(self, spark: SparkSession, run_id: str) -> None:
        context: Any = spark.sparkContext._jsc.sc()
        self._arrays: Any = spark._jvm
        self._tracker = context.statusTracker()
        self._store = context.statusStore()
        self._group = run_id
        self._counted: set[int] = set()

    def read(self) -> Spent:
        """What the jobs took that have ended since the last reading."""
        cpu = run = 0.0
        # As one text: an array would be fetched number by number.
        listed = self._arrays.java.util.Arrays.toString(self._tracker.getJobIdsForGroup(self._group))
        known = {int(part) for part in listed.strip("[]").split(",") if part.strip()}
        # Spark forgets old jobs; those need not be remembered here either.
        self._counted &= known
        for job in known - self._counted:
            found = self._tracker.getJobInfo(job)
            if found.isEmpty() or str(found.get().status()) not in _ENDED:
                continue
            self._counted.add(job)
            for stage in found.get().stageIds():
                spent = self._stage(stage)
                cpu, run = cpu + spent[0], run + spent[1]
        return Spent(cpu, max(0.0, run - cpu))

    def _stage(self, stage: int) -> tuple[float, float]:
        try:
            found = self._store.lastStageAttempt(stage)
        except Py4JJavaError:  # Spark has forgotten it already
            return 0.0, 0.0
        return found.executorCpuTime() / 1e9, found.executorRunTime() / 1e3


class PythonShares:
    """Shares the Python workers' CPU time among queries by how long their tasks have waited lately.

    Workers use time while a job runs, and the job tells of its waiting when it has ended: long jobs seldom, short ones
    often. So waiting counts for a while, with the time constant `fade_seconds`, and time is shared by that. What was
    used before any job had ended waits too.

    >>> pool = PythonShares(fade_seconds=20.0)
    >>> pool.share(0.0, 4.0, {"a": 0.0, "b": 0.0})
    {'a': 0.0, 'b': 0.0}
    >>> pool.share(1.0, 4.0, {"a": 3.0, "b": 1.0})
    {'a': 6.0, 'b': 2.0}
    """

    def __init__(self, *, fade_seconds: float = 20.0) -> None:
        self._fade = fade_seconds
        self._at: float | None = None
        self._waited: dict[str, float] = {}
        self._left = 0.0

    def share(self, now: float, used_seconds: float, waiting: Mapping[str, float]) -> dict[str, float]:
        """Each query's part of what was used since the last call; `waiting` is of jobs that ended since then."""
        fading = 1.0 if self._at is None else exp(-max(0.0, now - self._at) / self._fade)
        self._at = now
        self._waited = {name: fading * self._waited.get(name, 0.0) + fresh for name, fresh in waiting.items()}
        self._left += used_seconds
        total = sum(self._waited.values())
        if total <= 0:
            return dict.fromkeys(waiting, 0.0)
        used, self._left = self._left, 0.0
        return {name: used * waited / total for name, waited in self._waited.items()}
