"""How long each queue may grow: memory shared out by arrival rate, cost and priority (section 4.1, point 1).

The paper asks for a longer queue at a higher arrival rate, a lower cost and a higher priority, without a formula.
Here a queue's share of the `total` tuples is

    weight = rate * 2**priority / cost        limit = total * weight / sum of weights

Shares are whole tuples and add up to the total exactly. They are dealt out anew only on a *remarkable* change: a
stream that joins or leaves, or a weight that changed by more than `factor` since the last time; small swings are the
adaptor's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from floodway.errors import InputError

REMARKABLE_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Demand:
    """What one queue asks for: tuples/s that arrive, CPU-seconds per tuple, priority."""

    rate: float
    cost_seconds: float
    priority: int = 0

    def weight(self) -> float:
        """rate * 2**priority / cost; a queue with no measured cost counts as one second a tuple."""
        if not (math.isfinite(self.rate) and self.rate >= 0):
            raise InputError(f"an arrival rate of {self.rate} tuples/s", hint="Give a finite rate of at least 0")
        if not (math.isfinite(self.cost_seconds) and self.cost_seconds >= 0):
            raise InputError(f"a tuple cost of {self.cost_seconds} s", hint="Give a finite cost of at least 0")
        return self.rate * 2.0**self.priority / (self.cost_seconds or 1.0)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Limits in force, with the weights they were dealt out for."""

    limits: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)


def allocate(total: int, demands: Mapping[str, Demand], *, floor: int = 1) -> Allocation:
    """Deal out `total` tuples of memory afresh; every queue gets `floor` before the rest is shared by weight.

    >>> allocate(150, {"fast": Demand(200, 0.01), "slow": Demand(100, 0.01)}, floor=0).limits
    {'fast': 100, 'slow': 50}
    """
    if floor < 0 or total < floor * len(demands):
        raise InputError(
            f"{total} tuples of memory cannot give {len(demands)} queues {floor} each",
            hint="Raise the total or lower the floor",
        )
    weights = {name: demand.weight() for name, demand in demands.items()}
    mass = sum(weights.values())
    spare = total - floor * len(demands)
    shares = {name: spare * (weight / mass if mass > 0 else 1 / len(weights)) for name, weight in weights.items()}
    limits = {name: floor + int(share) for name, share in shares.items()}
    # Largest remainder: whole tuples that add up to the total, ties in the order given.
    by_remainder = sorted(shares, key=lambda name: int(shares[name]) - shares[name])
    for name in by_remainder[: total - sum(limits.values()) if limits else 0]:
        limits[name] += 1
    return Allocation(limits, weights)


def reallocate(
    current: Allocation,
    total: int,
    demands: Mapping[str, Demand],
    *,
    factor: float = REMARKABLE_FACTOR,
    floor: int = 1,
) -> Allocation:
    """The current allocation, or a new one if something remarkable happened since it was made."""
    if factor < 1:
        raise InputError(f"a remarkable change of factor {factor}", hint="Give a factor of at least 1")
    same_queues = current.weights.keys() == demands.keys()
    if same_queues and sum(current.limits.values()) == total:
        changes = (_change(current.weights[name], demand.weight()) for name, demand in demands.items())
        if all(change <= factor for change in changes):
            return current
    return allocate(total, demands, floor=floor)


def _change(before: float, after: float) -> float:
    low, high = sorted((before, after))
    if high == 0:
        return 1.0
    return math.inf if low == 0 else high / low
