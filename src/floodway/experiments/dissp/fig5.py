"""Figure 5: without the controller, latency over time for 20 to 200 queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from floodway.experiments.dissp import common
from floodway.experiments.plots import Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result

TITLE = "Without control: latency over time for 20 to 200 queries"
CLAIM = Claim(
    common.SOURCE, "Figure 5", "Up to 80 queries latency stays low; above 100 it grows rapidly until memory runs out"
)
SECONDS = 450.0
LOW_SECONDS = 5.0


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Below the capacity latency returns after every peak; above it grows without bound. Nothing here is random."""
    runs: dict[int, common.EngineTrace] = {}
    for index, queries in enumerate(common.QUERIES):
        runs[queries] = common.run_engine(None, queries, seconds=SECONDS, seed=seeds[0])
        progress((index + 1) / len(common.QUERIES))
    measured = {str(queries): _figures(found) for queries, found in runs.items()}
    low = all(measured[str(q)]["highest"] < LOW_SECONDS for q in common.QUERIES if q <= 80)
    grows = all(
        measured[str(q)]["last"] > 2 * measured[str(q)]["third"] > 2 * LOW_SECONDS for q in common.QUERIES if q > 100
    )
    at = measured["200"]
    return Result(
        measured=measured,
        criteria=(
            Criterion(f"up to 80 queries latency stays below {LOW_SECONDS:g} s", low),
            Criterion("above 100 queries it more than doubles in the last two thirds", grows),
        ),
        where="simulation",
        notes=(
            "The paper gives no capacity: here it is the mean load of 90 queries. At 100 queries, just above it, "
            "latency grows slowly: the paper says 'exceeds 100'.",
            "The simulated queue has no end; the paper's engine ran out of memory after 450 s.",
        ),
        headline=f"80 queries: at most {measured['80']['highest']:.2f} s; 120: {measured['120']['last']:.0f} s and "
        f"200: {at['last']:.0f} s after {SECONDS:.0f} s",
        plots={"dissp-fig5": lambda: _draw(runs)},
    )


def _figures(found: common.EngineTrace) -> dict[str, float]:
    seen = found.latency[np.isfinite(found.latency)]
    return {"highest": float(seen.max()), "third": float(seen[len(seen) // 3]), "last": float(seen[-1])}


def _draw(runs: Mapping[int, common.EngineTrace]) -> Figure:
    figure, (axes,) = panels(1, 1, width=8.0)
    for queries in (80, 100, 120, 160, 200):
        axes.plot(runs[queries].times, runs[queries].latency, label=f"{queries} queries", linewidth=1.4)
    axes.set_yscale("symlog", linthresh=1.0)
    style(axes, title="Figure 5: without the controller", x="time (s)", y="mean latency (s)", legend=True)
    return figure
