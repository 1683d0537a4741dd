"""Drops by key at the source: fair shares of the values of a column, and the first tuples of every value.

Which tuples stay depends on their keys, so the column is read when the batch is cut: one column of a log, or the
records of a topic. So the shares are fair for this very batch, by exact counts (`planning/shares.py`), and the offset
says what each of the largest keys keeps and how many tuples pass. What a task lets pass is then a function of the
offset and of the tuples alone. The first tuples of a key are those of each partition's range in the batch: which they
are, nobody can say without reading that range from its start, so one task reads all of it.

A key is known by the upper 53 bits of a hash of its value. Null is a key as any other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from floodway.errors import InputError
from floodway.spark.shed.keys.quotas import KEY_BITS, MOST_KEYS, MOST_NAME, MOST_RARE_PPM, SHOWN, Quotas, rest_ppm
from floodway.spark.shed.keys.rare import FIRST, ranking
from floodway.spark.source.backend import Piece
from floodway.spark.source.drops import kept_each, mix, tuple_ids
from floodway.spark.source.offsets import BatchOffset, KeyRule, Range
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.job.options.accuracy import Accuracy
    from floodway.spark.source.group_tally import GroupTally

NULL_NAME = "null"

ReadKeys = Callable[[Range], Iterator[Piece]]
"""From a range of positions to its tuples, with their keys."""


@dataclass(frozen=True, slots=True)
class KeyDrops:
    """What a user asked for: the columns (empty: none), the weights of values of `share_by`, the number kept, and an
    accuracy as text.
    """

    share_by: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    rare_by: str = ""
    keep_rare: int = 0
    accuracy: str = ""

    @property
    def target(self) -> Accuracy | None:
        """The accuracy asked for."""
        if not self.accuracy:
            return None
        from floodway.job.options.accuracy import Accuracy

        return Accuracy.of(self.accuracy)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns whose values are told apart."""
        by = None if self.target is None else self.target.by
        return tuple(dict.fromkeys(filter(None, (self.share_by, self.rare_by, by))))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read to cut a batch."""
        added = () if self.target is None or self.target.argument == "*" else (self.target.argument,)
        return tuple(dict.fromkeys((*self.keys, *added)))

    def text(self) -> str:
        """The reader's option `keys`."""
        return json.dumps(asdict(self))


_FORM = TypeAdapter(KeyDrops)


def parse_keys(text: str) -> KeyDrops:
    """What `KeyDrops.text` wrote."""
    try:
        return _FORM.validate_json(text)
    except ValidationError as error:
        raise InputError(f"option keys {text!r} is not understood: {error}", hint="Leave it to Floodway") from None


