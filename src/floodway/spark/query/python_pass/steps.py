"""Default operators and the drops between them as steps of one pass of Python.

A default operator keeps a tuple's columns: it waits, and passes a share of the tuples on. So several of them in a row
need one Python worker, and the tuples go there and back once. What stays is decided as in Spark's own expressions
(`drops.py`), so a chain gives the same tuples in one pass as operator by operator.

    PassStep("enrich", "billing", drop="enrich->billing", cost_seconds=0.0025)

Spark's `xxhash64` of an identity and a text, in numpy: drops by hash without a way back into Java.

    slot = xxhash64(_id, text) mod 1,000,000

A drop inside a pass of Python must fall on the tuples that the same drop in Spark's own expressions falls on
(`drops.py`). Spark hashes its columns one after the other, each with the hash before as its seed, the first with 42.
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
from floodway.units import PPM

_SEED = np.uint64(42)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE = 32

Words = NDArray[np.uint64]


def slots_ppm(ids: NDArray[np.int64], text: str) -> NDArray[np.int64]:
    """The slot in [0, 1,000,000) of every identity for a salt.

    >>> slots_ppm(np.array([1, 2, 3]), "a->b").tolist()
    [224291, 395843, 273597]
    """
    return hash_bytes(text.encode(), hash_longs(ids)).view(np.int64) % PPM


def hash_longs(values: NDArray[np.int64]) -> Words:
    """`xxhash64` of a column of 64-bit integers."""
    start = np.full(len(values), _SEED + _P5 + np.uint64(8), dtype=np.uint64)
    return _finished(_with_word(start, values.view(np.uint64)))


def hash_bytes(text: bytes, seeds: Words) -> Words:
    """`xxhash64` of one text, with a seed for every row."""
    whole = len(text) - len(text) % _STRIPE
    mixed = _stripes(text[:whole], seeds) if whole else seeds + _P5
    mixed = mixed + np.uint64(len(text))
    rest = text[whole:]
    while len(rest) >= 8:
        mixed, rest = _with_word(mixed, _word(rest[:8])), rest[8:]
    if len(rest) >= 4:
        mixed ^= _word(rest[:4]) * _P1
        mixed, rest = _rotated(mixed, 23) * _P2 + _P3, rest[4:]
    for byte in rest:
        mixed = _rotated(mixed ^ (_word(bytes([byte])) * _P5), 11) * _P1
    return _finished(mixed)


def _stripes(text: bytes, seeds: Words) -> Words:
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for at in range(0, len(text), 8):
        which = at // 8 % 4
        lanes[which] = _rotated(lanes[which] + _word(text[at : at + 8]) * _P2, 31) * _P1
    mixed = np.zeros_like(seeds)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        mixed += _rotated(lane, bits)
    for lane in lanes:
        mixed = (mixed ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    return mixed


def _word(text: bytes) -> Words:
    """Up to eight bytes, the lowest first; an array, because numpy warns when single numbers overflow."""
    return np.array([int.from_bytes(text, "little")], dtype=np.uint64)


def _with_word(mixed: Words, word: Words) -> Words:
    return _rotated(mixed ^ (_rotated(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _finished(mixed: Words) -> Words:
    mixed = (mixed ^ (mixed >> np.uint64(33))) * _P2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _P3
    return mixed ^ (mixed >> np.uint64(32))


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


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
