"""When tuples arrive: Poisson, self-similar, or as a trace file says. Times are sorted seconds from 0.

Self-similar traffic is the superposition of many on/off sources whose on and off periods are Pareto distributed with
index a = 3 - 2H: as their number grows the sum tends to a process of Hurst parameter H (Willinger et al., 1997),
which is what packet traces look like and Poisson arrivals (H = 0.5) do not. `hurst` measures it, so that a report can
say how bursty the traffic really was.

The tuples of a simulated run as columns: generation, arrival, queue (which has the deadline) and true cost.

>>> rng = np.random.default_rng(1)
>>> tuples = draw(np.array([0.0, 0.1, 0.2]), rng, mean_cost_seconds=0.005)
>>> len(tuples), float(tuples.cost.max())
(3, 0.005)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from floodway.buffering.queues import QueueClass
from floodway.errors import InputError

Floats = NDArray[np.float64]

PAPER_CLASSES = tuple(QueueClass("s", deadline) for deadline in (0.25, 0.5, 1.0, 2.0))
"""The paper's tuple delays, drawn with equal chance."""
TRANSMISSION_SECONDS = 0.02
"""Longest time from source to buffer. The paper gives none; small beside the least deadline of 0.25 s."""


@dataclass(frozen=True, slots=True)
class Tuples:
    """Columns of equal length, in order of arrival; `queue` indexes `classes`. Times and costs in seconds."""

    arrived: Floats
    generated: Floats
    queue: NDArray[np.int64]
    cost: Floats
    classes: tuple[QueueClass, ...]

    def __post_init__(self) -> None:
        if np.any(np.diff(self.arrived) < 0):
            raise InputError("tuples are not in order of arrival", hint="Sort them by arrival time")

    def __len__(self) -> int:
        return len(self.arrived)


def draw(
    arrived: Floats,
    rng: np.random.Generator,
    *,
    mean_cost_seconds: float,
    classes: Sequence[QueueClass] = PAPER_CLASSES,
    precision: int = 0,
    transmission_seconds: float = TRANSMISSION_SECONDS,
) -> Tuples:
    """Give arrivals a deadline class, a generation time and a true cost.

    `precision` is the paper's E, how far true costs spread around their mean ET_p (section 5.1): 0 none, 1 uniform on
    [0.3, 1.7], 2 on [0.1, 4.1] times the mean. The last cannot be uniform and have mean 1; see experiments/NOTES.md.
    """
    count = len(arrived)
    return Tuples(
        arrived=arrived,
        generated=arrived - rng.uniform(0.0, transmission_seconds, count),
        queue=rng.integers(len(classes), size=count),
        cost=mean_cost_seconds * cost_factors(precision, count, rng),
        classes=tuple(classes),
    )


def cost_factors(precision: int, count: int, rng: np.random.Generator) -> Floats:
    """True cost over mean cost, mean 1, for E = 0, 1 or 2."""
    if precision == 0:
        return np.ones(count)
    if precision == 1:
        return rng.uniform(0.3, 1.7, count)
    if precision == 2:
        # Beta on [0.1, 4.1] with mean 0.225 of the width, that is 1; its two shapes add up to 4.
        return 0.1 + 4.0 * rng.beta(0.9, 3.1, count)
    raise InputError(f"cost precision E = {precision}", hint="The paper knows E = 0, 1 and 2")


Times = NDArray[np.float64]
Counts = NDArray[np.int64]
BIN_SECONDS = 0.1


def poisson(rate: float, seconds: float, rng: np.random.Generator) -> Times:
    """Exponential gaps at `rate` tuples/s: a Poisson number of uniform times, sorted."""
    _check(rate, seconds)
    return np.sort(rng.uniform(0.0, seconds, int(rng.poisson(rate * seconds))))


def self_similar(
    rate: float, seconds: float, rng: np.random.Generator, *, target_hurst: float = 0.8, sources: int = 40
) -> Times:
    """Superposed Pareto on/off sources with mean `rate` tuples/s; half of the sources are on at any time.

    Periods last 0.5 s on average. Within a bin of 100 ms arrivals are Poisson at the rate of the sources then on.
    """
    _check(rate, seconds)
    if not 0.5 < target_hurst < 1.0 or sources < 1:
        raise InputError(
            f"self-similar traffic of Hurst parameter {target_hurst} from {sources} sources",
            hint="Give 0.5 < H < 1 and at least one source",
        )
    index = 3.0 - 2.0 * target_hurst
    bins = max(1, round(seconds / BIN_SECONDS))
    edges = np.linspace(0.0, seconds, bins + 1)
    active = np.zeros(bins)
    for _ in range(sources):
        active += np.diff(_time_on(edges, index, rng)) / np.diff(edges)
    counts = rng.poisson(active * rate * seconds / bins / max(float(active.mean()), 1e-12))
    return spread(counts.astype(np.int64), seconds / bins, rng)


