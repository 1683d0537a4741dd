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
from floodway.network.model import Network
from floodway.planning.plan import Plan
from floodway.planning.windows.window_choice import Ask, WindowChoice, WindowChooser
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_keeps import CHANGE

SEARCH_US = 10_000_000

ChosenPlan = Callable[[Ask, Network, Rates, float, int], Plan]
"""(planner, the network with its costs of now, rates, share of its CPU, microseconds since 1970) -> plan."""


class WindowPlans:
    """Keeps the choice in force."""

    def __init__(self, chooser: WindowChooser) -> None:
        self._chooser = chooser
        self._choice: WindowChoice | None = None
        self._searched: dict[str, float] = {}
        self._due_us = 0

    def plan(self, ask: Ask, network: Network, rates: Rates, scale: float, now_us: int) -> Plan:
        """The plan in force for these rates (tuples/s) at a capacity."""
        here = {**rates, "": scale}
        chooser = replace(self._chooser, network=network, capacity=scale)
        if self._choice is None or (now_us >= self._due_us and _moved(self._searched, here)):
            found = chooser.choose(ask, rates, self._choice)
            # Where all fits for a while the last choice is not forgotten: its windows go on where they were dropped.
            if found.plan.drops or self._choice is None:
                self._choice = found if found.plan.drops else None
            self._searched, self._due_us = here, now_us + SEARCH_US
            return found.plan
        whole = ask(rates)
        return chooser.again(ask, rates, self._choice).plan if whole.drops else whole


def _moved(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    return any(abs(value - before.get(name, 0.0)) > CHANGE * before.get(name, 0.0) for name, value in now.items())


def window_plans(
    part: Network, whole: Network, shapes: Mapping[str, WindowShape], links: Collection[str]
) -> ChosenPlan:
    """How a process gets its plans."""
    chooser = WindowChooser(part, shapes, None if part is whole else whole)
    if links or not chooser.chooses:
        return lambda ask, network, rates, scale, now_us: ask(rates)
    return WindowPlans(chooser).plan