def can_be_key(kind: pa.DataType) -> bool:
    """Whether a column of this type has values to tell apart by their text."""
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def key_hashes(column: pa.Array) -> NDArray[np.int64]:
    """The hash of every value; 0 for null.

    >>> key_hashes(pa.array(["a", None, "a"])).tolist() == [key_hash("a"), 0, key_hash("a")]
    True
    """
    if pa.types.is_integer(column.type):
        values = column.fill_null(0).cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
        hashed = (mix(values.view(np.uint64)) >> np.uint64(64 - KEY_BITS)).astype(np.int64)
        hashed[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return hashed
    encoded = column.dictionary_encode(null_encoding="encode")
    hashes = np.array([key_hash(value) for value in encoded.dictionary.to_pylist()], dtype=np.int64)
    found: NDArray[np.int64] = hashes[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def key_hash(value: object) -> int:
    """The hash of one value of a column that holds no whole numbers."""
    if value is None:
        return 0
    digest = blake2b(value if isinstance(value, bytes) else str(value).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> (64 - KEY_BITS)


def hashed_weights(weights: Mapping[str, float], kind: pa.DataType) -> dict[int, float]:
    """The weights by the hash of their key; InputError for a name that no value of this type has."""
    try:
        values = pa.array(list(weights), pa.string()).cast(kind)
    except pa.ArrowInvalid:
        raise InputError(
            f"--weights {', '.join(weights)}: one of them is no value of a column of type {kind}",
            hint="Name keys as the stream has them",
        ) from None
    return dict(zip(key_hashes(values).tolist(), weights.values(), strict=True))


class KeyFates:
    """The fates of the tuples of one partition's range in a batch, piece by piece from its start."""

    def __init__(self, rule: KeyRule, salt: int) -> None:
        self._rule = rule
        self._salt = salt
        self._seen: dict[int, int] = {}
        order = np.argsort(np.array(rule.keys, dtype=np.int64))
        self._keys = np.array(rule.keys, dtype=np.int64)[order]
        self._keeps = np.array(rule.keeps, dtype=np.int64)[order]
        self._first = ranking(rule.keep_rare) if rule.keep_rare else None

    def of(
        self, ids: NDArray[np.int64], shared: NDArray[np.int64] | None, rare: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.bool_]]:
        """Which tuples stay, with which keep in ppm, and which have keys over their share; by the hashes of keys."""
        keeps = np.full(len(ids), self._rule.others_ppm, dtype=np.int64)
        if shared is not None and len(self._keys):
            at = np.minimum(np.searchsorted(self._keys, shared), len(self._keys) - 1)
            keeps = np.where(self._keys[at] == shared, self._keeps[at], keeps)
        over = keeps < self._rule.others_ppm
        if self._first is not None and rare is not None:
            keeps[self._first(rare, self._seen) == FIRST] = PPM
        return kept_each(ids, salt=self._salt, keeps_ppm=keeps), keeps, over

    def of_piece(
        self, ids: NDArray[np.int64], batch: pa.RecordBatch
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.bool_]]:
        """The same for tuples as they are read."""
        hashes = {name: key_hashes(batch.column(name)) for name in {self._rule.share_by, self._rule.rare_by} if name}
        return self.of(ids, hashes.get(self._rule.share_by), hashes.get(self._rule.rare_by))


@dataclass(frozen=True, slots=True)
class _Keys:
    """The tuples of one piece: their partition, identities, and the hashes of their keys by column."""

    partition: int
    ids: NDArray[np.int64]
    hashes: Mapping[str, NDArray[np.int64]]


class _Tally:
    """Tuples by key of the column with shares, and the names of keys that are large in some piece."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.names: dict[int, str] = {}
        self.kind: pa.DataType = pa.string()

    def add(self, values: pa.Array, hashes: NDArray[np.int64]) -> None:
        """Count a piece."""
        keys, first, tuples = np.unique(hashes, return_index=True, return_counts=True)
        self.kind = values.type
        self.counts.update(dict(zip(keys.tolist(), tuples.tolist(), strict=True)))
        for at in np.argsort(-tuples, kind="stable")[:SHOWN].tolist():
            value = values[int(first[at])].as_py()
            self.names[int(keys[at])] = NULL_NAME if value is None else str(value)[:MOST_NAME]


def _group_tally(target: Accuracy) -> GroupTally:
    from floodway.spark.source.group_tally import GroupTally  # what nobody asked for is not loaded

    return GroupTally(target)


def with_keys(batch: BatchOffset, drops: KeyDrops, read: ReadKeys) -> BatchOffset:
    """The batch with the quotas of its keys and what they let pass; one that keeps everything is left as it is."""
    if batch.keep_ppm >= PPM or batch.mode == "off":
        return batch
    tally, pieces, target = _Tally(), list[_Keys](), drops.target
    groups = None if target is None else _group_tally(target)
    for span in batch.ranges():
        for sequence, rows in read(span):
            hashes = {name: key_hashes(rows.column(name)) for name in drops.keys}
            pieces.append(_Keys(span[0], tuple_ids(span[0], sequence), hashes))
            if drops.share_by:
                tally.add(rows.column(drops.share_by), hashes[drops.share_by])
            if groups is not None and rows.num_rows:
                groups.add(rows, hashes.get(groups.accuracy.by or ""))
    total = sum(len(piece.ids) for piece in pieces)
    if not total:
        return batch
    rule = KeyRule(drops.share_by, rare_by=drops.rare_by, keep_rare=drops.keep_rare)
    rule = replace(rule, others_ppm=rest_ppm(batch.keep_ppm, _rare_ppm(rule, pieces, total)))
    if drops.share_by:
        rule = _shared(rule, tally, drops.weights, total)
    if groups is not None:
        rule = groups.rule(rule)
    passed, over = dict.fromkeys(batch.end, 0), dict.fromkeys(batch.end, 0)
    fates = {partition: KeyFates(rule, batch.salt) for partition in batch.end}
    for piece in pieces:
        kept, _, is_over = fates[piece.partition].of(
            piece.ids, piece.hashes.get(rule.share_by), piece.hashes.get(rule.rare_by)
        )
        passed[piece.partition] += int(np.count_nonzero(kept))
        over[piece.partition] += 0 if rule.accuracy else int(np.count_nonzero(is_over & ~kept))
    counted = {partition: count for partition, count in over.items() if count}
    return replace(batch, passed=passed, keys=replace(rule, over=counted))


def _rare_ppm(rule: KeyRule, pieces: list[_Keys], total: int) -> int:
    """The share of the tuples that stay because they are the first of their keys."""
    if not rule.keep_rare:
        return 0
    first, seen = 0, dict[int, dict[int, int]]()
    for piece in pieces:
        ranks = ranking(rule.keep_rare)(piece.hashes[rule.rare_by], seen.setdefault(piece.partition, {}))
        first += int(np.count_nonzero(ranks == FIRST))
    return min(MOST_RARE_PPM, PPM * first // total)


def _shared(rule: KeyRule, tally: _Tally, weights: Mapping[str, float], total: int) -> KeyRule:
    """The rule with fair quotas of the largest keys of these tuples."""
    ranked = tally.counts.most_common(MOST_KEYS + 1)
    loads = {key: count / total for key, count in ranked[:MOST_KEYS]}
    limit = ranked[MOST_KEYS][1] / total if len(ranked) > MOST_KEYS else 0.0
    quotas = Quotas.fair(rule.others_ppm / PPM, loads, limit, hashed_weights(weights, tally.kind))
    large = tuple(
        (tally.names.get(key, f"#{key:x}"), count, keep)
        for (key, count), keep in zip(ranked[:SHOWN], quotas.keeps, strict=False)
    )
    return replace(rule, keys=quotas.keys, keeps=quotas.keeps, others_ppm=quotas.others_ppm, large=large)
