"""What processing costs a participant: convex functions of its load, and the marginal cost of one task.

A task is worth giving away where its marginal cost exceeds the price, and worth taking where it does not (contracts
paper, sections 3.1 and 5). The functions here are sums of convex functions of one resource each, so a task's marginal
cost only rises as other load is added: that is what makes every move lower the total.

Prices for contracts from load levels: the price of a level, the level of a price, the range a chain needs.

Contracts paper, sections 3.2.2 and 3.2.3, for identical tasks u:

    price of the k-th task   p_k = MC(u, (k−1)u) / units(u)
    level of a price p       taskset^F = the most tasks of which the last costs no more than p
    δ_k(F)                   p_F − p_{F−k}: how far the unit marginal cost falls when k tasks leave

A task can travel M transfers through a chain of M + 1 participants if contracts cover [p_F − δ_{M−1}(F), p_F].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isfinite
from typing import Protocol

from floodway.contracts.load import Load, Task
from floodway.errors import ContractError

TOLERANCE = 1e-9
"""Relative: sums of loads in another order must not turn a cost equal to the price into one above it."""
STEP, LEAST, WEIGHT = 0.05, 5, 0.1
"""Of learning: the share of the CPU within which loads count as one, the samples that it takes to believe their mean,
and how far a new one moves it at least."""


class CostFunction(Protocol):
    """Tuples in flight while a load is carried: the cost, convex and never falling in each resource."""

    def cost(self, load: Load) -> float:
        """Cost of the whole load."""
        ...


@dataclass(frozen=True, slots=True)
class InFlight:
    """Tuples in flight, being processed or waiting, at a CPU and an output link seen as M/M/1 queues.

    D = ρc/(1−ρc) + ρb/(1−ρb), with ρc = cpu/`cpu` and ρb = link/`link` (contracts paper, section 5). Above `knee` the
    queue has no steady state; the function goes on along its tangent, so that an overloaded participant still has a
    finite, convex cost and knows that giving a task away is worth a great deal. A `link` of infinity costs nothing.

    >>> costs = InFlight()
    >>> round(costs.cost(Load(0.5, 0.5)), 6)
    2.0
    """

    cpu: float = 1.0
    link: float = 1.0
    knee: float = 0.99

    def __post_init__(self) -> None:
        for name, value in (("cpu", self.cpu), ("link", self.link)):
            if not value > 0 or (name == "cpu" and not isfinite(value)):
                raise ContractError(f"{name} capacity is {value}", hint="Give a finite number above 0")
        if not 0 < self.knee < 1:
            raise ContractError(f"knee is {self.knee}", hint="Give a utilisation between 0 and 1")

    def cost(self, load: Load) -> float:
        """Tuples in flight at this load."""
        return self._queue(load.cpu / self.cpu) + self._queue(load.link / self.link)

    def _queue(self, utilisation: float) -> float:
        held = min(max(utilisation, 0.0), self.knee)
        slope = 1.0 / (1.0 - self.knee) ** 2
        return held / (1.0 - held) + slope * max(0.0, utilisation - self.knee)


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """A cost learnt from what was measured: the greatest convex function of CPU load below all samples.

    Samples are (CPU load, tuples in flight) pairs. Between the corners kept the function is linear, beyond the last
    one its slope goes on; slopes below 0 count as 0.

    >>> MeasuredCost.fit([(0.0, 0.0), (0.5, 1.0), (0.6, 9.0), (1.0, 6.0)]).cost(Load(cpu=0.75))
    3.5
    """

    corners: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, samples: Iterable[tuple[float, float]]) -> MeasuredCost:
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


@dataclass(frozen=True, slots=True)
class Learnt:
    """What was measured at the CPU, and never less than queues say: max(measured, ρc/(1−ρc)) + ρb/(1−ρb).

    Nothing is measured at a load that was never carried; there the queue warns. The larger of two convex functions of
    one resource is convex, and the link stays a term of its own.

    >>> Learnt(MeasuredCost.fit([(0.5, 20.0)]), InFlight()).cost(Load(cpu=0.25, link=0.5))
    11.0
    """

    measured: MeasuredCost
    queues: InFlight

    def cost(self, load: Load) -> float:
        """Tuples in flight at this load."""
        cpu, link = replace(load, link=0.0), replace(load, cpu=0.0)
        return max(self.measured.cost(cpu), self.queues.cost(cpu)) + self.queues.cost(link)


@dataclass(frozen=True, slots=True)
class Learning:
    """What a participant has seen of its own cost: mean tuples in flight by CPU load, in steps of `STEP` of its CPU.

    A step counts once it has `LEAST` samples, so that a burst does not price what was never carried for long; from
    1/`WEIGHT` samples on old ones fade.

    >>> seen = Learning(InFlight())
    >>> for in_flight in (20.0, 30.0, 20.0, 30.0, 25.0):
    ...     seen = seen.seen(0.52, in_flight)
    >>> round(seen.costs().cost(Load(cpu=0.525)), 9)
    25.0
    """

    queues: InFlight
    means: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    """By step: how many samples, and their mean."""

    def seen(self, cpu: float, in_flight: float) -> Learning:
        """With one more sample; an idle participant teaches nothing."""
        if not cpu > 0:
            return self
        step = int(cpu / self.queues.cpu / STEP)
        count, mean = self.means.get(step, (0, 0.0))
        mean += max(WEIGHT, 1.0 / (count + 1)) * (in_flight - mean)
        return replace(self, means={**self.means, step: (count + 1, mean)})

    def costs(self) -> CostFunction:
        """The cost as far as it is known: the queues' alone where nothing is."""
        known = [(self._middle(step), mean) for step, (count, mean) in self.means.items() if count >= LEAST]
        return Learnt(MeasuredCost.fit(known), self.queues) if known else self.queues

    def _middle(self, step: int) -> float:
        return (step + 0.5) * STEP * self.queues.cpu


