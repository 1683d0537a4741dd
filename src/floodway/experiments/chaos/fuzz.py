"""Bad input by the million: everything that reads what others wrote gets mutated examples.

Points run in processes of their own, some thousands each: a crash of one, in C too, is seen, and the chunk that it
happened in can be repeated by its seed. Refusals are counted by reader; one without words is a difference.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from floodway.errors import FloodwayError
from floodway.experiments.chaos.fuzz_inputs import readers
from floodway.experiments.chaos.result import MOST_DIFFERENCES, FaultResult, Trial

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


CHUNK = 20_000
MOST_WORDS = 12_000
"""A refusal is some lines, however long the input is: twenty problems of a network file at most."""


def faults(trial: Trial) -> FaultResult:
    """Chunk after chunk; each is a pure function of the seed and its number."""
    result = FaultResult("fuzz", detail={"refused": {}, "taken": {}})
    trial.folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    for number, first in enumerate(range(0, trial.points, CHUNK)):
        count = min(CHUNK, trial.points - first)
        trial.progress(first / trial.points, f"{first} of {trial.points} inputs")
        report = trial.folder / f"chunk-{number}.json"
        process = context.Process(target=run_chunk, args=(f"{trial.seed}/{number}", count, str(report)))
        process.start()
        process.join()
        if process.exitcode or not report.exists():
            result.differences.append(f"chunk {number} of seed {trial.seed} crashed: exit code {process.exitcode}")
            continue
        found = json.loads(report.read_text(encoding="utf-8"))
        report.unlink()
        result.tried += count
        result.differences += found["differences"]
        for kind in ("refused", "taken"):
            sums = Counter(result.detail[kind])
            sums.update(found[kind])
            result.detail[kind] = dict(sums)
    return result


@contextmanager
def _unlogged() -> Iterator[None]:
    """Without the log: a line for each of a million damaged files helps nobody."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def run_chunk(seed: str, count: int, report: str) -> None:
    """So many inputs, and what became of them in a file."""
    rng = random.Random(seed)
    refused: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    differences: list[str] = []
    with TemporaryDirectory(prefix="floodway-fuzz-") as folder, _unlogged():
        found = readers(Path(folder))
        names = list(found)
        for name in rng.choices(names, [found[name].weight for name in names], k=count):
            data = mutated(found[name].corpus, rng)
            try:
                found[name].read(data)
            except FloodwayError as error:
                refused[name] += 1
                if not 0 < len(str(error)) <= MOST_WORDS:
                    differences.append(f"{name}: a refusal of {len(str(error))} characters for {data[:80]!r}")
            except (Exception, RecursionError) as error:
                differences.append(f"{name}: {type(error).__name__}: {str(error)[:120]} for {data[:120]!r}")
            else:
                taken[name] += 1
    body = {"refused": refused, "taken": taken, "differences": differences[:MOST_DIFFERENCES]}
    Path(report).write_text(json.dumps(body), encoding="utf-8")
