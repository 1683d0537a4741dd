"""What the buffer-preposed paper's figures share: their traffic, their runs over seeds, and how numbers are reported.

Every variant of a seed sees the very same tuples. What the paper leaves open is said in experiments/NOTES.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from floodway.buffering.adaptors import PAPER_LIMIT
from floodway.buffering.options import PERMITTED_MISS_RATIO, BufferOptions, Manager
from floodway.errors import InputError
from floodway.experiments.result import Progress
from floodway.simulation.arrivals import Trace, Tuples, binned, draw, hurst, poisson, read_trace, self_similar, spread
from floodway.simulation.buffer import CPU_CYCLE_SECONDS, Run, simulate

SOURCE = "buffer-preposed"
CAPACITY = 100.0
"""Tuples/s the CPU can process: a full queue of L = 150 is then 1.5 s of work."""
LOAD = 1.2
SECONDS = 500.0
CYCLES = {"cleaner once a cycle": False, "cleaner also at dispatch": True}
"""Where the cleaner looks: in the paper once a buffer cycle; in Floodway also when a tuple is dispatched."""
PAPERS_CYCLE, OURS = CYCLES
TIE = 0.001
"""Utilisations closer than this are equal: a tenth of a percent of the CPU."""


@dataclass(frozen=True, slots=True)
class System:
    """What a figure compares: a buffer's options, and how often its laws see what came of them."""

    options: BufferOptions
    control_seconds: float = CPU_CYCLE_SECONDS


Variants = Mapping[str, System]


def with_buffer(
    scheduler: str = "edf",
    adaptor: str = "pid",
    *,
    cleaner: bool = True,
    permitted: float = PERMITTED_MISS_RATIO,
) -> System:
    """CWB at the paper's queue limit of 150 tuples."""
    return System(
        BufferOptions(
            scheduler=scheduler,
            adaptor=adaptor,
            cleaner=cleaner,
            limit=PAPER_LIMIT,
            permitted_miss_ratio=permitted,
        )
    )


def without_buffer(
    manager: Manager = "cob", permitted: float = PERMITTED_MISS_RATIO, control_seconds: float = CPU_CYCLE_SECONDS
) -> System:
    """COB, or the Aurora step in its place."""
    return System(BufferOptions(manager, permitted_miss_ratio=permitted), control_seconds)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Arrivals at `load` times the capacity: `kind` is poisson, self-similar or trace.

    A trace keeps its own rate and the capacity follows from it; every seed starts at another place in it.
    """

    kind: str = "poisson"
    load: float = LOAD
    seconds: float = SECONDS
    capacity: float = CAPACITY
    trace: Trace | None = None

    def tuples(self, seed: int, *, precision: int = 0) -> tuple[Tuples, float]:
        """The tuples of one seed, and their mean cost in seconds."""
        rng = np.random.default_rng([seed, 1])
        rate, cost = self.load * self.capacity, 1.0 / self.capacity
        if self.trace is not None:
            total = len(self.trace.counts) * self.trace.bin_seconds
            window = self.trace.window(rng.uniform(0.0, total), self.seconds)
            times, cost = spread(window.counts, window.bin_seconds, rng), self.load / max(window.rate, 1e-9)
        elif self.kind == "poisson":
            times = poisson(rate, self.seconds, rng)
        else:
            times = self_similar(rate, self.seconds, rng)
        return draw(times, rng, mean_cost_seconds=cost, precision=precision), cost

    def hurst(self, seeds: Sequence[int]) -> float | None:
        """Mean Hurst parameter over the seeds, of the whole file for a trace; None where it cannot be had."""
        try:
            if self.trace is not None:
                return round(hurst(self.trace.counts), 3)
            counts = [binned(self.tuples(seed)[0].arrived, self.seconds) for seed in seeds]
            return mean([hurst(found) for found in counts])
        except InputError:
            return None


def on_trace(path: Path | None, *, seconds: float = SECONDS) -> Traffic | None:
    """The traffic of a trace file, if one was given."""
    return None if path is None else Traffic("trace", seconds=seconds, trace=read_trace(path))


def run_all(
    variants: Variants,
    traffic: Traffic,
    seeds: Sequence[int],
    progress: Progress,
    *,
    precision: int = 0,
    clean_at_dispatch: bool = True,
    first_estimate: float = 1.0,
) -> dict[str, list[Run]]:
    """Every variant on every seed's tuples: runs by variant, in the order of the seeds.

    `first_estimate` is what the cost of a tuple is thought to be at the start, relative to the true mean.
    """
    runs: dict[str, list[Run]] = {name: [] for name in variants}
    for place, seed in enumerate(seeds):
        tuples, cost = traffic.tuples(seed, precision=precision)
        for step, (name, system) in enumerate(variants.items()):
            rng = np.random.default_rng([seed, 2])
            runs[name].append(
                simulate(
                    tuples,
                    system.options,
                    rng,
                    seconds=traffic.seconds,
                    first_estimate_seconds=first_estimate * cost,
                    clean_at_dispatch=clean_at_dispatch,
                    control_seconds=system.control_seconds,
                )
            )
            progress((place + (step + 1) / len(variants)) / len(seeds))
    return runs


def part(progress: Progress, start: float, end: float) -> Progress:
    """A progress of its own for a stretch of the whole."""
    return lambda fraction: progress(start + (end - start) * fraction)


def utilisation(runs: Sequence[Run]) -> list[float]:
    """CPU utilisation of each run."""
    return [run.utilisation for run in runs]


def misses(runs: Sequence[Run]) -> list[float]:
    """Miss ratio of each run with purged tuples counted as missed."""
    return [run.total.miss_ratio_with_purged for run in runs]


def drops(runs: Sequence[Run]) -> list[float]:
    """Share of the offered tuples dropped in each run."""
    return [run.drop_ratio for run in runs]


def on_time(runs: Sequence[Run]) -> list[float]:
    """Share of the offered tuples processed within their deadline in each run."""
    return [run.on_time_ratio for run in runs]


def table(runs: Mapping[str, Sequence[Run]]) -> dict[str, dict[str, Any]]:
    """Means over seeds by variant, and each seed's utilisation and misses."""
    return {
        name: {
            "utilisation": mean(utilisation(found)),
            "miss_ratio": mean([run.total.miss_ratio for run in found]),
            "miss_ratio_with_purged": mean(misses(found)),
            "drop_ratio": mean(drops(found)),
            "on_time_ratio": mean(on_time(found)),
            "occupancy": mean([float(run.occupancy.mean()) / (run.limit or 1) for run in found])
            if found[0].limit
            else None,
            "utilisation_by_seed": rounded(utilisation(found)),
            "misses_by_seed": rounded(misses(found)),
        }
        for name, found in runs.items()
    }


def mean(values: Sequence[float]) -> float:
    """Mean, rounded for reports."""
    return round(float(np.mean(values)), 5)


def rounded(values: Sequence[float]) -> list[float]:
    """Values rounded for reports."""
    return [round(float(value), 5) for value in values]


def at_least(left: Sequence[float], right: Sequence[float]) -> int:
    """In how many seeds left >= right, ties included."""
    return sum(a >= b - TIE for a, b in zip(left, right, strict=True))


def below(left: Sequence[float], right: Sequence[float]) -> int:
    """In how many seeds left < right, strictly."""
    return sum(a < b for a, b in zip(left, right, strict=True))
