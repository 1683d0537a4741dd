"""Which tasks to offer and which to accept at a price: the inner loops of OFFER_LOAD and ACCEPT_LOAD.

    offer  u while  MC(u, rest − u)  > units(u)·price + migration cost     (contracts paper, Figure 2)
    accept u while  MC(u, all)      <= units(u)·price                      (Figure 3, with equality: see cost.py)

Both are greedy in one fixed order that keeps the tasks of a query next to each other, heaviest queries first: an
offer then holds whole queries before parts of the next, and so does what is accepted of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from floodway.contracts.cost import TOLERANCE, CostFunction, added_cost, saved_cost, worth_accepting, worth_offering
from floodway.contracts.load import Load, Task

Bearable = Callable[[Load], bool]
"""Whether a participant could carry this load and still keep the service it has promised."""


def anything(load: Load) -> bool:
    """No promise to keep."""
    return True


def together(tasks: Iterable[Task]) -> list[Task]:
    """Tasks query by query, the heaviest query first, the heaviest task first within one; names break ties."""
    found = list(tasks)
    weight: dict[str, float] = {}
    for task in found:
        weight[_query(task)] = weight.get(_query(task), 0.0) + task.units
    return sorted(found, key=lambda task: (-weight[_query(task)], _query(task), -task.units, task.name))


def _query(task: Task) -> str:
    return task.query or task.name


def offer_set(
    costs: CostFunction, load: Load, tasks: Iterable[Task], price: float, *, migration_cost: float = 0.0
) -> tuple[Task, ...]:
    """The tasks that cost more here than with a partner at this price; `load` includes them all.

    `migration_cost` is what moving one task must save beyond its price, in the unit of cost.
    """
    chosen: list[Task] = []
    for task in together(tasks):
        if worth_offering(saved_cost(costs, load, task), task.units * price + migration_cost):
            chosen.append(task)
            load -= task.load
    return tuple(chosen)


def still_open(tasks: Iterable[Task], refused: Sequence[tuple[Task, float]], price: float) -> list[Task]:
    """The tasks that a partner may yet take at this price, after what it has refused (task, lowest price asked).

    If r was refused at a price, so is every u with at least the load of r, and of units(u)/units(r) copies of r, in
    every resource, and no more tuples to spread a delay over: cost and delay are convex. Lighter ones are worth a try.

    >>> heavy, light = Task("h", Load(0.5), units=0.5), Task("l", Load(0.1), units=0.1)
    >>> [task.name for task in still_open([heavy, light], [(heavy, float("inf"))], 4.0)]
    ['l']
    """
    above = [task for task, asked in refused if asked > price]
    return [task for task in tasks if not any(_no_lighter(task, known) for known in above)]


def _no_lighter(task: Task, known: Task) -> bool:
    factor = max(1.0, task.units / known.units)
    least, most = factor * (1.0 - TOLERANCE), factor * (1.0 + TOLERANCE)
    one, other = task.load, known.load
    return one.cpu >= least * other.cpu and one.link >= least * other.link and one.rate <= most * other.rate


def accept_set(
    costs: CostFunction,
    load: Load,
    tasks: Sequence[Task],
    price: float,
    *,
    bearable: Bearable = anything,
    also_worth: Mapping[str, float] | None = None,
) -> tuple[Task, ...]:
    """The offered tasks that cost no more than they pay, or save as `also_worth` says, in the order offered."""
    chosen: list[Task] = []
    for task in tasks:
        worth = max(task.units * price, (also_worth or {}).get(task.name, 0.0))
        pays = worth_accepting(added_cost(costs, load, task), worth)
        if pays and bearable(load + task.load):
            chosen.append(task)
            load += task.load
    return tuple(chosen)


def asking_price(
    costs: CostFunction, load: Load, tasks: Sequence[Task], *, bearable: Bearable = anything
) -> float | None:
    """The lowest unit price at which one of the tasks could be accepted: the least unit marginal cost.

    None where no price helps, because every task would break a promise.
    """
    prices = [added_cost(costs, load, task) / task.units for task in tasks if bearable(load + task.load)]
    return min(prices, default=None)
