"""The demo's picture: latency over time in all runs, and what each kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from floodway.experiments.demo.story import Run
from floodway.experiments.plots import INK, PALETTE, panels, style

COLOURS = (PALETTE[1], PALETTE[5], PALETTE[0])


def save(path: Path, runs: Sequence[Run], target: float, rate: float) -> Path:
    """Draw all runs over the same time axis and write a PNG."""
    figure, (latency, kept) = panels(1, 2, width=11.0, height=4.2)
    for run, colour in zip(runs, COLOURS, strict=False):
        seen = [batch for batch in run.batches if batch.ended <= run.seconds * 1.05]
        latency.plot([b.ended for b in seen], [b.latency for b in seen], "o-", ms=3, color=colour, label=run.name)
    latency.axhline(target, color=INK, linestyle="--", linewidth=1, label=f"target {target:g} s")
    style(latency, title=f"Latency at {rate:,.0f} events/s", x="seconds of load", y="seconds", legend=True)
    width = 0.25
    for place, (run, colour) in enumerate(zip(runs, COLOURS, strict=False)):
        shares = [run.kept("order"), run.kept("click")]
        spots = [index + (place - 1) * width for index in range(2)]
        bars = kept.bar(spots, shares, width=width * 0.9, color=colour, label=run.name)
        kept.bar_label(bars, [f"{share:.0%}" for share in shares], fontsize=8, color=INK)
    kept.set_xticks([0, 1], ["orders", "clicks"])
    kept.set_ylim(0, 1.12)
    style(kept, title="Processed while the load lasted", x="", y="share of events")
    figure.savefig(path)
    return path
