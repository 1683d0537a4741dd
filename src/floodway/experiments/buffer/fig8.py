"""Figure 8: CWB against COB on bursty traffic: a trace file if one is given, self-similar traffic otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from floodway.experiments.buffer import common
from floodway.experiments.buffer.fig7 import better, draw, headline, systems
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.simulation.buffer import Run

TITLE = "With and without a buffer, bursty traffic"
CLAIM = Claim(
    common.SOURCE,
    "Figure 8",
    "on real traffic, more bursty than Poisson, CWB is better than COB by more than on synthetic data",
)
PERMITTED = (0.01, 0.1, 0.2)


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """CWB is better than COB in every seed; the mean gaps are larger than on Poisson traffic."""
    bursty = common.on_trace(trace) or common.Traffic("self-similar")
    capacity = common.CAPACITY if bursty.trace is None else bursty.trace.rate / bursty.load
    even = replace(bursty, kind="poisson", trace=None, capacity=capacity)
    by_ratio: dict[float, dict[str, list[Run]]] = {}
    for step, ratio in enumerate(PERMITTED):
        stretch = common.part(progress, step / 5, (step + 1) / 5)
        by_ratio[ratio] = common.run_all(systems(ratio), bursty, seeds, stretch)
    base = by_ratio[PERMITTED[0]]
    seldom = common.run_all(
        systems(PERMITTED[0]), bursty, seeds, common.part(progress, 3 / 5, 4 / 5), clean_at_dispatch=False
    )
    poisson = common.run_all(systems(PERMITTED[0]), even, seeds, common.part(progress, 4 / 5, 1.0))
    gaps = {"bursty": _gaps(base), "poisson": _gaps(poisson)}
    name = bursty.trace.name if bursty.trace else "self-similar"
    measured: dict[str, Any] = {common.OURS: common.table(base), common.PAPERS_CYCLE: common.table(seldom)}
    measured |= {"traffic": name, "hurst": bursty.hurst(seeds), "gaps": gaps}
    measured["poisson"] = common.table(poisson)
    return Result(
        measured=measured,
        criteria=(
            *better(by_ratio, seldom),
            *(
                Criterion(
                    f"the gap in {key.replace('_', ' ')} is larger than on Poisson traffic",
                    gaps["bursty"][key] > gaps["poisson"][key],
                    f"{gaps['bursty'][key]:.4f} and {gaps['poisson'][key]:.4f}",
                )
                for key in gaps["bursty"]
            ),
        ),
        where="simulation",
        notes=(f"Traffic: {name}. The paper's own trace, LBL-PKT-4, could not be had; this one stands for it.",),
        headline=headline(base),
        plots={"buffer-fig8": lambda: draw(base, by_ratio, f"Figure 8: {name} traffic, load 1.2")},
    )


def _gaps(runs: dict[str, list[Run]]) -> dict[str, float]:
    """By how much CWB is ahead of COB, means over seeds."""
    return {
        "on_time_ratio": round(common.mean(common.on_time(runs["CWB"])) - common.mean(common.on_time(runs["COB"])), 5),
        "utilisation": round(
            common.mean(common.utilisation(runs["CWB"])) - common.mean(common.utilisation(runs["COB"])), 5
        ),
        "drop_ratio": round(common.mean(common.drops(runs["COB"])) - common.mean(common.drops(runs["CWB"])), 5),
    }
