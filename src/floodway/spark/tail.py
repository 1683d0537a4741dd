"""The tail of a fragment: one micro-batch through its operators, drops and sinks, every tuple counted.

Runs inside `foreachBatch`, on an ordinary DataFrame. What a split emits is computed once, kept for the
length of the
batch, and counted with its branches in one job; the counts are exact because the drops are pure functions of
the tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from floodway.network.model import Arc, Network
from floodway.spark.drops import arc_drop, arc_kept
from floodway.spark.fragments import Fragment
from floodway.spark.operators import apply_operator
from floodway.spark.sinks import Written

WriteSink = Callable[[DataFrame, str], Written]


@dataclass
class TailResult:
    """Counts of one batch: (offered, kept) on every branch, and what each sink got (outputs and cut arcs by
    name)."""

    branches: dict[str, tuple[int, int]] = field(default_factory=dict)
    delivered: dict[str, Written] = field(default_factory=dict)


def run_tail(
    network: Network, fragment: Fragment, heads: Mapping[str, DataFrame], write: WriteSink
) -> TailResult:
    """Push a batch through the tail. `heads` are DataFrames by producer: sources, or the zone's last
    operator."""
    result = TailResult()
    with _kept_frames() as keep:
        frames: dict[str, DataFrame] = {}
        for name, head in heads.items():
            frames[name] = _counted(network, fragment, name, head, result, keep)
        for name in fragment.tail:
            operator = network.operators[name]
            inputs = [_on_arc(network, frames, Arc(p, name)) for p in operator.inputs]
            frames[name] = _counted(network, fragment, name, apply_operator(operator, inputs), result, keep)
        for output in fragment.outputs:
            arc = Arc(network.outputs[output].source, output)
            result.delivered[output] = write(_on_arc(network, frames, arc), output)
        for arc in fragment.cut:
            result.delivered[str(arc)] = write(_on_arc(network, frames, arc), str(arc))
    return result


def _on_arc(network: Network, frames: Mapping[str, DataFrame], arc: Arc) -> DataFrame:
    """What flows on an arc: all of it, or what the drop on a branch leaves."""
    frame = frames[arc.producer] if arc.producer in frames else frames[str(arc)]
    return arc_drop(frame, str(arc)) if _has_drop(network, frame, arc) else frame


def _has_drop(network: Network, frame: DataFrame, arc: Arc) -> bool:
    return network.is_split(arc.producer) and f"_keep:{arc}" in frame.columns


def _counted(
    network: Network,
    fragment: Fragment,
    name: str,
    frame: DataFrame,
    result: TailResult,
    keep: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    """Hold on to what several consumers read, and count what each branch is offered and keeps."""
    here = {*fragment.tail, *fragment.outputs, *(arc.consumer for arc in fragment.cut)}
    branches = [Arc(name, consumer) for consumer in network.consumers.get(name, ()) if consumer in here]
    if len(branches) < 2:
        return frame
    held = keep(frame)
    dropping = [arc for arc in branches if _has_drop(network, held, arc)]
    counts = held.agg(
        fn.count(fn.lit(1)).alias("offered"),
        *[fn.count_if(arc_kept(held, str(arc))).alias(str(i)) for i, arc in enumerate(dropping)],
    ).toArrow()
    offered = int(counts.column("offered")[0].as_py())
    for i, arc in enumerate(dropping):
        result.branches[str(arc)] = (offered, int(counts.column(str(i))[0].as_py()))
    return held


@contextmanager
def _kept_frames() -> Iterator[Callable[[DataFrame], DataFrame]]:
    held: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        held.append(frame.persist())
        return frame

    try:
        yield keep
    finally:
        for frame in held:
            frame.unpersist()
