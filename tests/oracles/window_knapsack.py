"""Which windows one node should keep, by trying all: oracles for `planning/windows/window_choice.py`.

A share p of a stream's windows takes c·r·f(p) of the node and earns w·r·p. For a given use of the node the earnings are
convex in the use of every stream, so at the best there is one stream at most that is kept in part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.planning.plan import Plan
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_keeps import passed_share
from floodway.planning.windows.window_shapes import windowed_plan


@dataclass(frozen=True, slots=True)
class WindowedStream:
    """Rate (tuples/s), cost of a tuple (CPU-seconds), what a whole tuple/s earns, and the windows it is dropped by."""

    rate: float
    cost: float
    weight: float
    shape: WindowShape | None


def most_earned(streams: Sequence[WindowedStream], cpu: float) -> float:
    """The most that can be earned on this CPU."""
    best = 0.0
    for kept in product((False, True), repeat=len(streams)):
        room = cpu - sum(one.cost * one.rate for one, is_kept in zip(streams, kept, strict=True) if is_kept)
        if room < -1e-9 * cpu:
            continue
        earned = sum(one.weight * one.rate for one, is_kept in zip(streams, kept, strict=True) if is_kept)
        others = [one for one, is_kept in zip(streams, kept, strict=True) if not is_kept]
        partly = (one.weight * one.rate * _share(one, max(room, 0.0)) for one in others)
        best = max(best, earned + max(partly, default=0.0))
    return best


def _share(stream: WindowedStream, room: float) -> float:
    """The share of its windows that this room allows, by halving."""
    tuples = min(1.0, room / (stream.cost * stream.rate))
    if stream.shape is None:
        return tuples
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if passed_share(stream.shape, middle) <= tuples else (low, middle)
    return low


def most_earned_at(network: Network, plan: Plan, shapes: Mapping[str, WindowShape]) -> float:
    """The most that the windows of any network on one node earn with one location kept in part, at a plan's rates."""
    ((node, limits),) = network.nodes.items()
    best = 0.0
    for chosen in product((0.0, 1.0), repeat=len(network.drop_locations)):
        whole = dict(zip(network.drop_locations, chosen, strict=True))
        for at in network.drop_locations:
            fitting = {**whole, at: 0.0}
            low, high = 0.0, 2.0  # the first that is tried is to keep it whole
            for _ in range(30):
                keeps = {**whole, at: (low + high) / 2.0}
                if flows(network, plan.rates, keeps).load[node] <= limits.cpu * (1.0 + 1e-9):
                    fitting, low = keeps, keeps[at]
                    if low == 1.0:
                        break
                else:
                    high = keeps[at]
            if flows(network, plan.rates, fitting).load[node] <= limits.cpu * (1.0 + 1e-9):
                best = max(best, windowed_plan(network, replace(plan, keeps=fitting), shapes).score)
    return best
