"""How likely rates are: the workloads under which Solver-W weighs its errors (long paper, sections 5.2 and 8.2.2).

A workload gives the probability of a box of rates, lower <= r < upper; upper bounds may be infinite.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from floodway.errors import InputError

Vector = NDArray[np.float64]
_FORM = "Give a CSV with the names of all streams in the first line, and their rates in tuples/s in the others"


class Workload(ABC):
    """A distribution of rate vectors, one rate a stream in the network's order."""

    streams: int

    @abstractmethod
    def probability(self, lower: Vector, upper: Vector) -> float:
        """Probability of lower <= r < upper."""

    @abstractmethod
    def sample(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Rate vectors drawn from it, one a row."""


class Exponential(Workload):
    """Independent exponential rates with the given means (tuples/s).

    The papers' λ is this mean: they say that more rates lie above the feasibility boundary as λ grows.

    >>> Exponential([1.0]).probability(np.array([0.0]), np.array([np.inf]))
    1.0
    """

    def __init__(self, means: Sequence[float]) -> None:
        self._means = _positive(means, "means")
        self.streams = len(self._means)

    def probability(self, lower: Vector, upper: Vector) -> float:
        """Product over streams of exp(−lower/mean) − exp(−upper/mean)."""
        # 1 − e^−x through expm1: boxes close to the origin keep their digits.
        parts = np.exp(-lower / self._means) * -np.expm1(-(upper - lower) / self._means)
        return float(np.prod(parts))

    def sample(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Independent draws."""
        return generator.exponential(self._means, (count, self.streams))


class Uniform(Workload):
    """Independent rates, each even between 0 and its top.

    >>> Uniform([2.0, 4.0]).probability(np.array([0.0, 1.0]), np.array([1.0, 3.0]))
    0.25
    """

    def __init__(self, tops: Sequence[float]) -> None:
        self._tops = _positive(tops, "tops")
        self.streams = len(self._tops)

    def probability(self, lower: Vector, upper: Vector) -> float:
        """Share of the box inside the tops."""
        parts = (np.minimum(upper, self._tops) - np.minimum(lower, self._tops)) / self._tops
        return float(np.prod(parts))

    def sample(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Independent draws."""
        return generator.uniform(0.0, self._tops, (count, self.streams))


class Empirical(Workload):
    """Rates as they were seen: every row of `samples` is equally likely.

    >>> Empirical([[1.0], [2.0], [3.0], [4.0]]).probability(np.array([2.0]), np.array([np.inf]))
    0.75
    """

    def __init__(self, samples: ArrayLike) -> None:
        self._samples = np.asarray(samples, dtype=np.float64)
        if self._samples.ndim != 2 or not self._samples.size:
            raise InputError("rate samples must be rows of one rate a stream", hint="Pass at least one row")
        if not (np.isfinite(self._samples).all() and (self._samples >= 0).all()):
            raise InputError("a rate sample is negative, NaN or infinite", hint="Rates are tuples/s")
        self.streams = self._samples.shape[1]

    @classmethod
    def of_file(cls, path: Path, streams: Sequence[str]) -> Empirical:
        """A CSV of rates in tuples/s: the names of the streams in the first line, a rate of each in all others."""
        try:
            with path.open(encoding="utf-8", newline="") as lines:
                head, *rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if row]
        except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
            raise InputError(f"workload {path} cannot be read: {error}", hint=_FORM) from None
        missing = [name for name in streams if name not in head]
        if missing:
            raise InputError(f"workload {path} has no column {missing[0]!r}", hint=_FORM)
        places = [head.index(name) for name in streams]
        try:
            return cls([[float(row[place]) for place in places] for row in rows])
        except (ValueError, IndexError) as error:
            raise InputError(f"workload {path} holds something that is no rate: {error}", hint=_FORM) from None

    @classmethod
    def of_trace(cls, rates: ArrayLike, streams: int, *, means: Sequence[float] | None = None) -> Empirical:
        """One recorded series of rates for all streams: stream i reads it shifted by i/streams of its length.

        `means` scales every stream to a mean; shifting keeps bursts of different streams from coinciding always.
        """
        series = np.asarray(rates, dtype=np.float64).ravel()
        if not len(series) or not np.isfinite(series).all() or series.mean() <= 0:
            raise InputError("the trace holds no positive rates", hint="Pass arrivals per interval")
        columns = np.stack([np.roll(series, i * len(series) // streams) for i in range(streams)], axis=1)
        wanted = np.full(streams, series.mean()) if means is None else _positive(means, "means")
        return cls(columns * (wanted / series.mean()))

    def probability(self, lower: Vector, upper: Vector) -> float:
        """Share of the samples in the box."""
        inside = (self._samples >= lower) & (self._samples < upper)
        return float(inside.all(axis=1).mean())

    def sample(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Rows drawn with replacement."""
        return self._samples[generator.integers(len(self._samples), size=count)]


def check_streams(workload: Workload, streams: Sequence[str]) -> None:
    """Refuse a workload of another number of streams than these."""
    if workload.streams != len(streams):
        raise InputError(
            f"the workload has {workload.streams} streams, the network {len(streams)}",
            hint="Give rates for every stream, in the order of the network file",
        )


def _positive(numbers: Sequence[float], what: str) -> Vector:
    vector = np.asarray(numbers, dtype=np.float64)
    if not len(vector) or not np.isfinite(vector).all() or not (vector > 0).all():
        raise InputError(f"{what} of a workload must be positive numbers", hint="Give one for every stream")
    return vector
