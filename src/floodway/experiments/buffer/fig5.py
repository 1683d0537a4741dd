"""Figure 5: how full the buffer is, sampled every 0.1 s for 1000 s, under tail drop, RED' and PID."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.experiments.buffer import common
from floodway.experiments.buffer.fig4 import NAMES, VARIANTS
from floodway.experiments.plots import INK, PALETTE, Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.simulation.buffer import Run

TITLE = "Occupancy of the buffer under three adaptors"
CLAIM = Claim(
    common.SOURCE,
    "Figure 5",
    "PID effectively reduces the occupying ratio of the queue (reference 0.5) and reserves space for tuples to come",
)
SECONDS = 1000.0
CENTRE = (0.45, 0.55)
"""How near to the reference of 0.5 the median occupancy under PID must be."""


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Median occupancy under PID near 0.5 and its mean below those of RED' and tail drop, in every seed."""
    variants = {name: VARIANTS[name] for name in NAMES}
    runs = common.run_all(variants, common.Traffic(seconds=SECONDS), seeds, progress)
    measured = _describe(runs)
    medians = [float(np.median(ratios(one))) for one in runs["PID"]]
    means = {name: [float(ratios(one).mean()) for one in found] for name, found in runs.items()}
    return Result(
        measured=measured,
        criteria=(
            Criterion(
                "under PID the median occupancy is near the reference of 0.5, in every seed",
                all(CENTRE[0] <= median <= CENTRE[1] for median in medians),
                f"{min(medians):.3f} to {max(medians):.3f}",
            ),
            *(
                Criterion(
                    f"under {left} the queue is emptier than under {right}, in every seed",
                    common.below(means[left], means[right]) == len(seeds),
                    f"mean {common.mean(means[left]):.3f} and {common.mean(means[right]):.3f}",
                )
                for left, right in (("PID", "RED'"), ("RED'", "TD"))
            ),
        ),
        where="simulation",
        notes=(f"{len(runs['PID'][0].occupancy)} samples a run.",),
        headline="median occupancy: " + ", ".join(f"{name} {measured[name]['median']:.3f}" for name in NAMES),
        plots={"buffer-fig5": lambda: _draw(runs)},
    )


def ratios(run: Run) -> NDArray[np.float64]:
    """Occupying ratio at every tick: tuples in the queue over its limit."""
    return run.occupancy / float(run.limit or 1)


def _describe(runs: dict[str, list[Run]]) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for name, found in runs.items():
        pooled = np.concatenate([ratios(one) for one in found])
        described[name] = {
            "median": common.mean([float(np.median(pooled))]),
            "mean": common.mean([float(pooled.mean())]),
            "within_0.1_of_reference": common.mean([float((np.abs(pooled - 0.5) <= 0.1).mean())]),
            "above_0.9": common.mean([float((pooled > 0.9).mean())]),
            "median_by_seed": common.rounded([float(np.median(ratios(one))) for one in found]),
        }
    return described


def _draw(runs: dict[str, list[Run]]) -> Figure:
    figure, axes = panels(1, 3, width=10.0, height=3.2)
    edges = np.linspace(0.0, 1.0, 31)
    for place, (name, found) in enumerate(runs.items()):
        pooled = np.concatenate([ratios(one) for one in found])
        share = np.histogram(pooled, bins=edges)[0] / len(pooled)
        axes[place].bar(edges[:-1], share, width=np.diff(edges), align="edge", color=PALETTE[place])
        axes[place].axvline(0.5, color=INK, linewidth=1.0, linestyle="--")
        axes[place].set_xlim(0.0, 1.0)
        style(axes[place], title=name, x="occupying ratio", y="share of samples" if place == 0 else "")
    top = max(panel.get_ylim()[1] for panel in axes)
    for panel in axes:
        panel.set_ylim(0.0, top)
    figure.suptitle("Figure 5: buffer occupancy every 0.1 s for 1000 s; dashed: PID's reference", fontsize=11)
    return figure
