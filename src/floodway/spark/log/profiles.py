"""Load profiles: how many tuples come in each tick. Pure: the random generator is an argument.

Rates are tuples/s, times seconds. Fractions of a tuple are carried over to the next tick, so that the total is exact:
after t seconds a deterministic profile has offered floor(∫ rate) tuples.

>>> list(counts(constant(10.0, seconds=1.0), tick=0.25))
[2, 3, 2, 3]

The tuples that `floodway feed` makes up: any flat schema, seeded, vectorised.

The default schema is `id bigint, key int, value double, event_time timestamp`. Columns are filled by name and type:
`id` counts up from 0 over all partitions, `key` follows Zipf's law over 1000 keys, timestamps are the tick's time
spread over the tick, strings are `k` and a number, other numbers are uniform.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodway import units
from floodway.errors import InputError
from floodway.spark.log.errors import SchemaError
from floodway.spark.log.schema import parse_schema, type_text

Piece = tuple[float, float, float]
"""Seconds, the rate at the start and the rate at the end; the rate is linear in between."""


def constant(rate: float, *, seconds: float) -> list[Piece]:
    """The same rate all the time."""
    return ramp(rate, rate, seconds=seconds)


def ramp(low: float, high: float, *, seconds: float) -> list[Piece]:
    """A rate that grows (or falls) steadily."""
    _check(low, high, seconds)
    return [(seconds, low, high)]


def steps(text: str) -> list[Piece]:
    """`10:500,1m:5k/s`: ten seconds at 500 tuples/s, then a minute at 5000.

    >>> steps("10:500,1m:5k/s")
    [(10.0, 500.0, 500.0), (60.0, 5000.0, 5000.0)]
    """
    pieces: list[Piece] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        length, _, height = part.partition(":")
        seconds, rate = units.seconds(length), units.rate(height)
        if seconds is None or rate is None:
            raise InputError(f"step {part!r} is not duration:rate", hint='Write steps as "10s:500,1m:5k/s"')
        pieces += constant(rate, seconds=seconds)
    if not pieces:
        raise InputError("no steps given", hint='Write steps as "10s:500,1m:5k/s"')
    return pieces


def duration(pieces: Sequence[Piece]) -> float:
    """How long a profile lasts, seconds."""
    return sum(seconds for seconds, _, _ in pieces)


def counts(pieces: Sequence[Piece], *, tick: float) -> Iterator[int]:
    """Tuples in each tick of a deterministic profile: differences of the floor of the cumulated load."""
    given = 0
    for index in range(1, ticks(duration(pieces), tick) + 1):
        due = math.floor(_cumulated(pieces, index * tick) + 1e-6)
        yield due - given
        given = due


def poisson(rate: float, *, seconds: float, tick: float, rng: np.random.Generator) -> Iterator[int]:
    """Independent arrivals: the count in a tick has mean and variance rate·tick."""
    _check(rate, rate, seconds)
    for _ in range(ticks(seconds, tick)):
        yield int(rng.poisson(rate * tick))


def bursts(
    rate: float,
    *,
    seconds: float,
    tick: float,
    rng: np.random.Generator,
    sources: int = 32,
    shape: float = 1.4,
    on_share: float = 0.25,
) -> Iterator[int]:
    """Self-similar bursts with mean `rate`: the sum of on/off sources whose periods have heavy tails.

    Each source sends rate/(sources·on_share) while on. On and off periods are Pareto with shape α = 1.4, which makes
    the sum long-range dependent with Hurst parameter H = (3 − α)/2 = 0.8: bursts on all time scales. The mean over a
    short run strays from `rate`, as it does in such traffic.
    """
    _check(rate, rate, seconds)
    number = ticks(seconds, tick)
    # Mean periods of one second on: long against a tick, short against a run, so that many scales are seen.
    on_mean = 1.0
    off_mean = on_mean * (1 - on_share) / on_share
    active = np.zeros(number)
    for _ in range(sources):
        active += _on_seconds(number, tick, rng, shape, on_mean, off_mean, on=bool(rng.random() < on_share))
    load = np.floor(np.cumsum(active) * rate / (sources * on_share) + 1e-6).astype(np.int64)
    yield from (int(count) for count in np.diff(load, prepend=0))


def trace(
    path: Path | str, *, bin_seconds: float, scale: float = 1.0, tick: float, seconds: float | None = None
) -> list[Piece]:
    """A CSV of counts per bin (one number a line, a first line of words is a heading) as pieces of constant rate.

    `scale` multiplies the rate. `seconds` cuts the trace, or is refused if the trace is shorter.
    """
    rows = _read_counts(Path(path))
    if not (bin_seconds > 0 and scale > 0 and tick > 0):
        raise InputError("bin, scale and tick must be above 0", hint="For example --bin 100ms --scale 1.0")
    if seconds is not None:
        wanted = math.ceil(seconds / bin_seconds - 1e-9)
        if wanted > len(rows):
            raise InputError(
                f"trace {path} lasts {len(rows) * bin_seconds:g} s, shorter than {seconds:g} s",
                hint="Ask for less, or give a longer bin",
            )
        rows = rows[:wanted]
    return [(bin_seconds, count * scale / bin_seconds, count * scale / bin_seconds) for count in rows]


def ticks(seconds: float, tick: float) -> int:
    """The number of whole ticks that cover a time."""
    return math.ceil(seconds / tick - 1e-9)


def _read_counts(path: Path) -> list[float]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"trace {path} cannot be read: {error}", hint="Give a CSV of counts per bin") from None
    rows: list[float] = []
    for number, line in enumerate(lines, start=1):
        text = line.split(",")[0].strip()
        try:
            value = float(text)
        except ValueError:
            if number == 1 or not text:
                continue
            value = math.nan
        if not (math.isfinite(value) and value >= 0):
            raise InputError(
                f"trace {path}, line {number}: {line.strip()!r} is no count",
                hint="One number a line, at least 0",
            )
        rows.append(value)
    if not rows:
        raise InputError(f"trace {path} holds no counts", hint="One number a line")
    return rows


def _cumulated(pieces: Iterable[Piece], at: float) -> float:
    total = 0.0
    for seconds, low, high in pieces:
        inside = min(max(at, 0.0), seconds)
        total += inside * (low + (high - low) * inside / (2 * seconds))
        at -= seconds
        if at <= 0:
            break
    return total


def _on_seconds(
    number: int,
    tick: float,
    rng: np.random.Generator,
    shape: float,
    on_mean: float,
    off_mean: float,
    *,
    on: bool,
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds that one source is on in each tick."""
    edges = [0.0]
    states = []
    while edges[-1] < number * tick:
        mean = on_mean if on else off_mean
        # A Pareto with minimum m and shape a has mean m·a/(a − 1).
        edges.append(edges[-1] + mean * (shape - 1) / shape * (1 + float(rng.pareto(shape))))
        states.append(float(on))
        on = not on
    done = np.concatenate(([0.0], np.cumsum(np.diff(edges) * np.array(states))))
    at = np.interp(np.arange(number + 1) * tick, edges, done)
    return np.diff(at)


