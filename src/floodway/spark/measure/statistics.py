"""Costs and selectivities of a network's operators, measured one by one on a sample.

Operators are taken upstream first. Each is measured alone (`calibrate.py`) on what it would receive; then the
sample passes through it, and what comes out is the sample for those below:

    selectivity = tuples out / tuples in
    of an aggregate by window:  (groups per complete window / slide) / (tuples in / seconds of event time)
    of a join:                  matches / (w1·w2), the mean over pairs of stretches of w1 and w2 tuples

Windows that the ends of the sample cut off are left out: a short sample would have too many of them. An aggregate's
selectivity holds at the rate of the sample.

An operator that names no function *is* its cost and selectivity (`query/operators.py`): these are measured too, to be
compared, but `Statistics.applied` keeps what the file says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.errors import FloodwayError
from floodway.network.model import Network, Operator, OperatorKind
from floodway.spark.log.schema import EVENT_TIME
from floodway.spark.measure.calibrate import Effort, Input, measure_cost, release, steady_plans
from floodway.spark.measure.cpu import CpuMeter
from floodway.spark.query.operators import apply_operator
from floodway.spark.query.stream_run import shortened

_PASSAGE_SECONDS = 20.0
_LEAST_PASSAGE = 100
_JOIN_STRETCHES = 8
_DIGITS = 4


class MeasureError(FloodwayError):
    """An operator that cannot be measured on this sample."""


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """One operator: CPU-seconds per input tuple and output per input tuple, as measured and as the file says.

    `tuples` is the size of the largest run for the cost, `sampled` how many tuples passed for the selectivity.
    """

    operator: Operator
    cost: float
    selectivity: float
    tuples: int
    sampled: int
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON; ratios are measured over declared, None where nothing is declared."""
        declared = self.operator
        return {
            "kind": str(declared.kind),
            "cost": self.cost,
            "selectivity": self.selectivity,
            "tuples": self.tuples,
            "sampled": self.sampled,
            "declared_cost": declared.cost,
            "declared_selectivity": declared.selectivity,
            "cost_ratio": _ratio(self.cost, declared.cost),
            "selectivity_ratio": _ratio(self.selectivity, declared.selectivity),
            "note": self.note,
        }

    def applied(self) -> Operator:
        """The operator with what was measured, where that is not by definition what the file says."""
        operator = self.operator
        defined = operator.run is None and operator.kind is not OperatorKind.AGGREGATE
        cost = operator.cost if defined and operator.cost is not None else _rounded(self.cost)
        kept = defined and operator.selectivity is not None
        return replace(operator, cost=cost, selectivity=operator.selectivity if kept else _rounded(self.selectivity))


@dataclass(frozen=True, slots=True)
class Statistics:
    """All operators, upstream first."""

    operators: Mapping[str, OperatorStatistics]

    def applied(self, network: Network) -> Network:
        """The network with costs and selectivities filled in."""
        return replace(network, operators={name: self.operators[name].applied() for name in network.operators})


