"""What a batch did not admit: the tuples that it settled and dropped, read again for whoever wants them back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from floodway.spark.source.accounts import Part
from floodway.spark.source.backend import Piece, Readable
from floodway.spark.source.drops import kept_mask, tuple_ids
from floodway.spark.source.keys import KeyFates
from floodway.spark.source.offsets import Admission, BatchOffset
from floodway.spark.source.windows import passing


def dropped(backend: Readable, offset: BatchOffset, part: Part) -> Iterator[Piece]:
    """The dropped tuples of one of the batch's `settled` parts, from its start, with their identities."""
    rule = offset.admission
    fates = None if rule.keys is None else KeyFates(rule.keys, rule.salt)
    for sequence, batch in backend.read(part.partition, [(part.start, part.end)]):
        ids = tuple_ids(part.partition, sequence)
        if part.zone == "read" and rule.windows is not None:
            kept = passing(rule.windows, ids, batch)
        elif part.zone == "read" and fates is not None:
            kept = fates.of_piece(ids, batch)[0]
        else:
            kept = kept_of(rule, part, sequence)
        rows = np.flatnonzero(~kept)
        if len(rows):
            yield ids[rows], batch.take(pa.array(rows))


def kept_of(rule: Admission, part: Part, sequence: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which tuples of a part stay, where that can be told without reading them; `sequence` rises."""
    if part.zone != "read":
        return np.zeros(len(sequence), dtype=np.bool_)
    ids = tuple_ids(part.partition, sequence)
    if rule.drop == "hash":
        kept = kept_mask(ids, salt=rule.salt, keep_ppm=rule.keep_ppm)
    else:
        kept = np.zeros(len(sequence), dtype=np.bool_)
        for first, last in rule.runs(part.partition, part.start, part.end):
            kept[np.searchsorted(sequence, first) : np.searchsorted(sequence, last)] = True
    return kept & kept_mask(ids, salt=rule.adaptor_salt, keep_ppm=part.keep_ppm)