def _check(low: float, high: float, seconds: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low >= 0 and high >= 0):
        raise InputError(f"a rate of {low:g} to {high:g} tuples/s makes no sense", hint="Give rates of at least 0")
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"{seconds:g} seconds make no run", hint="Give seconds above 0")


DEFAULT_SCHEMA = "id bigint, key int, value double, event_time timestamp"
KEYS = 1000
_EPOCH_DAY_MICROS = 86_400_000_000


class TupleMaker:
    """Makes batches of tuples; the same seed and counts give the same payload (but for the times)."""

    def __init__(self, ddl: str, rng: np.random.Generator) -> None:
        self.schema: pa.Schema = parse_schema(ddl)
        self._rng = rng
        self._next = 0
        weights = 1.0 / np.arange(1, KEYS + 1)
        self._zipf = np.cumsum(weights) / weights.sum()
        for column in self.schema:
            self._column(column, 0, 0, 0)

    def make(self, count: int, *, start_us: int, end_us: int) -> pa.RecordBatch:
        """`count` tuples whose event times spread evenly over [start_us, end_us), microseconds UTC."""
        columns = [self._column(column, count, start_us, end_us) for column in self.schema]
        self._next += count
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, column: pa.Field, count: int, start_us: int, end_us: int) -> pa.Array:
        kind = column.type
        if pa.types.is_timestamp(kind):
            times = start_us + (np.arange(count) * (end_us - start_us) // max(count, 1))
            return pa.array(times.astype(np.int64)).cast(kind)
        if pa.types.is_date(kind):
            return pa.array(np.full(count, start_us // _EPOCH_DAY_MICROS, dtype=np.int32)).cast(kind)
        if column.name == "id" and pa.types.is_integer(kind):
            return pa.array(np.arange(self._next, self._next + count)).cast(kind, safe=False)
        if pa.types.is_integer(kind):
            return pa.array(self._keys(count)).cast(kind, safe=False)
        if pa.types.is_floating(kind):
            return pa.array(self._rng.random(count)).cast(kind)
        if pa.types.is_boolean(kind):
            return pa.array(self._rng.random(count) < 0.5)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return pa.array([f"k{key}" for key in self._keys(count)], pa.string()).cast(kind)
        raise SchemaError(
            f"feed cannot make up a column of type {type_text(kind)}",
            hint="Use numbers, strings, booleans, times",
        )

    def _keys(self, count: int) -> npt.NDArray[np.int64]:
        return np.searchsorted(self._zipf, self._rng.random(count)).astype(np.int64)
