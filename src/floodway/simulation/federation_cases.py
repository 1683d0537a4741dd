"""Table 2 of the contracts paper: four ways to set prices, two ways to spread the load at the start.

Networks of contracts: who has a contract with whom, and how far apart that leaves them.

Contracts paper, section 5: every node first makes a contract with one already connected, which gives a random
recursive tree; then, round by round, each node that still has too few partners adds one at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from floodway.contracts.cost import PAPER_TASK, CostFunction, InFlight, unit_price
from floodway.contracts.load import Task
from floodway.errors import InputError

Ints = NDArray[np.int64]

TRIES = 4


@dataclass(frozen=True)
class Topology:
    """Partners of each node as a padded table, in the order in which contracts were made; -1 where there is none.

    >>> chain(3).partners.tolist()
    [[1, -1], [0, 2], [1, -1]]
    """

    partners: Ints

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.partners)

    @cached_property
    def degrees(self) -> Ints:
        """Partners of each node."""
        found: Ints = (self.partners >= 0).sum(axis=1)
        return found

    @cached_property
    def back(self) -> Ints:
        """For each place (i, k): at which place of its partner's row node i stands; -1 where there is no partner."""
        rows, columns = np.nonzero(self.partners >= 0)
        others = self.partners[rows, columns]
        key, reverse = rows * self.nodes + others, others * self.nodes + rows
        order = np.argsort(key)
        at = order[np.searchsorted(key[order], reverse)]
        found = np.full_like(self.partners, -1)
        found[rows, columns] = columns[at]
        return found

    def eccentricities(self) -> Ints:
        """Hops from each node to the one furthest from it; the network must be connected."""
        reached = np.eye(self.nodes, dtype=bool)
        found: Ints = np.zeros(self.nodes, dtype=np.int64)
        # A missing partner is read as the node itself, which adds nothing.
        partners = np.where(self.partners >= 0, self.partners, np.arange(self.nodes)[:, None])
        while not (all_reached := reached.all(axis=1)).all():
            wider = reached.copy()
            for column in partners.T:
                wider |= reached[column]
            if (wider == reached).all():
                raise InputError("the contracts leave nodes without a path", hint="Connect all participants")
            found[~all_reached] += 1
            reached = wider
        return found


def chain(nodes: int) -> Topology:
    """Nodes in a row, each with a contract with its neighbours."""
    return from_pairs(nodes, [(node, node + 1) for node in range(nodes - 1)])


def from_pairs(nodes: int, pairs: list[tuple[int, int]]) -> Topology:
    """A network of contracts in both directions between these pairs."""
    rows: list[list[int]] = [[] for _ in range(nodes)]
    for one, other in pairs:
        rows[one].append(other)
        rows[other].append(one)
    table = np.full((nodes, max(map(len, rows), default=0) or 1), -1, dtype=np.int64)
    for node, row in enumerate(rows):
        table[node, : len(row)] = row
    return Topology(table)


def random_contracts(nodes: int, min_contracts: int, rng: np.random.Generator) -> Topology:
    """The paper's random network: a recursive tree, then rounds until everyone has `min_contracts` partners."""
    if nodes < 2 or not 1 <= min_contracts < nodes:
        raise InputError(
            f"{nodes} nodes cannot have {min_contracts} contracts each",
            hint="Give two nodes or more, and between 1 and nodes - 1 contracts",
        )
    parents = (rng.random(nodes - 1) * np.arange(1, nodes)).astype(np.int64)
    linked: list[dict[int, None]] = [{} for _ in range(nodes)]
    for node, parent in enumerate(parents.tolist(), start=1):
        linked[node][parent] = None
        linked[parent][node] = None
    short = [node for node in range(nodes) if len(linked[node]) < min_contracts]
    while short:
        picks = rng.integers(0, nodes, size=(len(short), TRIES)).tolist()
        for node, row in zip(short, picks, strict=True):
            if len(linked[node]) >= min_contracts:
                continue
            # Chance may miss every free partner, above all in a small network: then the next round tries again.
            free = (other for other in row if other != node and other not in linked[node])
            partner = next(free, None)
            if partner is not None:
                linked[node][partner] = None
                linked[partner][node] = None
        short = [node for node in short if len(linked[node]) < min_contracts]
    table = np.full((nodes, max(map(len, linked))), -1, dtype=np.int64)
    for node, row_of in enumerate(linked):
        table[node, : len(row_of)] = list(row_of)
    return Topology(table)


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
