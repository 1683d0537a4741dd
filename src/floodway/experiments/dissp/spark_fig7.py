"""Figure 7 on Spark: how latencies are spread round the target at 200 queries, by both laws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from floodway.experiments.dissp import common, spark_runs
from floodway.experiments.dissp.engine_on_spark import EngineRun
from floodway.experiments.dissp.spark_runs import LAWS, ControlledRuns, controlled
from floodway.experiments.plots import PALETTE, Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result

TITLE = "On Spark: the spread of latencies at 200 queries rises with the target"
CLAIM = Claim(
    common.SOURCE,
    "Figure 7",
    "The mean is very close to the target in all cases, and the variation round it increases with the target value",
)


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """The same runs as Figure 6's."""
    return judged(controlled(trace, seeds[0], progress), trace)


def judged(found: ControlledRuns, trace: Path | None) -> Result:
    """The verdict on these runs."""
    targets = found.limit.targets
    spreads = {law: [found.runs[target, law].spread for target in targets] for law in LAWS}
    return Result(
        measured=found.measured(),
        criteria=(
            *(spark_runs.close_to_target(found, law) for law in LAWS),
            *(
                Criterion(
                    f"{law}: the spread rises with the target",
                    all(low < high for low, high in pairwise(values)),
                    ", ".join(f"{value:.2f} s" for value in values),
                )
                for law, values in spreads.items()
            ),
        ),
        where="spark",
        notes=(
            spark_runs.where_noted(found.limit, trace),
            "Tuples of a batch end together: their spread is at least that of their arrivals, half a batch or so.",
        ),
        headline="; ".join(
            f"{law}: spread "
            + ", ".join(f"{value:.2f} s at {t:g} s" for value, t in zip(spreads[law], targets, strict=True))
            for law in LAWS
        ),
        plots={"dissp-spark-fig7": lambda: _draw(found)},
    )


def _draw(found: ControlledRuns) -> Figure:
    figure, axes = panels(1, len(LAWS), width=10.0)
    for place, law in zip(axes, LAWS, strict=True):
        for target, colour in zip(found.limit.targets, PALETTE, strict=False):
            seconds, share = _shares(found.runs[target, law])
            place.plot(seconds, share, color=colour, label=f"T = {target:g} s")
            place.axvline(target, color=colour, linestyle="--", linewidth=0.8)
        style(place, title=f"Figure 7 on Spark: {law}", x="latency (s)", y="share of tuples", legend=True)
    return figure


def _shares(run: EngineRun) -> tuple[np.ndarray, np.ndarray]:
    """Share of the tuples by latency; within a batch they are taken to have arrived evenly."""
    seconds = np.linspace(0.0, max(one.longest for one in run.settled), 200)
    weights = np.array([one.kept for one in run.settled], dtype=np.float64)
    parts = [np.clip((seconds - one.shortest) / max(one.longest - one.shortest, 1e-9), 0.0, 1.0) for one in run.settled]
    return seconds, np.average(parts, axis=0, weights=weights)
