"""From ranges to the record batches that Spark gets: drop, add the source's columns, join small pieces.

Columns after the payload: `_id`, `_arrival`, `_weight` (1/keep, for unbiased estimates), or those of them that the
option `added` names, and `_keep:<arc>` in ppm for each arc asked for: of the arc, or, where it drops by windows, all or
nothing for the tuple. Windows that leave are whole, so their tuples weigh 1; with drops by key a tuple weighs what its
key's do. Spark does not tell a Python source which
columns a query reads, and every column sent costs some 20 ns of CPU a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodway.spark.log.schema import ARRIVAL, TIMESTAMP
from floodway.spark.source.accounts import Part
from floodway.spark.source.backend import Piece, Readable
from floodway.spark.source.complement import dropped
from floodway.spark.source.drops import kept_mask, tuple_ids
from floodway.spark.source.keys import KeyFates
from floodway.spark.source.offsets import Admission, BatchOffset, KeyRule, Range, WindowRule
from floodway.spark.source.options import ADDED, ID, WEIGHT
from floodway.spark.source.windows import passing
from floodway.units import PPM

AT = "_at"
TARGET_ROWS = 32_768
MIN_SPLIT_TUPLES = 20_000


def output_schema(
    payload: pa.Schema, arcs: Sequence[str], added: Sequence[str] = ADDED, *, with_place: bool = False
) -> pa.Schema:
    """The columns of `format("floodway")`; `with_place` adds the place of each tuple's batch among those asked for."""
    types = {ID: pa.int64(), ARRIVAL: TIMESTAMP, WEIGHT: pa.float64()}
    fields = [
        *(pa.field(name, kind, nullable=False) for name, kind in types.items() if name in added),
        *(pa.field(f"_keep:{arc}", pa.int32(), nullable=False) for arc in arcs),
        *([pa.field(AT, pa.int32(), nullable=False)] if with_place else []),
    ]
    return pa.schema([*payload, *fields])


