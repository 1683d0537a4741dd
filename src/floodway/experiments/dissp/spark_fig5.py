"""Figure 5 on Spark: without the controller, latency over time for 20 to 200 queries, and the engine's own limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from floodway.experiments.dissp import common, spark_runs
from floodway.experiments.dissp.engine_on_spark import EngineLimit, EngineRun, SparkEngine
from floodway.experiments.plots import Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result

TITLE = "On Spark without control: the limit, and latency over time for 20 to 200 queries"
CLAIM = Claim(
    common.SOURCE, "Figure 5", "Up to 80 queries latency stays low; above 100 it grows rapidly until memory runs out"
)
LOW_TARGETS = 4.0
"""Latency is low below this many times the least target that the engine can reach."""


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Measure what Spark can take, then offer 20 to 200 queries' worth."""
    runs: dict[int, EngineRun] = {}
    with SparkEngine(trace, seeds[0]) as engine:
        limit = engine.limit()
        for queries in spark_runs.FREE:
            progress((1 + len(runs)) / (len(spark_runs.FREE) + 1))
            runs[queries] = engine.run(queries, limit.scale, spark_runs.FREE_SECONDS)
    progress(1.0)
    return judged(limit, runs, trace)


def judged(limit: EngineLimit, runs: Mapping[int, EngineRun], trace: Path | None) -> Result:
    """The verdict on these runs by number of queries."""
    low_seconds = LOW_TARGETS * limit.targets[0]
    highest = {queries: max(one.latency for one in found.batches) for queries, found in runs.items()}
    last = {queries: found.batches[-1].latency for queries, found in runs.items()}
    return Result(
        measured={
            "limit": spark_runs.limit_measured(limit),
            **{
                f"{queries} queries": {
                    "highest": round(highest[queries], 2),
                    "last": round(last[queries], 2),
                    "cpu": round(found.cpu, 3),
                }
                for queries, found in runs.items()
            },
        },
        criteria=(
            Criterion(
                f"up to 80 queries latency stays below {low_seconds:g} s",
                max(highest[20], highest[80]) < low_seconds,
                f"at most {highest[20]:.1f} s at 20, {highest[80]:.1f} s at 80",
            ),
            Criterion(
                "above 100 queries it ends above that",
                min(last[120], last[200]) > low_seconds,
                f"{last[120]:.1f} s at 120, {last[200]:.1f} s at 200",
            ),
        ),
        where="spark",
        notes=(
            spark_runs.where_noted(limit, trace),
            f"After {spark_runs.FREE_SECONDS:g} s each; the log holds what waits, so memory does not run out.",
        ),
        headline=f"Spark takes {limit.pairs_per_second / 1e6:.1f} M tuples × queries a second; highest latency "
        + ", ".join(f"{value:.1f} s at {queries}" for queries, value in highest.items()),
        plots={"dissp-spark-fig5": lambda: _draw(runs)},
    )


def _draw(runs: Mapping[int, EngineRun]) -> Figure:
    figure, (axes,) = panels(1, 1, width=8.0)
    for queries, found in runs.items():
        times = [one.ended for one in found.batches]
        axes.plot(times, [one.latency for one in found.batches], marker="o", ms=3, label=f"{queries} queries")
    axes.set_yscale("symlog", linthresh=1.0)
    style(axes, title="Figure 5 on Spark: without the controller", x="time (s)", y="mean latency (s)", legend=True)
    return figure
