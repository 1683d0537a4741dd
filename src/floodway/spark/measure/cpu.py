"""CPU time of one Spark application: what its executors' tasks took, and what their Python workers took.

    cpu_seconds = Σ executorCpuTime over tasks + Σ (utime + stime) over Python workers

Counted: the thread of every task (the JVM's own clock, in nanoseconds; row-to-Arrow conversion happens in it), the
daemons that fork Python workers, and the workers. Of a worker that has ended (its function failed, or it was idle for a
minute) what it had used at the last reading counts; read once a batch. Not counted: the driver's own Python, query
planning, garbage collection and compilation in the JVM, which no tuple causes alone.

A local session keeps the sum over all tasks in one counter of the executor's metrics: half a millisecond a reading.
On a cluster the stages are summed in the status store (40–100 ms) and Python workers are found under the executors
that run on this machine; those of other machines are not seen. Python's time has the resolution of the kernel's clock
ticks, usually 10 ms, but never drifts: readings are cumulative.

CPU time of one streaming query among others in its application.

Spark runs the jobs of a streaming query in a job group of its own, so the CPU time of their tasks is its own:

    cpu      = Σ executorCpuTime over the stages of its jobs
    waiting  = Σ (executorRunTime − executorCpuTime): tasks that wait, for Python workers above all

Python workers serve all queries of an application and say nothing of whose work they do. Their time is shared among the
queries as the tasks' waiting was (`PythonShares`).

A reading asks for the jobs that have ended since the last one: a few calls a batch, whatever ran before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from floodway.errors import InputError

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


log = logging.getLogger(__name__)

PROC = Path("/proc")
_MARK = b"pyspark"
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class CpuMeter:
    """Reads the CPU time of a session's tasks and Python workers; differences between readings are what counts.

    >>> meter = CpuMeter(spark); before = meter.cpu_seconds()      # doctest: +SKIP
    >>> spark.range(10**6).count(); meter.cpu_seconds() - before   # doctest: +SKIP
    0.14
    """

    def __init__(self, spark: SparkSession, *, proc: Path = PROC, from_stages: bool = False) -> None:
        if not has_clock(proc):
            raise InputError(
                f"no {proc}/self/stat: the CPU time of Python workers is read from there", hint="Measure on Linux"
            )
        self._proc = proc
        self._ticks = os.sysconf("SC_CLK_TCK")
        jvm: Any = spark._jvm
        self._driver = int(jvm.java.lang.ProcessHandle.current().pid())
        context = spark.sparkContext
        local = (context.master or "local").startswith("local")
        self._counter = _task_counter(jvm) if local and not from_stages else None
        self._stages = None if self._counter is not None else StageClock(context._jsc.sc().statusStore())
        self._app = None if local else context.applicationId.encode()
        # Ticks of the daemons and workers there are, and of those that were: one that is gone keeps its last figure, so
        # readings never fall. The daemon ignores its children's end, so the kernel adds their time to nobody.
        self._seen: dict[tuple[int, str], int] = {}
        self._gone = 0

    def cpu_seconds(self) -> float:
        """CPU-seconds of tasks and Python workers since the application began."""
        return self.executor_seconds() + self.python_seconds()

    def executor_seconds(self) -> float:
        """CPU-seconds of the threads that ran tasks that have ended."""
        if self._counter is not None:
            return float(self._counter.getCount()) / 1e9
        assert self._stages is not None
        return self._stages.nanoseconds() / 1e9

    def python_seconds(self) -> float:
        """CPU-seconds of the Python workers of this application, as far as they run on this machine."""
        for parent in self._parents():
            for pid in self._children(parent):
                if _MARK in self._read(pid, "cmdline"):
                    for process in (pid, *self._children(pid)):
                        if found := self._stat(process):
                            self._seen[process, found[0]] = found[1]
        for pid, started in [key for key in self._seen if not self._runs(*key)]:
            self._gone += self._seen.pop((pid, started))
        return (self._gone + sum(self._seen.values())) / self._ticks

    def _stat(self, pid: int) -> tuple[str, int] | None:
        """Start time and ticks used of a process; process ids come round again, start times with them do not."""
        text = self._read(pid, "stat").decode(errors="replace")
        if not text:
            return None
        # The command in brackets may hold anything, brackets and blanks included.
        fields = text[text.rindex(")") + 2 :].split()
        return fields[19], int(fields[11]) + int(fields[12])

    def _runs(self, pid: int, started: str) -> bool:
        found = self._stat(pid)
        return found is not None and found[0] == started

    def _parents(self) -> Iterator[int]:
        """The processes that start Python workers: the driver's JVM, and executors on this machine."""
        yield self._driver
        if self._app is None:
            return
        for entry in self._proc.iterdir():
            if entry.name.isdigit():
                command = self._read(int(entry.name), "cmdline")
                if _EXECUTOR in command and self._app in command:
                    yield int(entry.name)

    def _children(self, pid: int) -> list[int]:
        found: list[int] = []
        try:
            threads = list((self._proc / str(pid) / "task").iterdir())
        except OSError:
            return found
        for thread in threads:
            found += map(int, self._read(pid, f"task/{thread.name}/children").split())
        return found

    def _read(self, pid: int, name: str) -> bytes:
        try:
            return (self._proc / str(pid) / name).read_bytes()
        except OSError:
            return b""  # ended since it was listed


def _task_counter(jvm: Any) -> Any:
    """The local executor's counter of its tasks' CPU time; None if this Spark keeps none."""
    source = jvm.org.apache.spark.executor.Executor.executorSourceLocalModeOnly()
    return None if source is None else source.metricRegistry().getCounters().get("cpuTime")


class StageClock:
    """The sum of executorCpuTime over stages, in nanoseconds; stages that the store has forgotten stay counted.

    The store keeps the last thousand stages; of older ones only their sum is kept here.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._known: dict[tuple[int, int], int] = {}
        self._ended: set[tuple[int, int]] = set()
        self._forgotten = 0

    def nanoseconds(self) -> int:
        """Of all stages that have begun."""
        stages = self._store.stageList(None, False, False, _no_quantiles(self._store), None)
        listed: dict[tuple[int, int], int] = {}
        for index in range(stages.size()):
            stage = stages.apply(index)
            key = (int(stage.stageId()), int(stage.attemptId()))
            listed[key] = self._known[key] if key in self._ended else int(stage.executorCpuTime())
            if key not in self._ended and str(stage.status()) in ("COMPLETE", "FAILED", "SKIPPED"):
                self._ended.add(key)
        self._forgotten += sum(taken for key, taken in self._known.items() if key not in listed)
        self._known = listed
        self._ended &= listed.keys()
        return self._forgotten + sum(listed.values())


def has_clock(proc: Path = PROC) -> bool:
    """Whether this system tells the CPU time of Python workers."""
    return (proc / "self" / "stat").exists()


def cpu_meter(spark: SparkSession, *, proc: Path = PROC) -> CpuMeter | None:
    """A meter where there can be one; elsewhere None, said once: a job runs without, only its costs stay as declared.

    `floodway measure`, which is for nothing but costs, uses `CpuMeter` and is refused there.
    """
    if has_clock(proc):
        return CpuMeter(spark, proc=proc)
    log.warning("no %s/self/stat on this system: costs are not refined while the job runs", proc)
    return None


def _no_quantiles(store: Any) -> Any:
    return getattr(store, "stageList$default$4")()
