"""The demo's picture: latency over time in all runs, and what each processed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from floodway.experiments.demo.result import Run
from floodway.experiments.plots import INK, PALETTE, panels, style

COLOURS = (PALETTE[1], PALETTE[5], PALETTE[0])
WIDTH = 0.25


def save(path: Path, runs: Sequence[Run], target: float, rate: float) -> Path:
    """Draw all runs over the same time axis and write a picture of the kind that the name's ending says."""
    figure, (latency, kept) = panels(1, 2, width=11.0, height=4.2)
    for run, colour in zip(runs, COLOURS, strict=False):
        seen = run.counted
        latency.plot([b.ended for b in seen], [b.latency for b in seen], "o-", ms=3, color=colour, label=run.name)
    latency.axhline(target, color=INK, linestyle="--", linewidth=1, label=f"target {target:g} s")
    latency.set_ylim(bottom=0)
    style(latency, title=f"Latency at {rate:,.0f} events/s", x="seconds of load", y="seconds", legend=True)
    for place, (run, colour) in enumerate(zip(runs, COLOURS, strict=False)):
        best = run.best_value
        offered = sum(run.truth.of(kind) for kind in ("order", "click"))
        shares = [run.share("order"), run.share("click"), run.value / best if best else 0.0]
        spots = [index + (place - 1) * WIDTH for index in range(len(shares))]
        bars = kept.bar(spots, shares, width=WIDTH * 0.9, color=colour, label=run.name)
        kept.bar_label(bars, [f"{share:.0%}" if offered else "–" for share in shares], fontsize=8, color=INK)
    kept.set_xticks([0, 1, 2], ["orders", "clicks", "value, of the best\nfor as many events"])
    kept.set_ylim(0, 1.12)
    style(kept, title="Processed while the load lasted", x="", y="share")
    figure.savefig(path)
    return path
