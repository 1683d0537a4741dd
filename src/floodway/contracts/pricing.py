"""Prices for contracts from load levels: the price of a level, the level of a price, the range a chain needs.

Contracts paper, sections 3.2.2 and 3.2.3, for identical tasks u:

    price of the k-th task   p_k = MC(u, (k−1)u) / units(u)
    level of a price p       taskset^F = the most tasks of which the last costs no more than p
    δ_k(F)                   p_F − p_{F−k}: how far the unit marginal cost falls when k tasks leave

A task can travel M transfers through a chain of M + 1 participants if contracts cover [p_F − δ_{M−1}(F), p_F].
"""

from __future__ import annotations

from floodway.contracts.cost import CostFunction, added_cost
from floodway.contracts.load import Load, Task
from floodway.errors import ContractError

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
