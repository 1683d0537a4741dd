"""Default operators and the drops between them as steps of one pass of Python.

A default operator keeps a tuple's columns: it waits, and passes a share of the tuples on. So several of them in a row
need one Python worker, and the tuples go there and back once. What stays is decided as in Spark's own expressions
(`drops.py`), so a chain gives the same tuples in one pass as operator by operator.

    PassStep("enrich", "billing", drop="enrich->billing", cost_seconds=0.0025)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from floodway.network.model import Network, Operator, OperatorKind
from floodway.spark.query.python_pass.slots import slots_ppm
from floodway.units import PPM

ID, WEIGHT = "_id", "_weight"
_DEFAULT = frozenset({OperatorKind.MAP, OperatorKind.FILTER, OperatorKind.DELAY})

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class PassStep:
    """What a consumer makes of what its producer emits: the drop on the arc, the cost, the selectivity.

    `drop` is the arc whose keep, in the column `_keep:<arc>`, applies; None where nothing is dropped. A sink is a step
    that costs nothing.
    """

    producer: str
    name: str
    drop: str | None = None
    cost_seconds: float = 0.0
    selectivity: float = 1.0

    @property
    def draws(self) -> bool:
        """Whether tuples stay or go by the hash of their identity."""
        return self.drop is not None or self.selectivity % 1.0 != 0.0

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What the drop leaves, with its weights."""
        if self.drop is None:
            return rows
        keeps = pc.fill_null(rows.column(f"_keep:{self.drop}"), PPM).to_numpy(zero_copy_only=False)
        left = _taken(rows, np.flatnonzero(slots_ppm(identities(rows), self.drop) < keeps))
        divisors = np.maximum(pc.fill_null(left.column(f"_keep:{self.drop}"), PPM).to_numpy(zero_copy_only=False), 1)
        weights = left.column(WEIGHT).to_numpy(zero_copy_only=False) * float(PPM) / divisors
        return left.set_column(left.schema.get_field_index(WEIGHT), left.schema.field(WEIGHT), pa.array(weights))

    def worked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What the operator makes of what it gets: the same tuples, some of them several times or not at all."""
        busy_wait(self.cost_seconds * rows.num_rows)
        whole, fraction = divmod(self.selectivity, 1.0)
        if fraction == 0.0 and whole == 1.0:
            return rows
        copies = np.full(rows.num_rows, int(whole))
        if fraction > 0.0:
            copies += slots_ppm(identities(rows), self.name) < round(fraction * PPM)
        return _taken(rows, np.repeat(np.arange(rows.num_rows), copies))


def is_default(operator: Operator) -> bool:
    """Whether an operator is a step: it names no function, and has one input."""
    return operator.run is None and operator.kind in _DEFAULT


def step_of(operator: Operator, producer: str, drop: str | None = None) -> PassStep:
    """A default operator as a step behind a producer."""
    selectivity = 1.0 if operator.selectivity is None else operator.selectivity
    return PassStep(producer, operator.name, drop, operator.cost or 0.0, selectivity)


def chains(network: Network, operators: Sequence[str]) -> list[tuple[str, ...]]:
    """The operators, upstream first, those together that follow each other without a branch and can be one pass.

    >>> from floodway.network.file import parse_network
    >>> chains(parse_network('''
    ... version: 1
    ... name: n
    ... streams: {s: {}}
    ... nodes: {A: {}}
    ... operators: {a: {node: A, from: s}, b: {node: A, from: a}, c: {node: A, from: b, run: "m:f"}}
    ... outputs: {q: {from: c}}
    ... '''), ["a", "b", "c"])
    [('a', 'b'), ('c',)]
    """
    found: dict[str, list[str]] = {}
    for name in operators:
        operator = network.operators[name]
        before = found.get(operator.inputs[0]) if is_default(operator) else None
        if before is not None and not network.is_split(before[-1]) and _can_begin(network.operators[before[-1]]):
            before.append(name)
            found[name] = before
        else:
            found[name] = [name]
    return list(dict.fromkeys(tuple(chain) for chain in found.values()))


def _can_begin(operator: Operator) -> bool:
    return is_default(operator) or (operator.kind is OperatorKind.UNION and operator.run is None)


def in_one_pass(steps: Sequence[PassStep]) -> Callable[[Batches], Batches]:
    """A chain of steps as a function for `mapInArrow`."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            rows = batch
            for step in steps:
                rows = step.worked(step.kept(rows))
            yield rows

    return run


def busy_wait(seconds: float) -> None:
    """Use so much CPU time of this thread: not wall time, two operators on one core must take twice as long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def identities(rows: pa.RecordBatch) -> NDArray[np.int64]:
    """The column `_id`."""
    found: NDArray[np.int64] = rows.column(ID).to_numpy(zero_copy_only=False)
    return found


def _taken(rows: pa.RecordBatch, places: NDArray[np.int64]) -> pa.RecordBatch:
    return rows.take(pa.array(places))