def split_ranges(ranges: Sequence[Range], admission: Admission, splits: int) -> list[list[Range]]:
    """Cut a micro-batch into at most `splits` parts of about equal size, none of them too small to be worth a task.

    >>> split_ranges([(0, 0, 50_000), (1, 0, 10_000)], Admission(), 2)
    [[(0, 0, 30000)], [(0, 30000, 50000), (1, 0, 10000)]]
    """
    total = sum(end - start for _, start, end in ranges)
    if total == 0:
        return []
    if admission.keys is not None and admission.keys.keep_rare:
        # Which tuples are the first of their keys can only be said from the start of a range on.
        return [[one] for one in ranges]
    worth = -(-total * max(admission.keep_ppm, 1) // PPM) // MIN_SPLIT_TUPLES
    parts = max(1, min(splits, worth))
    size = -(-total // parts)
    cut: list[list[Range]] = [[]]
    room = size
    for partition, first, end in ranges:
        start = first
        while start < end:
            if room == 0:
                cut.append([])
                room = size
            stop = min(end, start + room)
            cut[-1].append((partition, start, stop))
            room -= stop - start
            start = stop
    return cut


def admit(
    backend: Readable,
    ranges: Sequence[Range],
    admission: Admission,
    arcs: Mapping[str, int | WindowRule],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The kept tuples of the ranges with the source's columns, in the shape of `schema`."""
    for partition, start, end in ranges:
        adaptor_ppm = admission.adaptor_ppm(partition, start)
        pieces = _kept(partition, backend.read(partition, _runs(partition, start, end, admission)), admission)
        if admission.windows is not None:
            pieces = _windowed(pieces, admission.windows)
        if admission.keys is not None:
            pieces = _keyed(pieces, admission.keys, admission.salt)
        if adaptor_ppm < PPM:
            pieces = _hashed(pieces, admission.adaptor_salt, adaptor_ppm)
        for ids, batch in joined(pieces):
            yield _finished(ids, batch, admission, adaptor_ppm, arcs, schema)


def refused(backend: Readable, offset: BatchOffset, part: Part, at: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The dropped tuples of a part of a batch, which is number `at` of those asked for."""
    whole = pa.schema([column for column in schema if column.name != AT])
    for ids, batch in joined(dropped(backend, offset, part)):
        finished = _finished(ids, batch, Admission(), PPM, {}, whole)
        yield pa.RecordBatch.from_arrays([*finished.columns, pa.array(np.full(len(ids), at, np.int32))], schema=schema)


def _kept(partition: int, pieces: Iterator[Piece], admission: Admission) -> Iterator[Piece]:
    """Identities in place of sequence numbers, and what the drop by hash leaves of the pieces."""
    named = ((tuple_ids(partition, sequence), batch) for sequence, batch in pieces)
    by_hash = admission.drop == "hash" and admission.keep_ppm < PPM
    return _hashed(named, admission.salt, admission.keep_ppm) if by_hash else named


def _hashed(pieces: Iterator[Piece], salt: int, keep_ppm: int) -> Iterator[Piece]:
    for ids, batch in pieces:
        rows = np.flatnonzero(kept_mask(ids, salt=salt, keep_ppm=keep_ppm))
        if len(rows):
            yield ids[rows], batch.take(pa.array(rows))


def _windowed(pieces: Iterator[Piece], rule: WindowRule) -> Iterator[Piece]:
    for ids, batch in pieces:
        rows = np.flatnonzero(passing(rule, ids, batch))
        if len(rows):
            yield ids[rows], batch.take(pa.array(rows))


def _keyed(pieces: Iterator[Piece], rule: KeyRule, salt: int) -> Iterator[Piece]:
    """What the quotas of keys leave of a range's pieces, with the weights as a last column."""
    fates = KeyFates(rule, salt)
    for ids, batch in pieces:
        kept, keeps_ppm, _ = fates.of_piece(ids, batch)
        rows = np.flatnonzero(kept)
        if len(rows):
            weights = pa.array(PPM / keeps_ppm[rows])
            yield ids[rows], batch.take(pa.array(rows)).append_column(WEIGHT, weights)


def _runs(partition: int, start: int, end: int, admission: Admission) -> list[tuple[int, int]]:
    if admission.keep_ppm <= 0:
        return []
    if admission.drop == "range":
        return admission.runs(partition, start, end)
    return [(start, end)]


def joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Join small pieces up to TARGET_ROWS: each batch costs Spark a fixed amount, whatever it holds."""
    held: list[Piece] = []
    rows = 0
    for piece in pieces:
        held.append(piece)
        rows += piece[1].num_rows
        if rows >= TARGET_ROWS:
            yield _join(held)
            held, rows = [], 0
    if held:
        yield _join(held)


def _join(held: list[Piece]) -> Piece:
    if len(held) == 1:
        return held[0]
    return np.concatenate([ids for ids, _ in held]), pa.concat_batches([batch for _, batch in held])


def _repeated(weight: float, rows: int) -> pa.Array:
    """The same weight for every row; a micro-batch has one weight and many pieces, so the array is made once."""
    room = _same_weight(weight, max(TARGET_ROWS, 1 << (rows - 1).bit_length()))
    return room.slice(0, rows)


@lru_cache(maxsize=4)
def _same_weight(weight: float, rows: int) -> pa.Array:
    return pa.array(np.full(rows, weight))


def _finished(
    ids: npt.NDArray[np.int64],
    batch: pa.RecordBatch,
    admission: Admission,
    adaptor_ppm: int,
    arcs: Mapping[str, int | WindowRule],
    schema: pa.Schema,
) -> pa.RecordBatch:
    rows = len(ids)
    by_key = batch.columns[-1] if admission.keys is not None else None
    *payload, arrival = batch.columns if by_key is None else batch.columns[:-1]
    columns = list(payload)
    if ID in schema.names:
        columns.append(pa.array(ids))
    if ARRIVAL in schema.names:
        columns.append(arrival)
    if WEIGHT in schema.names:
        weight = PPM / (admission.keep_ppm * adaptor_ppm / PPM)
        columns.append(_repeated(weight, rows) if by_key is None else by_key)
    for keep in arcs.values():
        found = passing(keep, ids, batch) * PPM if isinstance(keep, WindowRule) else np.full(rows, keep)
        columns.append(pa.array(found.astype(np.int32)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
