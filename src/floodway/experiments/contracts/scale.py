"""Scale: a federation of 995 and one of 100,000 nodes, from a skewed load to rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from floodway.experiments.contracts import common
from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.simulation.federation_cases import Variant
from floodway.simulation.federation_market import excess

TITLE = "From 995 to 100,000 nodes"
CLAIM = Claim(
    common.SOURCE,
    "Section 5 (995 nodes); 100,000 are ours",
    "995 nodes are built and settle in under 2 s of computing, 100,000 in under 60 s",
)
SIZES = (995, 10_000, 100_000)
CONTRACTS = 10
LIMIT_SECONDS = {995: 2.0, 100_000: 60.0}


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """CPU seconds, for a clock on a busy machine says little; of 995 nodes every seed, of more nodes the first."""
    measured: dict[str, Any] = {}
    for place, size in enumerate(SIZES):
        for step, variant in enumerate(Variant):
            chosen = seeds if size == common.NODES else seeds[:1]
            cases = [common.FederationCase(seed, variant, CONTRACTS, nodes=size) for seed in chosen]
            found = max((settle(case) for case in cases), key=lambda one: one["cpu_seconds"])
            measured[f"{variant.value} {size}"] = found
            progress((place + (step + 1) / len(Variant)) / len(SIZES))
    return judged(measured, len(seeds))


def judged(measured: dict[str, Any], seeds: int) -> Result:
    """The verdict on what `settle` found, by variant and size."""
    return Result(
        measured=measured,
        criteria=(
            Criterion("every federation comes to rest", all(one["settled"] for one in measured.values())),
            *(
                Criterion(f"{size} nodes take under {limit:g} s of CPU", slowest < limit, f"{slowest:.2f} s")
                for size, limit in LIMIT_SECONDS.items()
                for slowest in (max(measured[f"{variant.value} {size}"]["cpu_seconds"] for variant in Variant),)
            ),
            Criterion(
                "at most 1% of the excess is left with homogeneous prices",
                all(
                    measured[f"{variant.value} {size}"]["excess_after"]
                    <= 0.01 * measured[f"{variant.value} {size}"]["excess_before"]
                    for variant in (Variant.FIXED, Variant.RANGE)
                    for size in SIZES
                ),
            ),
        ),
        where="simulation",
        notes=(
            f"The slowest of {seeds} seeds at 995 nodes, one seed above; 10 contracts a node, "
            "underload of Table 2. Building the network is counted.",
        ),
        headline="CPU seconds to build and settle: "
        + ", ".join(f"{name} {one['cpu_seconds']:g}" for name, one in measured.items()),
        plots={"contracts-scale": lambda: _draw(measured)},
    )


def settle(case: common.FederationCase) -> dict[str, Any]:
    """Build one federation and let it come to rest; `cpu_seconds` is both together."""
    started = time.process_time()
    before = excess(case.start, case.prices.levels)
    built = time.process_time()
    outcome, limit = case.run()
    ended = time.process_time()
    return {
        "cpu_seconds": round(ended - started, 3),
        "build_seconds": round(built - started, 3),
        "rounds": len(outcome.rounds),
        "messages_per_node": round(outcome.messages / case.nodes, 2),
        "excess_before": before,
        "excess_after": excess(outcome.tasks, limit),
        "settled": outcome.converged,
    }


def _draw(measured: dict[str, Any]) -> Figure:
    figure, (left, right) = panels(1, 2, width=9.6)
    for axes, what in ((left, "cpu_seconds"), (right, "messages_per_node")):
        series = {name.value: [measured[f"{name.value} {size}"][what] for size in SIZES] for name in Variant}
        lines(axes, SIZES, dict(series), marker="o")
        axes.set_xscale("log")
    left.set_yscale("log")
    style(left, title="(a) Computing, to build and to settle", x="nodes", y="CPU seconds", legend=True)
    style(right, title="(b) Messages", x="nodes", y="messages a node", legend=True)
    right.set_ylim(bottom=0)
    figure.suptitle("Federations of 995 to 100,000 nodes", fontsize=11)
    return figure