def delay_seconds(costs: CostFunction, load: Load) -> float:
    """Mean time that a tuple spends here, by Little's law: tuples in flight / tuples per second.

    >>> delay_seconds(InFlight(), Load(cpu=0.5, rate=500.0))
    0.002
    """
    return costs.cost(load) / load.rate if load.rate > 0 else 0.0


def unit_cost(costs: CostFunction, load: Load, *, part: float = 0.01) -> float:
    """What the next bit of CPU load costs, for a whole unit: the price from which on taking work is worth it.

    >>> round(unit_cost(InFlight(), Load(cpu=0.7)), 1)
    11.5
    """
    return (costs.cost(load + Load(cpu=part)) - costs.cost(load)) / part


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


PAPER_TASK = Task("u", Load(cpu=0.025, link=0.04, rate=500.0))
"""500 tuples/s at 50 µs each, 500 KB/s of a link of 100 Mbit/s (contracts paper, section 5)."""


def copies(task: Task, count: int) -> Load:
    """The load of `count` such tasks."""
    return Load(count * task.load.cpu, count * task.load.link, count * task.load.rate)


def unit_price(costs: CostFunction, task: Task, count: int) -> float:
    """Marginal cost per unit of the `count`-th identical task.

    >>> from floodway.contracts.cost import InFlight
    >>> [round(unit_price(InFlight(), PAPER_TASK, k), 4) for k in (12, 13, 14, 15)]
    [0.1866, 0.2132, 0.2464, 0.2888]
    """
    if count < 1:
        raise ContractError(f"there is no task number {count}", hint="Tasks are counted from 1")
    return added_cost(costs, copies(task, count - 1), task) / task.units


def delta(costs: CostFunction, task: Task, level: int, removed: int) -> float:
    """δ_k(taskset^F): fall of the unit marginal cost when `removed` of `level` tasks leave."""
    if not 0 <= removed < level:
        raise ContractError(
            f"{removed} of {level} tasks cannot leave", hint="At least one task must remain to have a price"
        )
    return unit_price(costs, task, level) - unit_price(costs, task, level - removed)


def chain_range(costs: CostFunction, task: Task, level: int, transfers: int) -> tuple[float, float]:
    """The smallest price range that lets tasks travel `transfers` hops: [p_F − δ_{M−1}, p_F] (Lemma 1)."""
    if transfers < 1:
        raise ContractError(f"a chain of {transfers} transfers moves nothing", hint="Give 1 or more")
    top = unit_price(costs, task, level)
    return top - delta(costs, task, level, transfers - 1), top
