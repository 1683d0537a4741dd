"""A federation of identical tasks in rounds, vectorised: what the state machines do, for 100,000 nodes at once.

With identical tasks a node's state is a number, and a price p is a load level L(p): the most tasks of which the last
costs no more than p. A giver with n tasks offers n − L(p), a taker with m accepts up to L(p) − m. One round is one
pass of OFFER_LOAD at every node that is due: in turns, everyone who is still searching makes one offer to its
cheapest open partner, takers answer all offers of the turn, the accepted tasks move. `federation.py` runs the real
state machines in the same turns; tests hold the two equal, message by message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.contracts.cost import PAPER_TASK, TOLERANCE, InFlight, copies, rounded_price
from floodway.contracts.load import NO_LOAD, Task
from floodway.errors import InputError
from floodway.simulation.federation_cases import Floats, Ints, Prices, Topology, price_table

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did; `messages` counts offers, answers, moves and notes of room."""

    transfers: int
    tasks: int
    messages: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run to the end: final tasks of each node, total cost before the first round and after each, the rounds."""

    tasks: Ints
    cost: Floats
    rounds: tuple[Round, ...]
    converged: bool

    @property
    def messages(self) -> int:
        """All messages of the run."""
        return sum(one.messages for one in self.rounds)

    @property
    def transfers(self) -> int:
        """All moves of the run."""
        return sum(one.transfers for one in self.rounds)


class Market:
    """The federation's state between rounds; `tasks` is changed in place."""

    def __init__(
        self,
        topology: Topology,
        prices: Prices,
        tasks: Ints,
        *,
        notifications: bool = True,
        migration_cost: float = 0.0,
        task: Task = PAPER_TASK,
    ) -> None:
        if tasks.shape != (topology.nodes,) or (tasks < 0).any():
            raise InputError(
                f"{tasks.shape} task counts for {topology.nodes} nodes", hint="Give one count of 0 or more a node"
            )
        self.topology, self.tasks = topology, tasks.astype(np.int64)
        self.low = np.where(np.isnan(prices.low), np.inf, prices.low)
        self.high = np.where(np.isnan(prices.high), -np.inf, prices.high)
        self.notifications, self.migration_cost = notifications, migration_cost
        self._grow(task)
        self.awake: Bools = np.ones(topology.nodes, dtype=bool)
        self.stirred: Bools = np.zeros(topology.nodes, dtype=bool)
        # The price each giver was last asked for by each of its partners, infinite for a no; -inf: not refused.
        self.refused = np.full(self.low.shape, -np.inf)

    def _grow(self, task: Task) -> None:
        most = max(int(self.tasks.max(initial=0)), 64) + 2
        costs = InFlight()
        self.price = np.array([rounded_price(value) for value in price_table(costs, task, most=most)])
        self.total = np.array([costs.cost(copies(task, count) if count else NO_LOAD) for count in range(most + 1)])

    def cost(self) -> float:
        """Total cost of all nodes: tuples in flight."""
        return float(self.total[self.tasks].sum())

    def level(self, price: Floats) -> Ints:
        """L(p): how many tasks fit before the next costs more than the price."""
        found: Ints = np.searchsorted(self.price[1:], price * (1.0 + TOLERANCE), side="right")
        return found

    def add(self, node: int, tasks: int) -> None:
        """Clients start tasks at a node; it will look for partners again."""
        self.tasks[node] += tasks
        self.awake[node] = True
        self._grow(PAPER_TASK)

    def _wake(self, nodes: Ints) -> None:
        self.awake[nodes] = self.stirred[nodes] = True

    def round(self) -> Round:
        """One pass of every node that is awake over its contracts."""
        searching = np.flatnonzero(self.awake)
        self.stirred[:] = False
        quotes = self.low[searching].copy()
        transfers = moved = messages = 0
        while len(searching):
            column = quotes.argmin(axis=1)
            rows = np.arange(len(searching))
            price = quotes[rows, column]
            offered = self.tasks[searching] - self.level(price + self.migration_cost)
            going = (offered > 0) & np.isfinite(price)
            if self.notifications:
                self.awake[searching[~going]] = self.stirred[searching[~going]]
            searching, quotes, column, price, offered = (
                found[going] for found in (searching, quotes, column, price, offered)
            )
            if not len(searching):
                break
            accepted, asked = self._answer(searching, column, price, offered)
            messages += 2 * len(searching) + int((accepted > 0).sum()) + self._move(searching, column, accepted)
            transfers += int((accepted > 0).sum())
            moved += int(accepted.sum())
            quotes[np.arange(len(searching)), column] = asked
            still = accepted == 0
            searching, quotes = searching[still], quotes[still]
        return Round(transfers, moved, messages)

    def _answer(self, givers: Ints, column: Ints, price: Floats, offered: Ints) -> tuple[Ints, Floats]:
        """Tasks accepted of each offer, and the price asked where none was; best paid first at each taker."""
        takers = self.topology.partners[givers, column]
        order = np.lexsort((givers, -price, takers))
        first = np.r_[True, takers[order][1:] != takers[order][:-1]]
        starts = np.flatnonzero(first)
        rank = np.arange(len(order)) - starts[np.cumsum(first) - 1]
        carried = self.tasks.copy()
        accepted = np.zeros(len(givers), dtype=np.int64)
        asked = np.full(len(givers), np.inf)
        level = self.level(price)
        for place in range(int(rank.max()) + 1):
            now = order[rank == place]
            taker = takers[now]
            room = np.clip(level[now] - carried[taker], 0, offered[now])
            accepted[now] = room
            carried[taker] += room
            none = now[room == 0]
            asked[none] = self.price[np.minimum(carried[takers[none]] + 1, len(self.price) - 1)]
        high = self.high[givers, column]
        asked = np.where(asked <= high * (1.0 + TOLERANCE), np.minimum(asked, high), np.inf)
        self.refused[givers, column] = np.where(accepted > 0, -np.inf, asked)
        return accepted, asked

    def _move(self, givers: Ints, column: Ints, accepted: Ints) -> int:
        """Carry out the moves; returns how many notes of room follow."""
        giving = accepted > 0
        gave, got = givers[giving], self.topology.partners[givers, column][giving]
        self.tasks[gave] -= accepted[giving]
        np.add.at(self.tasks, got, accepted[giving])
        self._wake(got)
        if not self.notifications or not len(gave):
            return 0
        # Seen from a node that gave: its partners' rows, at the place where it stands in them.
        partners, back = self.topology.partners[gave], self.topology.back[gave]
        here = partners >= 0
        asked = self.price[np.minimum(self.tasks[gave] + 1, len(self.price) - 1)][:, None]
        high, before = self.high[partners, back], self.refused[partners, back]
        asked = np.where(asked <= high * (1.0 + TOLERANCE), np.minimum(asked, high), np.inf)
        told = here & (asked < before)
        self.refused[partners[told], back[told]] = -np.inf
        self._wake(partners[told])
        return int(told.sum())


def converge(market: Market, *, max_rounds: int = 10_000) -> Outcome:
    """Rounds until one moves nothing: since every move lowers the total cost, that comes."""
    costs, rounds = [market.cost()], list[Round]()
    converged = False
    while not converged and len(rounds) < max_rounds:
        done = market.round()
        rounds.append(done)
        costs.append(market.cost())
        converged = done.transfers == 0
    return Outcome(market.tasks.copy(), np.array(costs), tuple(rounds), converged)


def excess(tasks: Ints, capacity: Ints) -> int:
    """Tasks above the capacity of their node."""
    return int(np.maximum(tasks - capacity, 0).sum())


def room(tasks: Ints, capacity: Ints) -> int:
    """Tasks that nodes could still take within their capacity."""
    return int(np.maximum(capacity - tasks, 0).sum())


def capacity(market: Market) -> Ints:
    """Tasks a node can have before its marginal cost passes the highest price in its contracts."""
    return market.level(market.high.max(axis=1))
