"""Table 1: networks of contracts: the most contracts a node has and how far nodes are apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from floodway.experiments.contracts import common
from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.simulation.federation_cases import random_contracts

TITLE = "Networks of contracts: degrees and distances"
PAPER_MAX = (11, 13, 14, 15, 17, 18)
PAPER_DIAMETER = (19, 8, 6, 5, 4, 4)
CLAIM = Claim(
    common.SOURCE,
    "Table 1",
    "with at least 1, 3, 5, 7, 9, 10 contracts nodes have at most 11, 13, 14, 15, 17, 18; "
    "avg diameter 19, 8, 6, 5, 4, 4",
)
CLOSE_CONTRACTS, CLOSE_HOPS = 2.0, 1.0


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Means over seeds are within 2 contracts and 1 hop of the printed numbers."""
    most: list[float] = []
    hops: list[float] = []
    widest: list[float] = []
    for step, contracts in enumerate(common.CONTRACTS):
        found = [random_contracts(common.NODES, contracts, np.random.default_rng([seed, contracts])) for seed in seeds]
        distances = [one.eccentricities() for one in found]
        most.append(common.mean([int(one.degrees.max()) for one in found]))
        hops.append(common.mean([float(one.mean()) for one in distances]))
        widest.append(common.mean([int(one.max()) for one in distances]))
        progress((step + 1) / len(common.CONTRACTS))
    return Result(
        measured={
            "min_contracts": list(common.CONTRACTS),
            "max_contracts": most,
            "average_eccentricity": hops,
            "diameter": widest,
            "paper_max_contracts": list(PAPER_MAX),
            "paper_avg_diameter": list(PAPER_DIAMETER),
        },
        criteria=(
            Criterion(
                f"the most contracts of a node are within {CLOSE_CONTRACTS:g} of the printed ones",
                all(abs(ours - theirs) <= CLOSE_CONTRACTS for ours, theirs in zip(most, PAPER_MAX, strict=True)),
                str(most),
            ),
            Criterion(
                f"the mean eccentricity is within {CLOSE_HOPS:g} of the printed average diameter",
                all(abs(ours - theirs) <= CLOSE_HOPS for ours, theirs in zip(hops, PAPER_DIAMETER, strict=True)),
                str(hops),
            ),
        ),
        where="simulation",
        notes=("The printed average diameter is the mean eccentricity: true diameters are larger.",),
        headline="max contracts "
        + ", ".join(f"{value:.1f}" for value in most)
        + "; eccentricity "
        + ", ".join(f"{value:.1f}" for value in hops),
        plots={"contracts-table1": lambda: _draw(most, hops, widest)},
    )


def _draw(most: list[float], hops: list[float], widest: list[float]) -> Figure:
    figure, (left, right) = panels(1, 2, width=9.6)
    lines(left, common.CONTRACTS, {"measured": most, "paper": list(PAPER_MAX)}, marker="o")
    lines(
        right,
        common.CONTRACTS,
        {"mean eccentricity": hops, "paper, avg diameter": list(PAPER_DIAMETER), "diameter": widest},
        marker="o",
    )
    for axes in (left, right):
        axes.set_xticks(common.CONTRACTS)
        axes.set_ylim(bottom=0)
    style(left, title="(a) Most contracts of a node", x="least contracts of a node", y="contracts", legend=True)
    style(right, title="(b) How far apart", x="least contracts of a node", y="hops", legend=True)
    figure.suptitle("Table 1: networks of contracts between 995 nodes", fontsize=11)
    return figure
