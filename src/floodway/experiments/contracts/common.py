"""What the contract paper's figures share: 995 nodes, four ways to set prices, two starting loads.

For one seed every variant sees the same network of contracts and the same starting load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from floodway.experiments.result import Progress
from floodway.simulation.federation_cases import (
    OVERLOAD_MEAN,
    UNDERLOAD_MEAN,
    Ints,
    Prices,
    Topology,
    Variant,
    allocation,
    prices,
    random_contracts,
)
from floodway.simulation.federation_market import Market, Outcome, capacity, converge

SOURCE = "contracts"
NODES = 995
CONTRACTS = (1, 3, 5, 7, 9, 10)
"""Least number of contracts a node has, the x axis of Figures 8 and 9."""


@dataclass(frozen=True)
class FederationCase:
    """One simulation: what it starts from."""

    seed: int
    variant: Variant
    contracts: int
    overload: bool = False
    nodes: int = NODES

    @cached_property
    def topology(self) -> Topology:
        """The network of contracts."""
        return random_contracts(self.nodes, self.contracts, np.random.default_rng([self.seed, self.contracts]))

    @cached_property
    def prices(self) -> Prices:
        """The contracts' prices."""
        return prices(self.topology, self.variant, np.random.default_rng([self.seed, 102]))

    @cached_property
    def start(self) -> Ints:
        """Tasks of each node before anything moves."""
        mean = OVERLOAD_MEAN if self.overload else UNDERLOAD_MEAN
        return allocation(self.nodes, mean, np.random.default_rng([self.seed, 103]))

    def run(self) -> tuple[Outcome, Ints]:
        """The run to the end, and each node's capacity: its level at the highest price in its contracts."""
        market = Market(self.topology, self.prices, self.start)
        return converge(market), capacity(market)


@dataclass(frozen=True, slots=True)
class TaskSpread:
    """How the tasks of a variant ended up, one number a seed: shares of the start, and the worst node's tasks."""

    excess_before: list[int]
    excess_after: list[int]
    room_before: list[int]
    room_after: list[int]
    worst_excess: list[int]
    worst_room: list[int]

    @property
    def moved(self) -> float:
        """Share of the excess that was moved, mean over seeds."""
        pairs = zip(self.excess_after, self.excess_before, strict=True)
        return float(np.mean([1 - after / before for after, before in pairs]))

    @property
    def used(self) -> float:
        """Share of the free capacity that was put to use, mean over seeds."""
        pairs = zip(self.room_after, self.room_before, strict=True)
        return float(np.mean([1 - after / before for after, before in pairs]))


def spread(variant: Variant, contracts: int, seeds: Sequence[int], *, overload: bool) -> TaskSpread:
    """Run one variant on every seed."""
    found = TaskSpread([], [], [], [], [], [])
    for seed in seeds:
        case = FederationCase(seed, variant, contracts, overload)
        outcome, limit = case.run()
        for before, after, over in (
            (found.excess_before, found.excess_after, 1),
            (found.room_before, found.room_after, -1),
        ):
            before.append(int(np.maximum(over * (case.start - limit), 0).sum()))
            after.append(int(np.maximum(over * (outcome.tasks - limit), 0).sum()))
        found.worst_excess.append(int(np.maximum(outcome.tasks - limit, 0).max()))
        found.worst_room.append(int(np.maximum(limit - outcome.tasks, 0).max()))
    return found


def spreads(seeds: Sequence[int], progress: Progress, *, overload: bool) -> dict[Variant, dict[int, TaskSpread]]:
    """Every variant at every number of contracts: Figures 8 and 9."""
    found: dict[Variant, dict[int, TaskSpread]] = {variant: {} for variant in Variant}
    steps = len(Variant) * len(CONTRACTS)
    for place, variant in enumerate(Variant):
        for step, contracts in enumerate(CONTRACTS):
            found[variant][contracts] = spread(variant, contracts, seeds, overload=overload)
            progress((place * len(CONTRACTS) + step + 1) / steps)
    return found


def mean(values: Sequence[float]) -> float:
    """Mean, rounded for reports."""
    return round(float(np.mean(values)), 4)