def _time_on(edges: Times, index: float, rng: np.random.Generator) -> Times:
    """Seconds that one source has been on up to each edge."""
    mean_period = 0.5
    scale = mean_period * (index - 1.0) / index
    horizon = float(edges[-1])
    ends = np.zeros(1)
    while ends[-1] < horizon:
        periods = scale * (1.0 + rng.pareto(index, 2 * max(8, int(horizon / mean_period / 2))))
        ends = np.concatenate((ends, ends[-1] + np.cumsum(periods)))
    on_first = bool(rng.integers(2))
    lengths = np.diff(ends)
    on = lengths * ((np.arange(len(lengths)) % 2 == 0) == on_first)
    return np.asarray(np.interp(edges, ends, np.concatenate((np.zeros(1), np.cumsum(on)))), dtype=np.float64)


def spread(counts: Counts, bin_seconds: float, rng: np.random.Generator) -> Times:
    """Arrival times for counts per bin, uniform within each bin."""
    starts = np.repeat(np.arange(len(counts)) * bin_seconds, counts)
    return np.sort(starts + rng.uniform(0.0, bin_seconds, len(starts)))


@dataclass(frozen=True, slots=True)
class Trace:
    """Counts per bin, read from a file; `name` is the file's name, for reports."""

    name: str
    counts: Counts
    bin_seconds: float

    @property
    def rate(self) -> float:
        """Mean arrivals in tuples/s."""
        return float(self.counts.mean()) / self.bin_seconds

    def window(self, start_seconds: float, seconds: float) -> Trace:
        """A stretch of the trace, going on at its beginning where it ends."""
        first = round(start_seconds / self.bin_seconds)
        taken = np.arange(first, first + round(seconds / self.bin_seconds)) % len(self.counts)
        return Trace(self.name, self.counts[taken], self.bin_seconds)


def read_trace(path: Path, *, bin_seconds: float | None = None) -> Trace:
    """Read a CSV of one count a line. A header such as `arrivals per 100 ms bin` gives the bin width."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"trace {path}: cannot be read ({error})", hint="Give the path of a CSV of counts") from error
    rows = [(number, line) for number, line in enumerate(lines, 1) if line]
    if rows and not rows[0][1].isdigit():
        stated = re.search(r"([\d.]+) ?ms", rows[0][1])
        bin_seconds = bin_seconds or (float(stated.group(1)) / 1000.0 if stated else None)
        rows = rows[1:]
    for number, line in rows:
        if not line.isdigit():
            raise InputError(
                f"trace {path}, line {number}: {line!r} is not a count", hint="Write one whole number a line"
            )
    counts = np.array([int(line) for _, line in rows], dtype=np.int64)
    if counts.sum() == 0:
        raise InputError(f"trace {path} has no arrivals", hint="Give a CSV with one count a line")
    return Trace(path.name, counts, bin_seconds or BIN_SECONDS)


def hurst(counts: Counts, *, smallest: int = 8) -> float:
    """Hurst parameter by aggregated variance: Var of the means of m bins falls as m**(2H - 2).

    Levels from `smallest` bins up, as traffic within a few bins is Poisson whatever its long memory; at least 30
    blocks a level. 0.5 for Poisson arrivals, towards 1 for long memory.
    """
    levels = [m for m in (smallest * 2**k for k in range(20)) if len(counts) // m >= 30]
    variances = [float(np.var(_means(counts, m))) for m in levels]
    if len(levels) < 3 or min(variances) <= 0.0:
        raise InputError(
            f"a Hurst parameter cannot be measured on {len(counts)} bins, or on counts that do not vary",
            hint="Use a longer trace",
        )
    slope = float(np.polyfit(np.log(levels), np.log(variances), 1)[0])
    return 1.0 + slope / 2.0


def _means(counts: Counts, size: int) -> Times:
    blocks = len(counts) // size
    return np.asarray(counts[: blocks * size].reshape(blocks, size).mean(axis=1), dtype=np.float64)


def binned(times: Times, seconds: float, bin_seconds: float = BIN_SECONDS) -> Counts:
    """Counts per bin of arrival times."""
    return np.histogram(times, bins=round(seconds / bin_seconds), range=(0.0, seconds))[0].astype(np.int64)


def _check(rate: float, seconds: float) -> None:
    if not (np.isfinite(rate) and np.isfinite(seconds) and rate >= 0 and seconds > 0):
        raise InputError(
            f"arrivals at {rate} tuples/s for {seconds} s",
            hint="Give a rate of at least 0 and a time above 0",
        )
