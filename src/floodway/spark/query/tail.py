"""The tail of a fragment: one micro-batch through its operators, drops and sinks, every tuple counted.

Runs inside `foreachBatch`, on an ordinary DataFrame. What a split emits is computed once and kept for the length of
the batch; its branches are counted on the way past, in the same job that writes the sinks. The counts are exact
because the drops are pure functions of the tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as fn

from floodway.network.model import Arc, Network
from floodway.spark.query.count_join import JoinWindows
from floodway.spark.query.drops import arc_drop, arc_kept, column, literal, quoted
from floodway.spark.query.fragments import Fragment
from floodway.spark.query.operators import apply_chain
from floodway.spark.query.python_pass.steps import chains
from floodway.spark.query.sinks import Written

TAG = "_source"
"""Which source a row is of, where a query has several: the row is a struct in the column of that name."""
NO_CONDITIONS: Mapping[Arc, str] = {}
WriteSinks = Callable[[Mapping[str, DataFrame]], dict[str, Written]]


@dataclass
class TailResult:
    """Counts of one batch: (offered, kept) on every branch, and what each sink (output or cut arc) got."""

    branches: dict[str, tuple[int, int]] = field(default_factory=dict)
    delivered: dict[str, Written] = field(default_factory=dict)


def run_tail(
    network: Network,
    fragment: Fragment,
    heads: Mapping[str, DataFrame],
    write: WriteSinks,
    conditions: Mapping[Arc, str] = NO_CONDITIONS,
    joins: Callable[[str], JoinWindows] | None = None,
) -> TailResult:
    """Push a batch through the tail. `heads` are DataFrames by producer: sources, or the zone's last operator.

    `conditions` are SQL, by arc: which windows may leave. `joins` gives the windows of a join by its name.
    """
    tail = _Tail(network, fragment, conditions)
    try:
        for name, head in heads.items():
            tail.add(name, head)
        for first, *others in chains(network, fragment.tail):
            operator = network.operators[first]
            windows = joins(first) if joins is not None else None
            inputs = [tail.on_arc(Arc(p, first)) for p in operator.inputs]
            following = [network.operators[name] for name in others]
            tail.add([first, *others][-1], apply_chain([operator, *following], inputs, windows))
        delivered = write({sink: tail.on_arc(arc) for sink, arc in sink_arcs(network, fragment).items()})
        return TailResult(tail.counts() if delivered else {}, delivered)
    finally:
        tail.release()


def tagged(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Sources with different columns as one DataFrame: each row carries its own struct and its source's name."""
    rows = [
        df.select(fn.lit(name).alias(TAG), fn.struct(*[column(c) for c in df.columns]).alias(name))
        for name, df in frames.items()
    ]
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), rows)


def untagged(rows: DataFrame, names: Iterable[str]) -> dict[str, DataFrame]:
    """The sources in such a DataFrame."""
    return {name: rows.filter(f"{TAG} = {literal(name)}").select(f"{quoted(name)}.*") for name in names}


def sink_arcs(network: Network, fragment: Fragment) -> dict[str, Arc]:
    """The sinks of a fragment, outputs and cut arcs, each with the arc that leads there."""
    sinks = {output: Arc(network.outputs[output].source, output) for output in fragment.outputs}
    return sinks | {str(arc): arc for arc in fragment.cut}


class _Tail:
    """The frames of one batch by producer, those held for several readers, and the counters on their branches."""

    def __init__(self, network: Network, fragment: Fragment, conditions: Mapping[Arc, str]) -> None:
        self._network = network
        self._conditions = conditions
        self._here = {*fragment.tail, *fragment.outputs, *(arc.consumer for arc in fragment.cut)}
        self._frames: dict[str, DataFrame] = {}
        self._held: list[DataFrame] = []
        self._counters: dict[str, tuple[Observation, list[Arc]]] = {}
        self._counting: set[str] = set()

    def add(self, name: str, frame: DataFrame) -> None:
        """Take what a producer emits; hold on to it if several consumers here read it, count what branches drop."""
        branches = [Arc(name, c) for c in self._network.consumers.get(name, ()) if c in self._here]
        if len(branches) > 1:
            self._held.append(frame.persist())
        # One branch alone drops too: those beside it may be another query's.
        dropping = [arc for arc in branches if f"_keep:{arc}" in frame.columns]
        if dropping and self._network.is_split(name):
            self._counters[name] = (Observation(), dropping)
        self._frames[name] = frame

    def on_arc(self, arc: Arc) -> DataFrame:
        """What flows on an arc: all of it, or what the drop on a branch leaves.

        The first branch taken carries the counter of all of them: every tuple passes it exactly once.
        """
        frame = self._frames[arc.producer] if arc.producer in self._frames else self._frames[str(arc)]
        counter = self._counters.get(arc.producer)
        if counter is not None and arc.producer not in self._counting:
            self._counting.add(arc.producer)
            kept = [f"count_if({arc_kept(frame, str(branch))}) AS {quoted(str(branch))}" for branch in counter[1]]
            frame = frame.observe(counter[0], *map(fn.expr, ["count(1) AS offered", *kept]))
        if self._network.is_split(arc.producer) and f"_keep:{arc}" in frame.columns:
            return arc_drop(frame, str(arc))
        return frame.filter(self._conditions[arc]) if arc in self._conditions else frame

    def counts(self) -> dict[str, tuple[int, int]]:
        """(offered, kept) on every branch with a drop; waits for the job that wrote the sinks."""
        found: dict[str, tuple[int, int]] = {}
        for observation, branches in self._counters.values():
            values = observation.get
            found.update((str(arc), (values["offered"], values[str(arc)])) for arc in branches)
        return found

    def release(self) -> None:
        """Let go of what was held."""
        for frame in self._held:
            frame.unpersist()
