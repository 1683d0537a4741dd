"""A capped sample of what a source dropped, for people who want to see what they lose.

Which tuples a batch dropped is a function of its offset, so the sample is read afterwards, on the side, and the drop
itself stays as cheap as it is: at most `cap` tuples a batch are ever read again. The log they are saved in holds
`MOST_BYTES` at most: the newest samples stay.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from floodway.spark.log import LogWriter, Retention, create_log
from floodway.spark.log.schema import ARRIVAL
from floodway.spark.source.accounts import Part
from floodway.spark.source.backend import Readable
from floodway.spark.source.complement import kept_of
from floodway.spark.source.drops import tuple_ids
from floodway.spark.source.keys import KeyFates
from floodway.spark.source.offsets import BatchOffset, KeyRule, WindowRule
from floodway.spark.source.windows import passing

MOST_BYTES = 64 << 20
"""All that a side output may take up on the disk, a source."""


def dropped_sample(backend: Readable, offset: BatchOffset, cap: int) -> pa.Table | None:
    """The first `cap` dropped tuples of a batch with their `_id`s as `origin_id`; None if nothing was dropped."""
    pieces: list[pa.Table] = []
    for part in offset.settled():
        partition = part.partition
        room = cap - sum(piece.num_rows for piece in pieces)
        rule = offset.admission
        if rule.windows is not None and part.zone == "read":
            sequence = _unwhole(backend, rule.windows, part)[:room]
        elif rule.keys is not None and part.zone == "read":
            sequence = _over(backend, rule.keys, rule.salt, part)[:room]
        else:
            positions = np.arange(part.start, part.end, dtype=np.int64)
            sequence = positions[~kept_of(rule, part, positions)][:room]
        for ids, batch in backend.read(partition, [(int(s), int(s) + 1) for s in sequence]):
            table = pa.Table.from_batches([batch])
            pieces.append(table.append_column("origin_id", pa.array(tuple_ids(partition, ids))))
    return pa.concat_tables(pieces).combine_chunks() if pieces else None


def save_sample(path: Path, sample: pa.Table, *, stream: str, tag: str, retention: Retention | None = None) -> None:
    """Append a batch's sample to the side output at `path`, once a tag; the oldest samples go when it is full."""
    body = sample.drop_columns([ARRIVAL])
    log = create_log(path, body.schema, stream=stream)
    kept = retention or Retention()
    most = MOST_BYTES if kept.max_bytes is None else min(MOST_BYTES, kept.max_bytes)
    with LogWriter(log.path, retention=replace(kept, max_bytes=most)) as writer:
        writer.append(body, arrival=sample.column(ARRIVAL).combine_chunks(), tag=tag)


def _unwhole(backend: Readable, rule: WindowRule, part: Part) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    pieces = backend.read(part.partition, [(part.start, part.end)])
    gone = [sequence[~passing(rule, tuple_ids(part.partition, sequence), batch)] for sequence, batch in pieces]
    return np.concatenate(gone) if gone else np.zeros(0, dtype=np.int64)


def _over(backend: Readable, rule: KeyRule, salt: int, part: Part) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    fates = KeyFates(rule, salt)
    pieces = backend.read(part.partition, [(part.start, part.end)])
    gone = [sequence[~fates.of_piece(tuple_ids(part.partition, sequence), batch)[0]] for sequence, batch in pieces]
    return np.concatenate(gone) if gone else np.zeros(0, dtype=np.int64)
