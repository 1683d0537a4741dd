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

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from floodway.errors import InputError

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
        if not (proc / "self" / "stat").exists():
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
        self._stages = None if self._counter is not None else _StageClock(context._jsc.sc().statusStore())
        self._app = None if local else context.applicationId.encode()
        # Ticks of every daemon and worker ever seen: one that is gone keeps its last figure, so readings never fall.
        # The daemon ignores its children's end, so the kernel adds their time to nobody.
        self._seen: dict[tuple[int, str], int] = {}

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
                        self._note(process)
        return sum(self._seen.values()) / self._ticks

    def _note(self, pid: int) -> None:
        """The ticks that a process has used; process ids come round again, start times with them do not."""
        text = self._read(pid, "stat").decode(errors="replace")
        if text:
            # The command in brackets may hold anything, brackets and blanks included.
            fields = text[text.rindex(")") + 2 :].split()
            self._seen[pid, fields[19]] = int(fields[11]) + int(fields[12])

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


class _StageClock:
    """The sum of executorCpuTime over stages, in nanoseconds; stages that the store has forgotten stay counted."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._ended: dict[tuple[int, int], int] = {}

    def nanoseconds(self) -> int:
        """Of all stages that have begun."""
        running = 0
        stages = self._store.stageList(None, False, False, _no_quantiles(self._store), None)
        for index in range(stages.size()):
            stage = stages.apply(index)
            key = (int(stage.stageId()), int(stage.attemptId()))
            if key in self._ended:
                continue
            if str(stage.status()) in ("COMPLETE", "FAILED", "SKIPPED"):
                self._ended[key] = int(stage.executorCpuTime())
            else:
                running += int(stage.executorCpuTime())
        return running + sum(self._ended.values())


def _no_quantiles(store: Any) -> Any:
    return getattr(store, "stageList$default$4")()
