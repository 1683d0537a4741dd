"""The demo's picture: latency over time for both runs, and what was kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from floodway.agent.loop.report import RunReport

COLOURS = ("#d1603d", "#0b6e8f")


def save_plot(path: Path, runs: Mapping[str, RunReport], target: float) -> Path:
    """Draw both runs over the same time axis and write a PNG."""
    figure = Figure(figsize=(9.0, 6.0), dpi=130, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for (name, run), colour in zip(runs.items(), COLOURS, strict=True):
        seen = [point for point in run.points if point.latency_seconds is not None]
        above.plot(
            [p.seconds for p in seen],
            [p.latency_seconds for p in seen],
            "o-",
            ms=3.5,
            color=colour,
            label=name,
        )
        times = [point.seconds for point in run.points]
        shares = [point.kept / point.offered if point.offered else 1.0 for point in run.points]
        below.step(times, shares, where="pre", color=colour, label=name)
    above.axhline(target, color="#22303c", linestyle="--", linewidth=1, label=f"target {target:g} s")
    above.set_ylabel("latency of results (s)")
    above.set_title("Twice the load one core can process", loc="left", fontweight="bold")
    below.set_ylabel("share of tuples kept")
    below.set_ylim(0, 1.05)
    below.set_xlabel("seconds since the start")
    for axes in (above, below):
        axes.grid(axis="y", color="#c9d1d8", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    above.legend(frameon=False)
    figure.savefig(path)
    return path
