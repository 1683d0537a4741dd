"""Table 2 of the contracts paper: four ways to set prices, two ways to spread the load at the start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from floodway.contracts.cost import PAPER_TASK, CostFunction, InFlight, unit_price
from floodway.contracts.load import Task
from floodway.errors import InputError
from floodway.simulation.federation_topology import Ints, Topology

Floats = NDArray[np.float64]

PAPER_LEVEL = 14
"""taskset^F of the homogeneous variants."""
RANDOM_LEVELS = (12, 18)
RANGE_TASKS = 2
"""Price ranges are δ_2 wide: the price of two tasks' difference."""
CROWDED_SHARE, CROWDED_TASKS = 299 / 995, 22


class Variant(StrEnum):
    """How prices are set."""

    FIXED = "Fixed"
    RANGE = "Range"
    RANDOM_FIXED = "Random Fixed"
    RANDOM_RANGE = "Random Range"

    @property
    def has_range(self) -> bool:
        """Whether prices are negotiated within a range."""
        return self in (Variant.RANGE, Variant.RANDOM_RANGE)


@dataclass(frozen=True)
class Prices:
    """Price range of each contract in the topology's table (nan where there is none), by level and by price.

    `levels` are each node's own taskset^F, `price` the price of the k-th identical task at index k.
    """

    low: Floats
    high: Floats
    levels: Ints
    price: Floats


def price_table(costs: CostFunction | None = None, task: Task = PAPER_TASK, *, most: int = 64) -> Floats:
    """Marginal cost per unit of the k-th task at index k, 0 at index 0."""
    found = costs or InFlight()
    return np.array([0.0, *(unit_price(found, task, count) for count in range(1, most + 1))])


def prices(topology: Topology, variant: Variant, rng: np.random.Generator) -> Prices:
    """Table 2's prices: the same everywhere, or the lower of two partners' random thresholds."""
    nodes = topology.nodes
    if variant in (Variant.RANDOM_FIXED, Variant.RANDOM_RANGE):
        least, most = RANDOM_LEVELS
        levels = rng.integers(least, most + 1, size=nodes)
    else:
        levels = np.full(nodes, PAPER_LEVEL, dtype=np.int64)
    here = topology.partners >= 0
    agreed = np.where(here, np.minimum(levels[:, None], levels[topology.partners]), 0)
    price = price_table()
    high = np.where(here, price[agreed], np.nan)
    low = np.where(here, price[np.maximum(agreed - RANGE_TASKS, 0)], np.nan) if variant.has_range else high
    return Prices(low, high, levels, price)


def uniform_prices(topology: Topology, low: float, high: float) -> Prices:
    """The same range in every contract."""
    if not 0 <= low <= high:
        raise InputError(f"price range [{low}, {high}] makes no sense", hint="Give 0 <= low <= high")
    here = topology.partners >= 0
    price = price_table()
    level = int(np.searchsorted(price[1:], high * (1 + 1e-9), side="right"))
    return Prices(
        low=np.where(here, low, np.nan),
        high=np.where(here, high, np.nan),
        levels=np.full(topology.nodes, level, dtype=np.int64),
        price=price,
    )


def allocation(nodes: int, others_mean: float, rng: np.random.Generator) -> Ints:
    """Tasks at the start: 299 of 995 nodes with 22 each, the rest with `others_mean` on average.

    The rest's tasks fall on one of them at random, one by one, so that their number is exact.
    """
    crowded = round(nodes * CROWDED_SHARE)
    order = rng.permutation(nodes)
    found = np.zeros(nodes, dtype=np.int64)
    found[order[:crowded]] = CROWDED_TASKS
    rest = order[crowded:]
    places = rng.integers(0, len(rest), size=round(others_mean * len(rest)))
    found[rest] = np.bincount(places, minlength=len(rest))
    return found


UNDERLOAD_MEAN, OVERLOAD_MEAN = 7.7, 12.0
