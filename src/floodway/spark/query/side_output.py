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
from floodway.spark.source.drops import kept_mask, kept_runs, tuple_ids
from floodway.spark.source.offsets import Admission, BatchOffset

MOST_BYTES = 64 << 20
"""All that a side output may take up on the disk, a source."""


def dropped_sample(backend: Readable, offset: BatchOffset, cap: int) -> pa.Table | None:
    """The first `cap` dropped tuples of a batch with their `_id`s as `origin_id`; None if nothing was dropped."""
    pieces: list[pa.Table] = []
    for part in offset.parts():
        partition = part.partition
        room = cap - sum(piece.num_rows for piece in pieces)
        sequence = _dropped(offset.admission, part)[:room]
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


def _dropped(admission: Admission, part: Part) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    sequence = np.arange(part.start, part.end, dtype=np.int64)
    if part.zone != "read":
        return sequence
    ids = tuple_ids(part.partition, sequence)
    rule = {"salt": admission.salt, "keep_ppm": admission.keep_ppm}
    if admission.drop == "hash":
        kept = kept_mask(ids, **rule)
    else:
        kept = np.zeros(len(sequence), dtype=np.bool_)
        for first, last in kept_runs(part.partition, part.start, part.end, **rule):
            kept[first - part.start : last - part.start] = True
    return sequence[~(kept & kept_mask(ids, salt=admission.adaptor_salt, keep_ppm=part.keep_ppm))]
