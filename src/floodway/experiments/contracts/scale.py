"""Scale: a federation of 995 and one of 100,000 nodes, from a skewed load to rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodway.experiments.contracts import common
from floodway.experiments.result import Claim, Progress, Result
from floodway.simulation.federation_cases import Variant
from floodway.simulation.federation_market import excess

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "From 995 to 100,000 nodes"
CLAIM = Claim(
    common.SOURCE,
    "Section 5 (995 nodes); 100,000 are ours",
    "995 nodes settle in under 2 s of computing and 100,000 in under 60 s",
)
SIZES = (995, 10_000, 100_000)
CONTRACTS = 10
LIMIT_SECONDS = {995: 2.0, 100_000: 60.0}


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """CPU seconds, for a clock on a busy machine says little; building the network is counted apart."""
    measured: dict[str, Any] = {}
    within = True
    for place, size in enumerate(SIZES):
        for step, variant in enumerate((Variant.FIXED, Variant.RANGE)):
            case = common.Case(seeds[0], variant, CONTRACTS, nodes=size)
            started = time.process_time()
            before = excess(case.start, case.prices.levels)
            built = time.process_time()
            outcome, limit = case.run()
            ran = time.process_time() - built
            measured[f"{variant.value} {size}"] = {
                "cpu_seconds": round(ran, 3),
                "build_seconds": round(built - started, 3),
                "rounds": len(outcome.rounds),
                "messages_per_node": round(outcome.messages / size, 2),
                "excess_before": before,
                "excess_after": excess(outcome.tasks, limit),
                "settled": outcome.converged,
            }
            within &= outcome.converged and ran < LIMIT_SECONDS.get(size, float("inf"))
            progress((place + (step + 1) / 2) / len(SIZES))
    return Result(
        id="contracts-scale",
        title=TITLE,
        paper=CLAIM,
        measured=measured,
        holds=within,
        where="simulation",
        notes=("One seed; 10 contracts a node, underload of Table 2.",),
        headline="CPU seconds to rest: "
        + ", ".join(f"{name} {one['cpu_seconds']:g}" for name, one in measured.items()),
        plots={"contracts-scale": lambda: _draw(measured)},
    )


def _draw(measured: dict[str, Any]) -> Figure:
    from floodway.experiments.plots import lines, panels, style

    figure, (left, right) = panels(1, 2, width=9.6)
    for axes, what in ((left, "cpu_seconds"), (right, "messages_per_node")):
        series = {
            name.value: [measured[f"{name.value} {size}"][what] for size in SIZES]
            for name in (Variant.FIXED, Variant.RANGE)
        }
        lines(axes, SIZES, dict(series), marker="o")
        axes.set_xscale("log")
    left.set_yscale("log")
    style(left, title="(a) Computing until rest", x="nodes", y="CPU seconds", legend=True)
    style(right, title="(b) Messages", x="nodes", y="messages a node", legend=True)
    right.set_ylim(bottom=0)
    figure.suptitle("Federations of 995 to 100,000 nodes", fontsize=11)
    return figure
