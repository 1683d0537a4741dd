"""What processing costs a participant: convex functions of its load, and the marginal cost of one task.

A task is worth giving away where its marginal cost exceeds the price, and worth taking where it does not (contracts
paper, sections 3.1 and 5). The functions here are sums of convex functions of one resource each, so a task's marginal
cost only rises as other load is added: that is what makes every move lower the total.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Protocol

from floodway.contracts.errors import ContractError
from floodway.contracts.load import Load, Task

TOLERANCE = 1e-9
"""Relative: sums of loads in another order must not turn a cost equal to the price into one above it."""


class CostFunction(Protocol):
    """Cost per second of carrying a load, convex and never falling in each resource."""

    def cost(self, load: Load) -> float:
        """Cost of the whole load."""
        ...


@dataclass(frozen=True, slots=True)
class InFlight:
    """Tuples in flight, being processed or waiting, at a CPU and an output link seen as M/M/1 queues.

    D = ρc/(1−ρc) + ρb/(1−ρb), with ρc = cpu/`cpu` and ρb = link/`link` (contracts paper, section 5). Above `knee` the
    queue has no steady state; the function goes on along its tangent, so that an overloaded participant still has a
    finite, convex cost and knows that giving a task away is worth a great deal.

    >>> costs = InFlight()
    >>> round(costs.cost(Load(0.5, 0.5)), 6)
    2.0
    """

    cpu: float = 1.0
    link: float = 1.0
    knee: float = 0.99

    def __post_init__(self) -> None:
        for name, value in (("cpu", self.cpu), ("link", self.link)):
            if not (isfinite(value) and value > 0):
                raise ContractError(f"{name} capacity is {value}", hint="Give a finite number above 0")
        if not 0 < self.knee < 1:
            raise ContractError(f"knee is {self.knee}", hint="Give a utilisation between 0 and 1")

    def cost(self, load: Load) -> float:
        """Tuples in flight at this load."""
        return self._queue(load.cpu / self.cpu) + self._queue(load.link / self.link)

    def delay_seconds(self, load: Load) -> float:
        """Mean time a tuple spends here, by Little's law: tuples in flight / tuples per second."""
        return self.cost(load) / load.rate if load.rate > 0 else 0.0

    def _queue(self, utilisation: float) -> float:
        held = min(max(utilisation, 0.0), self.knee)
        slope = 1.0 / (1.0 - self.knee) ** 2
        return held / (1.0 - held) + slope * max(0.0, utilisation - self.knee)


@dataclass(frozen=True, slots=True)
class Measured:
    """A cost learnt from what was measured: the greatest convex function of CPU load below all samples.

    Samples are (CPU load, cost) pairs, such as backlog or latency times rate. Between the corners kept the function
    is linear, beyond the last one its slope goes on; slopes below 0 count as 0.

    >>> Measured.fit([(0.0, 0.0), (0.5, 1.0), (0.6, 9.0), (1.0, 6.0)]).cost(Load(cpu=0.75))
    3.5
    """

    corners: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, samples: Iterable[tuple[float, float]]) -> Measured:
        """The lower convex hull of the samples and of the idle participant, (0, 0)."""
        lowest: dict[float, float] = {0.0: 0.0}
        for load, cost in samples:
            if not (isfinite(load) and isfinite(cost) and load >= 0 and cost >= 0):
                raise ContractError(
                    f"cost sample ({load}, {cost}) is not usable", hint="Give finite numbers of 0 or more"
                )
            lowest[load] = min(cost, lowest.get(load, cost))
        hull: list[tuple[float, float]] = []
        for point in sorted(lowest.items()):
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-2], point):
                hull.pop()
            hull.append(point)
        if len(hull) < 2:
            raise ContractError("no cost sample above load 0", hint="Measure the cost at one load at least")
        return cls(tuple(hull))

    def cost(self, load: Load) -> float:
        """Cost at this CPU load."""
        found = 0.0
        edges = list(pairwise(self.corners))
        for place, (left, right) in enumerate(edges):
            end = load.cpu if place == len(edges) - 1 else min(load.cpu, right[0])
            found += max(0.0, _slope(left, right)) * max(0.0, end - left[0])
        return found


def _slope(left: tuple[float, float], right: tuple[float, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])


def added_cost(costs: CostFunction, load: Load, task: Task) -> float:
    """Marginal cost of taking a task: D(load + task) − D(load)."""
    return costs.cost(load + task.load) - costs.cost(load)


def saved_cost(costs: CostFunction, load: Load, task: Task) -> float:
    """Marginal cost of keeping a task that is part of the load: D(load) − D(load − task)."""
    return costs.cost(load) - costs.cost(load - task.load)


def worth_offering(marginal: float, amount: float) -> bool:
    """Whether keeping a task costs strictly more than paying `amount` for it."""
    return marginal > amount * (1.0 + TOLERANCE)


def worth_accepting(marginal: float, amount: float) -> bool:
    """Whether taking a task costs no more than the `amount` paid for it.

    At equality the task is taken: with a strict comparison every participant stops one task early.
    """
    return marginal <= amount * (1.0 + TOLERANCE)


def rounded_price(price: float) -> float:
    """A price of 12 digits: two partners under equal load then ask exactly the same, whatever they summed up first."""
    return float(f"{price:.12g}")
