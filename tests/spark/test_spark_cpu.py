"""CPU meters: what they remember stays small, what has ended stays counted, and a job runs where there is none."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from floodway.spark.measure.cpu import CpuMeter, StageClock, cpu_meter


class Stage(SimpleNamespace):
    """A stage as Spark's status store has it, with the methods that are asked for."""

    def __init__(self, number: int, spent: int, state: str = "COMPLETE") -> None:
        self.spent = spent
        self.stageId = lambda: number
        self.attemptId = lambda: 0
        self.status = lambda: state
        self.executorCpuTime = lambda: self.spent


class Store(SimpleNamespace):
    """The store: the latest stages, as a Scala sequence gives them."""

    def __init__(self, *stages: Stage) -> None:
        self.stages = list(stages)
        listed = SimpleNamespace(size=lambda: len(self.stages), apply=lambda index: self.stages[index])
        self.stageList = lambda *_: listed
        setattr(self, "stageList$default$4", lambda: None)


def test_stages_that_the_store_forgets_stay_counted_and_are_not_remembered() -> None:
    store = Store()
    clock = StageClock(store)
    for number in range(500):
        store.stages = [*store.stages, Stage(number, 10)][-20:]
        assert clock.nanoseconds() == 10 * (number + 1)
    assert len(clock._known) == len(clock._ended) == 20


def test_a_running_stage_counts_with_what_it_has_used_so_far() -> None:
    running = Stage(0, 5, "ACTIVE")
    store = Store(running)
    clock = StageClock(store)
    assert clock.nanoseconds() == 5
    running.spent = 9
    assert clock.nanoseconds() == 9
    store.stages = [Stage(1, 1)]
    assert clock.nanoseconds() == 10


def test_without_proc_a_job_runs_and_says_what_it_goes_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nothing = cast(SparkSession, object())  # no session is asked for anything
    with caplog.at_level(logging.WARNING):
        assert cpu_meter(nothing, proc=tmp_path) is None
    (record,) = caplog.records
    assert "costs are not refined" in record.getMessage()


def process(proc: Path, pid: int, started: int, ticks: int, children: str = "") -> None:
    folder = proc / str(pid) / "task" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "children").write_text(children)
    (proc / str(pid) / "cmdline").write_text("python -m pyspark.daemon")
    fields = ["S", *["0"] * 10, str(ticks), "0", *["0"] * 6, str(started)]
    (proc / str(pid) / "stat").write_text(f"{pid} (py (x) y) {' '.join(fields)}")


def test_workers_that_have_ended_stay_counted_and_are_not_remembered(tmp_path: Path) -> None:
    meter = CpuMeter.__new__(CpuMeter)
    meter._proc, meter._ticks, meter._driver, meter._app = tmp_path, 100, 1, None
    meter._seen, meter._gone = {}, 0
    process(tmp_path, 1, 0, 0, "2")
    for number in range(50):  # one worker after the other under the daemon 2, ids come round again
        worker = 100 + number % 3
        process(tmp_path, 2, 0, 0, str(worker))
        process(tmp_path, worker, started=number, ticks=10)
        assert meter.python_seconds() == pytest.approx((number + 1) * 0.1)
    assert len(meter._seen) <= 4
