"""Trades between two drop locations: one is left out or kept whole, and another takes the room or gives it.

A planner is asked for rates of streams (`window_choice.py`), so that no asking changes what it decided about the
branches of a split. But where a plan is feasible, so is every other that fits the same CPU and takes no more of
whatever else there is. Of

    s ─► o ─┬─► windows of 10 s by 5 s ─► q            half of both branches is 29% of the windows of each,
            └─► windows of 10 s by 5 s ─► p            one of them kept whole is 50%

the trade (o->p's, 0, o->q's) leaves the lower branch out and keeps as much of the upper one as there is room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from floodway.network.flow import Flows
from floodway.planning.plan import Plan

Use = Callable[[Plan], Sequence[float]]
"""What a plan takes of each resource; of the first of them it is known how much there is."""

_STEPS = 12
"""Halvings in the search for how much there is room for."""
_SLACK = 1e-9
"""Relative to the use of a resource: rounding, not more of it."""


@dataclass(frozen=True, slots=True)
class Trade:
    """The keep of a location, 0 or 1, and the other that changes with it."""

    at: str
    keep: float
    other: str


def traded(plan: Plan, trade: Trade, use: Use, room: Sequence[float]) -> Plan:
    """The plan after a trade, with as much of the other as fits the room, or takes no more of anything than before.

    Where not even leaving the other out makes the room to keep a location whole, as much of it is kept as fits.
    """
    limits = [max(pair) * (1.0 + _SLACK) for pair in zip_longest(use(plan), room, fillvalue=0.0)]

    def fitting(start: Plan, at: str, keep: float) -> Plan | None:
        found = replace(start, keeps={**start.keeps, at: keep}, ties=())
        return found if all(taken <= limit for taken, limit in zip(use(found), limits, strict=True)) else None

    def most(start: Plan, at: str) -> Plan | None:
        if (found := fitting(start, at, 1.0)) or not (found := fitting(start, at, 0.0)):
            return found
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            if one := fitting(start, at, middle):
                found, low = one, middle
            else:
                high = middle
        return found

    changed = replace(plan, keeps={**plan.keeps, trade.at: trade.keep})
    without = replace(plan, keeps={**plan.keeps, trade.other: 0.0})
    return most(changed, trade.other) or most(without, trade.at) or plan


def trades(keeps: Mapping[str, float], locations: Sequence[str], streams: Sequence[str]) -> Iterator[Trade]:
    """What can be traded: each of these locations for every other that there is.

    Streams are only kept whole: one is left out by not asking for it.
    """
    for at in locations:
        for keep in (1.0,) if at in streams else (0.0, 1.0):
            if keeps[at] != keep:
                yield from (Trade(at, keep, other) for other in keeps if other != at)


def taken(flow: Flows, nodes: Iterable[str]) -> list[float]:
    """CPU of these nodes, their memory, and bytes of all links."""
    names = list(nodes)
    return [*(flow.load[name] for name in names), *(flow.memory[name] for name in names), *flow.bandwidth.values()]
