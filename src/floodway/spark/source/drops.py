"""Which tuples stay: pure functions of identity, salt and keep, so that a replay keeps the same ones.

*hash*: a tuple stays when rounds(_id + mix(salt)) < keep·2^64, mix being the finaliser of splitmix64 (a bijection of
64-bit numbers that flips half of the output bits for each input bit) and rounds the same without its last step, which
changes only bits too low to matter to a keep in ppm. Every tuple stays with probability keep, independently of the
others, and a lower keep with the same salt keeps a subset.

*range*: whole blocks of consecutive tuples, `BLOCK` of them or on Kafka more, so that blocks that go are never read.
Block b stays when (b·φ + mix(salt, partition)) mod 2^64 < keep·2^64, φ = 2^64 divided by the golden ratio. Every block
stays with probability keep over the salts, so weights 1/keep are unbiased; and because multiples of φ spread evenly (a
Weyl sequence), the number kept of n blocks is within a few blocks of n·keep, where independent draws would miss it by
sqrt(n·keep·(1−keep)). Neighbouring tuples share their fate: estimates that assume independent drops need *hash*.

>>> kept_runs(0, 0, 1024, salt=5, keep_ppm=500_000)
[(0, 512), (768, 1024)]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from floodway.units import PPM

BLOCK = 256
MOST_BLOCK = 16_384
FEWEST_BLOCKS = 16
SEQUENCE_BITS = 48
_CACHED = 65_536
"""Tuples hashed at a time: the passes over them stay in the processor's cache, three times as quick."""

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))

Ids = npt.NDArray[np.uint64]


def sought_block(tuples: int) -> int:
    """The size of blocks where leaving one out takes a request: as large as leaves 16 of them to a batch of so many.

    Fewer would make the number kept a matter of luck. It is a power of two, from BLOCK to 64 times that.

    >>> [sought_block(tuples) for tuples in (1000, 10_000, 100_000, 10_000_000)]
    [256, 512, 4096, 16384]
    """
    wanted = max(1, tuples // FEWEST_BLOCKS)
    return min(max(BLOCK, 1 << (wanted.bit_length() - 1)), MOST_BLOCK)


def tuple_ids(partition: int, sequence: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The identity of each tuple, `_id` = partition·2^48 + sequence number."""
    return sequence if partition == 0 else sequence | np.int64(partition << SEQUENCE_BITS)


def mix(values: Ids) -> Ids:
    """The finaliser of splitmix64, vectorised."""
    mixed = values + _GOLDEN
    _rounds(mixed, np.empty_like(mixed))
    return mixed ^ (mixed >> np.uint64(31))


def _rounds(z: Ids, scratch: Ids) -> None:
    for shift, factor in _ROUNDS:
        np.right_shift(z, shift, out=scratch)
        z ^= scratch
        z *= factor


def kept_mask(ids: npt.NDArray[np.int64], *, salt: int, keep_ppm: int) -> npt.NDArray[np.bool_]:
    """Which of the identities stay at this keep; the salt is mixed first, so that near salts share nothing."""
    if keep_ppm >= PPM:
        return np.ones(len(ids), dtype=np.bool_)
    key, threshold = _mixed_salt(salt), _threshold(keep_ppm)
    unsigned = ids.view(np.uint64)
    kept = np.empty(len(ids), dtype=np.bool_)
    room = np.empty((2, min(len(ids), _CACHED)), dtype=np.uint64)
    for at in range(0, len(ids), _CACHED):
        piece = unsigned[at : at + _CACHED]
        mixed, scratch = room[:, : len(piece)]
        np.add(piece, key, out=mixed)
        _rounds(mixed, scratch)
        np.less(mixed, threshold, out=kept[at : at + _CACHED])
    return kept


def kept_each(ids: npt.NDArray[np.int64], *, salt: int, keeps_ppm: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """As `kept_mask`, with a keep of its own for every identity."""
    kept = np.empty(len(ids), dtype=np.bool_)
    for keep_ppm in np.unique(keeps_ppm).tolist():
        alike = np.flatnonzero(keeps_ppm == keep_ppm)
        kept[alike] = kept_mask(ids[alike], salt=salt, keep_ppm=keep_ppm)
    return kept


def _threshold(keep_ppm: int) -> np.uint64:
    return np.uint64((keep_ppm << 64) // PPM)


def _mixed_salt(salt: int) -> np.uint64:
    return np.uint64(mix(np.array([salt & _MASK], dtype=np.uint64))[0])


def kept_runs(
    partition: int, start: int, end: int, *, salt: int, keep_ppm: int, block: int = BLOCK
) -> list[tuple[int, int]]:
    """The ranges inside [start, end) whose blocks stay; blocks at the edges are cut exactly."""
    if start >= end or keep_ppm <= 0:
        return []
    if keep_ppm >= PPM:
        return [(start, end)]
    first = start // block
    blocks = np.arange(first, -(-end // block), dtype=np.uint64)
    phase = _mixed_salt(salt ^ (partition << SEQUENCE_BITS))
    kept = blocks * _GOLDEN + phase < _threshold(keep_ppm)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], kept, [False])).astype(np.int8)))
    return [
        (max(start, (first + int(a)) * block), min(end, (first + int(b)) * block))
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    ]


def count_kept_hash(partition: int, start: int, end: int, *, salt: int, keep_ppm: int) -> int:
    """How many tuples of [start, end) stay under hash; computed in pieces that stay in the processor's cache."""
    if keep_ppm >= PPM or start >= end:
        return max(end - start, 0)
    key, threshold = _mixed_salt(salt), _threshold(keep_ppm)
    upwards = np.arange(min(end - start, _CACHED), dtype=np.uint64)
    mixed, scratch = np.empty_like(upwards), np.empty_like(upwards)
    kept = 0
    for at in range(start, end, _CACHED):
        size = min(end - at, _CACHED)
        ids, room = mixed[:size], scratch[:size]
        first = (partition << SEQUENCE_BITS) + at
        np.add(upwards[:size], np.uint64((first + int(key)) & _MASK), out=ids)
        _rounds(ids, room)
        kept += int(np.count_nonzero(ids < threshold))
    return kept
