"""Bytes that are almost right: changes to good examples, by a random generator."""

from __future__ import annotations

import random
from collections.abc import Sequence

TOKENS: tuple[bytes, ...] = (
    *(b"null", b"true", b"-1", b"0", b"1e999", b"-1e999", b"NaN", b"Infinity", b"1.5", b"[]", b"{}", b'""', b'"x"'),
    *(b'"\\ud800"', b"\xff\xfe", b"\x00", b"9" * 30, b"9" * 5000, b"[" * 50, b"[" * 3000, b'{"a":' * 3000),
    *(
        b"9223372036854775807",
        b"9223372036854775808",
        b"-9223372036854775809",
        b"\n",
        b"\r\n",
        b"&a [*a]",
        b"!!python/x",
    ),
)
"""What parsers of numbers, text and nested values stumble over."""
_NUMBER_BYTES = frozenset(b"0123456789.-+eE")


def mutated(corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """One example with one to four changes; now and then bytes by chance alone.

    >>> mutated([b'{"v": 1}'], random.Random(3)) == mutated([b'{"v": 1}'], random.Random(3))
    True
    """
    if rng.random() < 0.02:
        return rng.randbytes(rng.randrange(200))
    data = rng.choice(corpus)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(_CHANGES)(data, corpus, rng)
    return data


def _flip(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _remove(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    first, last = _slice(data, rng)
    return data[:first] + data[last:]


def _repeat(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    first, last = _slice(data, rng)
    return data[:last] + data[first:last] * rng.choice((1, 2, 50)) + data[last:]


def _splice(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(corpus)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _insert(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(TOKENS) + data[at:]


def _replace_number(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """Another value where a number is: what is well formed and means something else."""
    if not data:
        return data
    first = last = rng.randrange(len(data))
    if data[first] not in _NUMBER_BYTES:
        return _insert(data, corpus, rng)
    while first > 0 and data[first - 1] in _NUMBER_BYTES:
        first -= 1
    while last < len(data) and data[last] in _NUMBER_BYTES:
        last += 1
    return data[:first] + rng.choice(TOKENS) + data[last:]


def _slice(data: bytes, rng: random.Random) -> tuple[int, int]:
    first = rng.randrange(len(data) + 1)
    return first, min(len(data), first + rng.choice((1, 2, 8, 64)))


_CHANGES = (_flip, _flip, _cut, _remove, _repeat, _splice, _insert, _replace_number, _replace_number)
