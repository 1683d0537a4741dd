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
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from floodway.errors import InputError

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
