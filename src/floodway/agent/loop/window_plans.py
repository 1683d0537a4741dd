"""Plans of a process whose streams are dropped by windows: any planner's, chosen for the windows that they keep.

A process without links from others chooses (`planning/windows/window_choice.py`): `floodway run`, and the nodes at the
head of a network, which shed for all below them. What another node sends was chosen there; a node under a coordinator
applies what that has chosen.

A search takes up to some hundred look-ups: 10 ms for three streams, a second for twelve. So it is made when rates or
capacity have moved by more than 5%, and every ten seconds at most, the papers' period of planning anew. In between the
shares of the last one hold, at any rates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from floodway.network.flow import Rates
from floodway.network.model import Arc, Network
from floodway.network.part import whole_location
from floodway.planning.plan import Plan
from floodway.planning.windows.window_choice import Ask, WindowChooser
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_keeps import CHANGE
from floodway.planning.windows.window_shapes import windowed_plan

SEARCH_US = 10_000_000

ChosenPlan = Callable[[Ask, Rates, float, int], Plan]
"""(planner, rates, capacity, microseconds since 1970) -> plan."""


class WindowPlans:
    """Keeps the choice in force. `shapes` are windows by drop location of the part, a network or one node's of it."""

    def __init__(self, part: Network, whole: Network, shapes: Mapping[str, WindowShape]) -> None:
        placed = {name: shape for at, shape in shapes.items() for name in whole_names(whole, part, at)}
        self._part, self._whole, self._placed = part, whole, placed
        self._chooser = WindowChooser(part, shapes, None if part is whole else self._worth)
        self._shares: Mapping[str, float] | None = None
        self._searched: dict[str, float] = {}
        self._due_us = 0

    def plan(self, ask: Ask, rates: Rates, scale: float, now_us: int) -> Plan:
        """The plan in force for these rates (tuples/s) at a capacity."""
        here = {**rates, "": scale}
        if self._shares is None or (now_us >= self._due_us and _moved(self._searched, here)):
            found = self._chooser.choose(ask, rates, self._shares)
            self._shares, self._searched = (found.shares, here) if found.plan.drops else (None, {})
            self._due_us = now_us + SEARCH_US
            return found.plan
        whole = ask(rates)
        if not whole.drops:
            self._shares = None
            return whole
        return self._chooser.again(ask, rates, self._shares).plan

    def _worth(self, plan: Plan) -> float:
        """What the part's keeps earn at the outputs of the whole network, of its own streams."""
        rates = {name: plan.rates.get(name, 0.0) for name in self._whole.streams}
        keeps = {name: keep for at, keep in plan.keeps.items() for name in whole_names(self._whole, self._part, at)}
        return windowed_plan(self._whole, replace(plan, rates=rates, keeps=keeps), self._placed).score


def whole_names(whole: Network, part: Network, at: str) -> tuple[str, ...]:
    """The drop locations of the whole network that one of a part is: branches of a stream that others read too."""
    if at in whole.streams and len(part.consumers[at]) < len(whole.consumers[at]):
        return tuple(str(Arc(at, consumer)) for consumer in part.consumers[at])
    return (whole_location(part, at),)


def _moved(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    return any(abs(value - before.get(name, 0.0)) > CHANGE * before.get(name, 0.0) for name, value in now.items())


def window_plans(
    part: Network, whole: Network, shapes: Mapping[str, WindowShape], links: Collection[str]
) -> ChosenPlan:
    """How a process gets its plans."""
    if links or not WindowChooser(part, shapes).chooses:
        return lambda ask, rates, scale, now_us: ask(rates)
    return WindowPlans(part, whole, shapes).plan
