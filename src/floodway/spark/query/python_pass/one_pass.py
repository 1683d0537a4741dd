"""A whole tail as one pass of Python: operators, drops, counts and the logs they end in.

Where a tail has default operators only, and all its sinks are logs or links, its tuples need one Python worker: they
are read from the batch as it comes from the sources, and what comes back is what was counted and written. Nothing is
held for several readers, and Spark plans and runs one small job. Any other tail is cut into parts (`tail.py`); both
ways drop, write and count the same tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, types

from floodway.network.model import Arc, Network
from floodway.spark.query.fragments import Fragment
from floodway.spark.query.python_pass.steps import ID, WEIGHT, Batches, PassStep, is_default, step_of
from floodway.spark.query.sinks import SINK, STATS, Appender, public_names, written_of
from floodway.spark.query.tail import TAG, TailResult, sink_arcs

_OFFERED = "offered"
_FOUND = f"{STATS}, {_OFFERED} long"
"""What was written and counted: a row for a branch has what it was offered, and what it kept as `tuples`."""


@dataclass(frozen=True, slots=True)
class OnePass:
    """The steps of a tail, upstream first; its sinks are the last of them.

    `heads` are what the batch brings: its only one, or one struct each. `counted` are the branches that drop.
    """

    heads: tuple[str, ...]
    steps: tuple[PassStep, ...]
    sinks: tuple[str, ...]
    counted: tuple[str, ...]

    def run(self, batch: DataFrame, appender: Appender) -> TailResult:
        """Push a batch through it."""
        found = batch.mapInArrow(_pass(self, appender), _FOUND).toArrow()
        branches = dict.fromkeys(self.counted, (0, 0))
        for row in found.filter(pc.is_valid(found.column(_OFFERED))).to_pylist():
            offered, kept = branches[row[SINK]]
            branches[row[SINK]] = (offered + row[_OFFERED], kept + row["tuples"])
        written = found.filter(pc.is_null(found.column(_OFFERED)))
        return TailResult(branches, {sink: written_of(written, sink) for sink in self.sinks})


def one_pass(network: Network, fragment: Fragment, heads: Mapping[str, types.StructType]) -> OnePass | None:
    """The tail as one pass over heads with these columns; None where it cannot be one."""
    if not all(is_default(network.operators[name]) for name in fragment.tail):
        return None
    columns = dict(heads)
    steps: list[PassStep] = []
    sinks = sink_arcs(network, fragment)
    for name, arc in {**{at: Arc(network.operators[at].inputs[0], at) for at in fragment.tail}, **sinks}.items():
        producer = arc.producer if arc.producer in columns else str(arc)
        there = columns[producer]
        drop = str(arc) if network.is_split(arc.producer) and f"_keep:{arc}" in there.names else None
        step = PassStep(producer, name, drop) if name in sinks else step_of(network.operators[name], producer, drop)
        if step.draws and not (_is(there, ID, types.LongType) and _is(there, WEIGHT, types.DoubleType)):
            return None
        steps.append(step)
        columns[name] = there
    dropping = {step.drop for step in steps}
    branches = [str(Arc(at, to)) for at in columns for to in network.consumers.get(at, ())]
    return OnePass(tuple(heads), tuple(steps), tuple(sinks), tuple(at for at in branches if at in dropping))


def _is(columns: types.StructType, name: str, kind: type[types.DataType]) -> bool:
    return name in columns.names and isinstance(columns[name].dataType, kind)


def _pass(tail: OnePass, appender: Appender) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        offered, kept = dict.fromkeys(tail.counted, 0), dict.fromkeys(tail.counted, 0)
        results: dict[str, list[pa.RecordBatch]] = {sink: [] for sink in tail.sinks}
        for batch in batches:
            made = dict(_heads(tail.heads, batch))
            for step in tail.steps:
                if (rows := made.get(step.producer)) is None:
                    continue
                left = step.kept(rows)
                if step.drop in offered:
                    offered[step.drop] += rows.num_rows
                    kept[step.drop] += left.num_rows
                made[step.name] = step.worked(left)
            for sink in tail.sinks:
                if sink in made and made[sink].num_rows:
                    results[sink].append(_public(made[sink]))
        for sink, pieces in results.items():
            if pieces:
                stats = appender.append(sink, pa.Table.from_batches(pieces))
                yield stats.append_column(_OFFERED, pa.nulls(stats.num_rows, pa.int64()))
        for arc in tail.counted:
            yield _counts(arc, offered[arc], kept[arc])

    return run


def _counts(arc: str, offered: int, kept: int) -> pa.RecordBatch:
    """What a branch was offered and kept, in the form of what was written."""
    row = {SINK: arc, "queue": "", "arrival_ms": -1, "tuples": kept, "bytes": 0, _OFFERED: offered}
    return pa.RecordBatch.from_pylist([row])


def _heads(names: Sequence[str], batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of every head that has some in a piece of the batch."""
    if len(names) == 1:
        yield names[0], batch
        return
    for name in names:
        rows = batch.column(name).filter(pc.equal(batch.column(TAG), name))
        if len(rows):
            yield name, pa.RecordBatch.from_struct_array(rows)


def _public(rows: pa.RecordBatch) -> pa.RecordBatch:
    names = public_names(rows.schema.names, queue=True)
    return rows.select(list(names.values())).rename_columns(list(names))
