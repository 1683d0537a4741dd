"""Spark's `xxhash64` of an identity and a text, in numpy: drops by hash without a way back into Java.

    slot = xxhash64(_id, text) mod 1,000,000

A drop inside a pass of Python must fall on the tuples that the same drop in Spark's own expressions falls on
(`drops.py`). Spark hashes its columns one after the other, each with the hash before as its seed, the first with 42.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
