"""Sections 7 and 8.2.5: D-FIT on trees of nodes, and what one changed operator makes them do again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from floodway.experiments.dfit_agents import random_tree
from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import SOURCE
from floodway.experiments.staying_fit.plan_errors import PlannerErrors, accuracy, within
from floodway.network.model import Network
from floodway.planning.fit.dfit import DFitPlanner
from floodway.planning.program import Program

TITLE = "D-FIT on trees of nodes, and its upkeep"
CLAIM = Claim(
    SOURCE,
    "Sections 7 and 8.2.5",
    "each node sheds for itself and its subtree from its local table; after a change it suffices to update the local "
    "table, or to propagate it to a small number of upstream nodes",
)
NODES = (7, 15, 31)
EPSILON = 0.05
FALLEN = 0.4
"""What is left of the changed operator's selectivity."""


@dataclass(frozen=True)
class Tree:
    """One tree: the planner before and after a leaf changed, its depth, and how good both are."""

    before: DFitPlanner
    after: DFitPlanner
    depth: int
    first: PlannerErrors
    second: PlannerErrors

    @property
    def resent(self) -> int:
        """Tables that differ from before, and so would travel again."""
        return sum(old != new for old, new in zip(self.before.sent, self.after.sent, strict=True))


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Random trees of three sizes for each seed; the last leaf's first operator loses most of its selectivity."""
    trees: dict[int, list[Tree]] = {nodes: [] for nodes in NODES}
    for done, seed in enumerate(seeds, 1):
        for nodes in NODES:
            trees[nodes].append(_tree(nodes, seed))
        progress(done / len(seeds))
    every = [tree for found in trees.values() for tree in found]
    measured = {f"{nodes} nodes": _means(found) for nodes, found in trees.items()}
    most = max(tree.resent / tree.depth for tree in every)
    return Result(
        measured=measured,
        criteria=(
            within("D-FIT", EPSILON, (tree.first for tree in every)),
            within("D-FIT after the change", EPSILON, (tree.second for tree in every)),
            Criterion(
                "the change sends again at most the tables on the way from the leaf to the root",
                most <= 1.0,
                f"up to {most:.2f} times the depth",
            ),
            Criterion(
                "with 31 nodes fewer than half of the nodes build their table again",
                all(len(tree.after.rebuilt) < NODES[-1] / 2 for tree in trees[NODES[-1]]),
                str([len(tree.after.rebuilt) for tree in trees[NODES[-1]]]),
            ),
        ),
        where="computation",
        notes=("Trees, costs and selectivities are random: the paper's figure gives overheads for two nodes only.",),
        headline="; ".join(
            f"{name}: {row['bytes']:.0f} bytes, worst error {row['worst error']:.2%}, one change rebuilds "
            f"{row['tables built again']:.1f} tables and sends {row['tables sent again']:.1f}"
            for name, row in measured.items()
        ),
        plots={"staying-fit-dfit": lambda: _draw(measured)},
    )


def _tree(nodes: int, seed: int) -> Tree:
    network = random_tree(nodes, np.random.default_rng([seed, nodes]))
    before = DFitPlanner(Program(network), EPSILON)
    leaf = f"o{nodes - 1}.0"
    operator = network.operators[leaf]
    assert operator.selectivity is not None
    fallen = replace(operator, selectivity=FALLEN * operator.selectivity)
    after = before.updated(replace(network, operators={**network.operators, leaf: fallen}))
    return Tree(before, after, _depth(network, leaf), accuracy(before, [seed]), accuracy(after, [seed]))


def _depth(network: Network, operator: str) -> int:
    depth = 1
    while (source := network.operators[operator].inputs[0]) in network.operators:
        operator, depth = source, depth + 1
    return depth


def _means(trees: Sequence[Tree]) -> dict[str, Any]:
    return {
        "bytes": float(np.mean([tree.before.wire_bytes for tree in trees])),
        "rows": float(np.mean([tree.before.size for tree in trees])),
        "depth": float(np.mean([tree.depth for tree in trees])),
        "worst error": max(tree.first.worst for tree in trees),
        "worst error after the change": max(tree.second.worst for tree in trees),
        "tables built again": float(np.mean([len(tree.after.rebuilt) for tree in trees])),
        "tables sent again": float(np.mean([tree.resent for tree in trees])),
    }


def _draw(measured: dict[str, dict[str, Any]]) -> Figure:
    figure, axes = panels(1, 2, width=9.6)
    tables = {"built again": "tables built again", "sent again": "tables sent again", "depth": "depth"}
    lines(axes[0], NODES, {name: [row[key] for row in measured.values()] for name, key in tables.items()}, marker="o")
    errors = {"first": "worst error", "after the change": "worst error after the change"}
    lines(
        axes[1],
        NODES,
        {name: [100 * row[key] for row in measured.values()] for name, key in errors.items()},
        marker="o",
    )
    style(axes[0], title="One leaf changed", x="nodes", y="tables", legend=True)
    style(axes[1], title="Worst error", x="nodes", y="% of the optimum", legend=True)
    return figure
