"""What a benchmark hands back, and how two ways of doing one thing are timed so that noise hits both alike.

One function a benchmark, `run(*, long, progress) -> BenchResult`; `registry.py` names them all. Work is fixed by
seeds; only times vary. Ratios come from one run: ours and the peer take turns in small portions, and the median portion
counts. Computation is timed in CPU seconds of the process, which a busy machine stretches far less than the wall clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from floodway.experiments.result import Progress
from floodway.json_text import plain_fields

Portion = TypeVar("Portion")
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One benchmark. `ours` and `peer` are in `unit`; `goal` says how `ratio` (or `ours`) is judged.

    `detail` holds what JSON can hold: what the peer is, the spread, and whatever else was seen on the way.

    >>> BenchResult("demo", 2.0, 60.0, 30.0, "peer / ours >= 30", True, "µs").to_dict(seconds=1.0)["ratio"]
    30.0
    """

    id: str
    ours: float
    peer: float
    ratio: float
    goal: str
    holds: bool
    unit: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self, *, seconds: float) -> dict[str, Any]:
        """The fields that scripts read; `seconds` is the wall time that the benchmark took."""
        return {**plain_fields(self), "seconds": round(seconds, 3)}


class BenchmarkRun(Protocol):
    """A benchmark: `long` asks for more repeats, `progress` is told the fraction done."""

    def __call__(self, *, long: bool, progress: Progress) -> BenchResult:
        """Measure."""
        ...


@dataclass(frozen=True, slots=True)
class Pairs:
    """Seconds of ours and of the peer, portion by portion, on the same work."""

    ours: tuple[float, ...]
    peer: tuple[float, ...]

    @property
    def ours_median(self) -> float:
        """Seconds of the median portion."""
        return statistics.median(self.ours)

    @property
    def peer_median(self) -> float:
        """Seconds of the median portion."""
        return statistics.median(self.peer)

    @property
    def ratio(self) -> float:
        """peer / ours: how many times quicker ours is, by the medians."""
        return self.peer_median / self.ours_median


def interleave(
    ours: Callable[[Portion], object],
    peer: Callable[[Portion], object],
    portions: Iterable[Portion],
    *,
    clock: Clock = time.process_time,
) -> Pairs:
    """Time both on every portion, taking turns in who goes first.

    >>> ticks = iter([0, 1, 1, 4, 10, 12, 12, 13])
    >>> interleave(len, len, ["a", "b"], clock=lambda: float(next(ticks)))
    Pairs(ours=(1.0, 1.0), peer=(3.0, 2.0))
    """
    spent: tuple[list[float], list[float]] = ([], [])
    for number, portion in enumerate(portions):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            started = clock()
            (ours, peer)[which](portion)
            spent[which].append(clock() - started)
    return Pairs(tuple(spent[0]), tuple(spent[1]))


def each(function: Callable[[Any], object]) -> Callable[[Sequence[Any]], None]:
    """The function applied to every element of a portion."""

    def apply(portion: Sequence[Any]) -> None:
        for item in portion:
            function(item)

    return apply


def portions_of(items: Sequence[Portion], size: int) -> list[Sequence[Portion]]:
    """Consecutive portions of one size; a shorter rest is left out, so that portions compare.

    >>> portions_of([1, 2, 3, 4, 5], 2)
    [[1, 2], [3, 4]]
    """
    return [items[at : at + size] for at in range(0, len(items) - size + 1, size)]


def timed(work: Callable[[], Portion], *, clock: Clock = time.process_time) -> tuple[Portion, float]:
    """What the work returns, and the seconds it took."""
    started = clock()
    made = work()
    return made, clock() - started


def rounded(value: float, digits: int = 4) -> float:
    """To so many significant digits: what a noisy machine can vouch for.

    >>> rounded(123456.0), rounded(0.00123456)
    (123500.0, 0.001235)
    """
    return float(f"{value:.{digits}g}")