def measure_network(
    spark: SparkSession,
    network: Network,
    samples: Mapping[str, DataFrame],
    *,
    effort: Effort | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> Statistics:
    """Measure every operator on samples of the streams (one partition each, as `load_samples` gives them)."""
    effort = effort or Effort()
    meter = CpuMeter(spark)
    made = {name: Input(frame, frame.count()) for name, frame in samples.items()}
    found: dict[str, OperatorStatistics] = {}
    with steady_plans(spark):
        for name in network.order:
            operator = network.operators[name]
            progress(name)
            inputs = [made[producer] for producer in operator.inputs]
            try:
                _require_tuples(operator, inputs)
                found[name], made[name] = _measure(meter, operator, inputs, effort)
            except FloodwayError:
                raise
            except Exception as error:
                raise MeasureError(
                    f"operators.{name} failed on the sample: {shortened(error)}",
                    hint="It must run on an ordinary DataFrame with the columns its inputs give",
                ) from error
    for name in network.order:
        release(made[name].frame)
    return Statistics(found)


def _require_tuples(operator: Operator, inputs: list[Input]) -> None:
    for producer, item in zip(operator.inputs, inputs, strict=True):
        if item.rows == 0:
            raise MeasureError(
                f"operators.{operator.name} has nothing to be measured on: no tuple of the sample gets past {producer}",
                hint="Give a larger sample, or one that is like the real load",
            )


def _measure(
    meter: CpuMeter, operator: Operator, inputs: list[Input], effort: Effort
) -> tuple[OperatorStatistics, Input]:
    joining = operator.kind is OperatorKind.JOIN
    measured = measure_cost(
        meter, lambda frames: apply_operator(operator, frames), inputs, effort, repeat_sample=not joining
    )
    # What busy-waits need not do so again to pass the sample on.
    idle = replace(operator, cost=0.0) if operator.run is None else operator
    affordable = _PASSAGE_SECONDS / measured.cost if operator.run is not None and measured.cost > 0 else float("inf")
    passing = [_first(item, max(_LEAST_PASSAGE, affordable / len(inputs))) for item in inputs]
    sampled = sum(item.rows for item in passing)
    frame = apply_operator(idle, [item.frame for item in passing]).coalesce(1).localCheckpoint()
    out = Input(frame, frame.count())
    selectivity, note = out.rows / sampled, ""
    if joining and operator.windows is not None:
        selectivity = _join_selectivity(operator, passing)
    elif operator.kind is OperatorKind.AGGREGATE and operator.run is None:
        selectivity, note = _window_selectivity(operator, passing[0], out)
    return OperatorStatistics(operator, measured.cost, selectivity, measured.tuples, sampled, note), out


def _first(item: Input, most: float) -> Input:
    """The head of a sample: thinning it instead would change how many tuples fall into a window."""
    if item.rows <= most:
        return item
    return Input(item.frame.limit(int(most)).coalesce(1).localCheckpoint(), int(most))


def _window_selectivity(operator: Operator, item: Input, out: Input) -> tuple[float, str]:
    window, slide = operator.window or 1.0, operator.slide or operator.window or 1.0
    times = item.frame.agg(
        fn.unix_micros(fn.min(EVENT_TIME)).alias("first"), fn.unix_micros(fn.max(EVENT_TIME)).alias("last")
    ).toArrow()
    first, last = (times.column(name)[0].as_py() for name in ("first", "last"))
    start = fn.unix_micros(EVENT_TIME)
    complete = out.frame.filter((start >= first) & (start + round(window * 1e6) <= last))
    counts = complete.agg(fn.count(fn.lit(1)).alias("groups"), fn.count_distinct(EVENT_TIME).alias("windows")).toArrow()
    groups, windows = (int(counts.column(name)[0].as_py()) for name in ("groups", "windows"))
    if windows == 0:
        return out.rows / item.rows, "the sample holds no complete window: give a longer one for a true selectivity"
    seconds = (last - first) / 1e6 * item.rows / max(1, item.rows - 1)
    return (groups / windows / slide) / (item.rows / seconds), ""


def _join_selectivity(operator: Operator, inputs: list[Input]) -> float:
    """The share of pairs that match, over stretches of both samples as long as the join's windows."""
    assert operator.windows is not None
    lengths = [max(1, min(item.rows, round(window))) for item, window in zip(inputs, operator.windows, strict=True)]
    stretches = max(
        1, min(_JOIN_STRETCHES, *(item.rows // length for item, length in zip(inputs, lengths, strict=True)))
    )
    indexed = [item.frame.withColumn("_index", fn.monotonically_increasing_id()) for item in inputs]
    matches = 0
    for stretch in range(stretches):
        frames = []
        for frame, item, length in zip(indexed, inputs, lengths, strict=True):
            start = (item.rows - length) * stretch // max(1, stretches - 1)
            frames.append(frame.filter(fn.col("_index").between(start, start + length - 1)).drop("_index"))
        matches += apply_operator(operator, frames).count()
    return matches / (stretches * lengths[0] * lengths[1])


def _ratio(measured: float, declared: float | None) -> float | None:
    return measured / declared if declared else None


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
