"""What a dropped tuple costs, in CPU, against one that is processed.

The same log is run through one query at keep 1, at keep 1% by hash and at keep 1% by range, each in one micro-batch; a
tiny log tells what a run costs whatever it holds. With N tuples, keep k and CPU-seconds C(k),

    processed  p = (C(1) − C(tiny)) / N
    dropped    d = (C(k) − C(tiny) − k·N·p) / ((1 − k)·N)

CPU is that of Spark's tasks and of all Python workers (`spark/measure/cpu.py`): reading, dropping, handing over to the
JVM, the query. `whole process tree` in the detail is the JVM with its compiler and garbage collector too, from /proc.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import BenchError, Frame, Workbench, workbench
from floodway.experiments.result import Progress
from floodway.job.decision import Drop, JobDecision, StreamDecision, write_decision
from floodway.spark.measure.cpu import CpuMeter
from floodway.spark.session.session import Session
from floodway.units import PPM

GOAL = 0.05
KEEP_PPM = 10_000
TUPLES, TINY = 2_000_000, 1_000
JSON_SCHEMA = "user string, page string, price double, ok boolean"


def count_tuples(batch: Frame, number: int) -> None:
    """The cheapest query there is: how many tuples came."""
    batch.count()


def parse_json(batch: Frame, number: int) -> None:
    """Parse the body, filter, and hand over what is left to a sink that discards it."""
    parsed = batch.selectExpr("id", f"from_json(body, '{JSON_SCHEMA}') AS b").where("b.ok AND b.price > 10")
    parsed.selectExpr("id", "b.user", "upper(b.page) AS page", "b.price").write.format("noop").mode("overwrite").save()


class ProcessTree:
    """CPU seconds of the driver's JVM as a whole, and of the Python workers."""

    def __init__(self, spark: Session, workers: CpuMeter) -> None:
        jvm: Any = spark._jvm
        self._stat = Path("/proc") / str(jvm.java.lang.ProcessHandle.current().pid()) / "stat"
        self._workers = workers

    def cpu_seconds(self) -> float:
        """Since the JVM began."""
        fields = self._stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + self._workers.python_seconds()


def _drop_cpu(
    identifier: str, query: Callable[[Frame, int], None], what: str, *, long: bool, progress: Progress
) -> BenchResult:
    repeats = 7 if long else 3
    runs: dict[str, tuple[int, Drop]] = {"processed": (PPM, "hash"), "range": (KEEP_PPM, "range")}
    runs["hash"] = (KEEP_PPM, "hash")
    tasks: dict[str, list[float]] = {name: [] for name in ("tiny", *runs)}
    whole: dict[str, list[float]] = {name: [] for name in tasks}
    with workbench(identifier) as bench:
        log, tiny = bench.log(TUPLES), bench.log(TINY)
        meter = CpuMeter(bench.spark)
        tree = ProcessTree(bench.spark, meter)
        for turn in range(repeats + 1):
            for name in tasks:
                keep_ppm, drop = runs.get(name, (PPM, "hash"))
                before = meter.cpu_seconds(), tree.cpu_seconds()
                _run(bench, tiny if name == "tiny" else log, query, keep_ppm, drop)
                after = meter.cpu_seconds(), tree.cpu_seconds()
                if turn > 0:  # the first turn warms up
                    tasks[name].append(after[0] - before[0])
                    whole[name].append(after[1] - before[1])
            progress((turn + 1) / (repeats + 1))
    processed, by_range, by_hash = _per_tuple(tasks)
    return BenchResult(
        id=identifier,
        ours=rounded(by_hash),
        peer=rounded(processed),
        ratio=rounded(by_hash / processed),
        goal=f"ours / peer <= {GOAL:g}",
        holds=by_hash / processed <= GOAL,
        unit="CPU µs a tuple",
        detail={
            "peer": f"a tuple of about 110 bytes {what}",
            "ours": "a tuple dropped by hash, the default, at keep 1%",
            "dropped by range": {"ours": rounded(by_range), "ratio": rounded(by_range / processed)},
            "seconds of tasks and Python": {name: rounded(median(values)) for name, values in tasks.items()},
            "seconds of the whole process tree": {name: rounded(median(values)) for name, values in whole.items()},
            "tuples": TUPLES,
        },
    )


def _per_tuple(seconds: dict[str, list[float]]) -> tuple[float, float, float]:
    """Microseconds of a processed tuple, and of one dropped by range and by hash."""
    keep = KEEP_PPM / PPM
    tiny, whole = median(seconds["tiny"]), median(seconds["processed"])
    processed = (whole - tiny) / TUPLES
    if processed <= 0:
        raise BenchError("processing took no CPU time that could be seen", hint="Run on a quieter machine")
    dropped = [
        (median(seconds[name]) - tiny - keep * TUPLES * processed) / ((1 - keep) * TUPLES) for name in ("range", "hash")
    ]
    return processed * 1e6, dropped[0] * 1e6, dropped[1] * 1e6


def _run(bench: Workbench, log: Path, query: Callable[[Frame, int], None], keep_ppm: int, drop: Drop) -> None:
    decision = bench.fresh("decision").with_suffix(".json")
    write_decision(decision, JobDecision("bench", "enforce", 7, {"s": StreamDecision(keep_ppm)}, {}, drop))
    bench.drain(bench.stream(log, decision=str(decision)), query)


against_count = partial(_drop_cpu, "spark-drop-cpu-count", count_tuples, "read and counted")
against_json = partial(_drop_cpu, "spark-drop-cpu-json", parse_json, "parsed from JSON, filtered and projected")
