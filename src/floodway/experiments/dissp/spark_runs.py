"""The runs on Spark that the figures share: under control for every target and law, each once in a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from floodway.experiments.dissp.engine_on_spark import EngineLimit, EngineRun, SparkEngine, papers_law
from floodway.experiments.result import Criterion, Progress

OVERLOADED = 200
"""Queries: even the lowest of the rates is above the limit of 90."""
SWEEP = (120,)
SECONDS, FREE_SECONDS = 80.0, 60.0
LAWS = PAPER, DEFAULT = "the paper's law", "the default"
FREE = (20, 80, 120, 200)
CLOSE = 0.1
"""How far the mean latency may be from its target, as a share of it."""


@dataclass(frozen=True, slots=True)
class ControlledRuns:
    """Runs by target and law at 200 queries, by queries at the middle target by default, and one without control."""

    limit: EngineLimit
    free: EngineRun
    runs: Mapping[tuple[float, str], EngineRun]
    sweep: Mapping[int, EngineRun]

    def measured(self) -> dict[str, object]:
        """For JSON."""
        return {
            "limit": limit_measured(self.limit),
            "200 queries without control": self.free.to_dict(),
            **{f"{OVERLOADED} queries, target {t:g} s, {law}": run.to_dict() for (t, law), run in self.runs.items()},
            **{f"{q} queries, target {run.target:g} s, {DEFAULT}": run.to_dict() for q, run in self.sweep.items()},
        }


def close_to_target(found: ControlledRuns, law: str) -> Criterion:
    """That under this law the mean is at every target, as Figures 6 and 7 both claim."""
    means = {target: found.runs[target, law].latency for target in found.limit.targets}
    return Criterion(
        f"{law}: the mean is within {CLOSE:.0%} of every target",
        all(abs(mean / target - 1.0) < CLOSE for target, mean in means.items()),
        ", ".join(f"{mean:.2f} at {target:g} s" for target, mean in means.items()),
    )


def limit_measured(limit: EngineLimit) -> dict[str, float]:
    """What the engine can take, for JSON."""
    return {
        "tuples × queries a second": round(limit.pairs_per_second),
        "queries at the paper's rates": round(limit.queries),
        "rates are the paper's times": round(limit.scale, 2),
        "seconds a batch takes at least": round(limit.batch_seconds, 3),
    }


def where_noted(limit: EngineLimit, trace: Path | None) -> str:
    """The note on load and data that every one of the figures has."""
    data = "generated readings" if trace is None else f"the readings of {trace.name}"
    return (
        f"Spark on two cores takes about {limit.queries:,.0f} queries at the paper's rates; here ten sources send "
        f"{limit.scale:.1f} times these, so that the limit is at 90 queries. Data: {data}."
    )


_KNOWN: dict[tuple[Path | None, int], ControlledRuns] = {}


def controlled(trace: Path | None, seed: int, progress: Progress) -> ControlledRuns:
    """The runs under control; those of the same trace and seed are made once."""
    if (trace, seed) not in _KNOWN:
        _KNOWN[trace, seed] = _run_all(trace, seed, progress)
    progress(1.0)
    return _KNOWN[trace, seed]


def _run_all(trace: Path | None, seed: int, progress: Progress) -> ControlledRuns:
    """One session: the engine's limit, a run without control, then every target by both laws."""
    with SparkEngine(trace, seed) as engine:
        limit = engine.limit()
        targets, middle = limit.targets, limit.targets[len(limit.targets) // 2]
        every = 1 + len(targets) * len(LAWS) + len(SWEEP)
        free = engine.run(OVERLOADED, limit.scale, FREE_SECONDS)
        progress(1 / every)
        runs: dict[tuple[float, str], EngineRun] = {}
        for target in targets:
            for law in LAWS:
                controller = papers_law(target, OVERLOADED, limit) if law == PAPER else None
                runs[target, law] = engine.run(
                    OVERLOADED, limit.scale, SECONDS, target=target, controller=controller, law=law
                )
                progress((1 + len(runs)) / every)
        sweep: dict[int, EngineRun] = {}
        for queries in SWEEP:
            sweep[queries] = engine.run(queries, limit.scale, FREE_SECONDS, target=middle, law=DEFAULT)
            progress((1 + len(runs) + len(sweep)) / every)
    return ControlledRuns(limit, free, runs, sweep)
