"""What one tuple costs one operator, measured on Spark with nothing else in the way.

The operator runs alone, in batch mode, on rows that lie ready in memory, at sizes n, 2n and 4n; so does the identity,
on the same rows. With C(n) the CPU-seconds of tasks and Python workers (`spark/measure/cpu.py`),

    cost = slope of C_operator(n) − slope of C_identity(n)        CPU-seconds per input tuple

What is attributed where:

- *Job start*, task start, code generation and worker start are the same at every size: they stay in the intercept.
- *Reading the rows* is in both slopes and cancels. The rows are a local checkpoint, so reading walks an array: a cached
  table would decode columns, and only those that the operator asks for.
- *Row-to-Arrow conversion and the Python worker* belong to the operator that needs them, in both directions: two Python
  operators in a row convert twice, alone as in a chain.
- *The sink* discards. An operator that emits fewer tuples than it reads is credited what discarding the rest would have
  cost, about 50 ns each; a result below 0 is given as 0.
- *Aggregates and joins* are measured with their shuffle but without the state store, whose cost goes with groups and
  batches, not with tuples; the regression on a running node (`planning/costs.py`) finds what is missing.
- One partition means one task at a time, whatever the cores: CPU time is not blurred by tasks side by side. Adaptive
  execution is off meanwhile, as it is in a stateful micro-batch: plans must not change with the size.

The size follows from a pilot: as many tuples as fill `Effort.seconds` of CPU at 4n, so that the 10 ms clock ticks of
Python workers matter little, and a sample that is too small is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.planning.costs import slope
from floodway.spark.measure.cpu import CpuMeter

Apply = Callable[[list[DataFrame]], DataFrame]
_PILOT_SECONDS = 0.2
_CHEAP_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to look: CPU-seconds at the largest size, repeats of each size, and the most tuples to run at once.

    Repeats are fewer for operators of seconds a tuple, and up to three times as many for those of nanoseconds.
    """

    seconds: float = 1.0
    repeats: int = 3
    most_tuples: int = 200_000


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """CPU-seconds per input tuple, and how many tuples the largest run had."""

    cost: float
    tuples: int


@dataclass(frozen=True, slots=True)
class Input:
    """One input of an operator: rows in one partition, lying ready in memory, and how many there are."""

    frame: DataFrame
    rows: int


def measure_cost(
    meter: CpuMeter, apply: Apply, inputs: Sequence[Input], effort: Effort, *, repeat_sample: bool = True
) -> OperatorCost:
    """Measure an operator on samples of its inputs; `repeat_sample` False never uses a tuple twice (joins)."""
    total = sum(item.rows for item in inputs)
    most = effort.most_tuples if repeat_sample else min(total, effort.most_tuples)
    guess = _pilot(meter, apply, inputs, most, effort)
    unit = max(1, int(min(effort.seconds / max(guess, 1e-12), most) // 4))
    sizes = sorted({min(unit * factor, max(most, factor)) for factor in (1, 2, 4)})
    # A dear operator (seconds a tuple) is measured once at each size: its CPU time drowns what varies. A cheap one, for
    # which even the most tuples take little time, is measured more often.
    affordable = int(2 * effort.repeats * effort.seconds / (sum(sizes) * guess + 1e-12))
    repeats = max(1, min(_CHEAP_REPEATS * effort.repeats, affordable))
    operator: dict[int, list[float]] = {}
    identity: dict[int, list[float]] = {}
    with _portions(inputs, total, sizes) as portions:
        if repeats > 1:
            for frames in portions.values():
                _cpu(meter, [apply(frames)])
                _cpu(meter, frames)
        for _ in range(repeats):
            for size, frames in portions.items():
                operator.setdefault(size, []).append(_cpu(meter, [apply(frames)]))
                identity.setdefault(size, []).append(_cpu(meter, frames))
    cost = _slope(operator) - _slope(identity)
    return OperatorCost(max(0.0, cost), max(operator))


def take(item: Input, count: int) -> DataFrame:
    """Exactly `count` rows, evenly spaced over the sample (each row several times if it is too small), in one task."""
    copies = -(-count // item.rows)
    frame = item.frame
    if copies > 1:
        frame = frame.withColumn("_copy", fn.explode(fn.sequence(fn.lit(1), fn.lit(copies)))).drop("_copy")
    rows = item.rows * copies
    if rows > count:
        frame = frame.withColumn("_index", fn.monotonically_increasing_id())
        before = fn.floor(fn.col("_index") * count / rows)
        frame = frame.filter(fn.floor((fn.col("_index") + 1) * count / rows) > before).drop("_index")
    return frame.coalesce(1).localCheckpoint()


def release(frame: DataFrame) -> None:
    """Free the memory of a local checkpoint now, not when two garbage collectors have found it."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    plan.rdd().unpersist(False)


@contextmanager
def steady_plans(spark: SparkSession) -> Iterator[None]:
    """Adaptive execution off for the length of the block."""
    key = "spark.sql.adaptive.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, "false")
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(key, before)


def _pilot(meter: CpuMeter, apply: Apply, inputs: Sequence[Input], most: int, effort: Effort) -> float:
    """A first idea of the cost, from ever larger runs until one takes long enough to tell."""
    total = sum(item.rows for item in inputs)
    size, enough = 1, min(_PILOT_SECONDS, effort.seconds)
    while True:
        with _portions(inputs, total, [size]) as portions:
            ((tuples, frames),) = portions.items()
            seconds = _cpu(meter, [apply(frames)])
            if seconds >= enough:  # perhaps only because it was the first
                seconds = min(seconds, _cpu(meter, [apply(frames)]))
        if seconds >= enough or size >= most:
            return seconds / tuples
        size = min(most, int(size * min(32.0, max(4.0, 2 * enough / max(seconds, 1e-3)))))


@contextmanager
def _portions(inputs: Sequence[Input], total: int, sizes: Sequence[int]) -> Iterator[dict[int, list[DataFrame]]]:
    """For each size frames with that many tuples in all, shared out as the inputs' samples are."""
    portions: dict[int, list[DataFrame]] = {}
    try:
        for size in sizes:
            counts = [max(1, round(size * item.rows / total)) for item in inputs]
            frames = [take(item, count) for item, count in zip(inputs, counts, strict=True)]
            portions[sum(counts)] = frames
        yield portions
    finally:
        for frames in portions.values():
            for frame in frames:
                release(frame)


def _cpu(meter: CpuMeter, frames: Sequence[DataFrame]) -> float:
    before = meter.cpu_seconds()
    for frame in frames:
        frame.write.format("noop").mode("overwrite").save()
    return meter.cpu_seconds() - before


def _slope(seconds: dict[int, list[float]]) -> float:
    # The least of the repeats: other processes on the machine (cold caches, a shared core) only ever add.
    return slope(list(seconds), [min(values) for values in seconds.values()])
