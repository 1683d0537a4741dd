"""A node that plans for itself only, with its own costs: the papers' uncoordinated shedding (Table 1, plan 2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from floodway.agent.planes.dfit.own import UNMEASURED, Measured, as_measured, has_moved
from floodway.agent.wire.messages import AnyMessage
from floodway.agent.wire.refusals import RefusedError
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.planning.factory import make_planner
from floodway.planning.plan import Objective, Planner

TOLERANCE = 0.02
"""The part of a cost or selectivity whose change is not worth another planner."""


@dataclass(frozen=True)
class Alone:
    """The machine of a node that talks to nobody; its state is what the node has measured."""

    shares_target: ClassVar[bool] = False
    network: Network
    name: str
    planner: str = "exact"
    objective: Objective = Objective.THROUGHPUT
    epsilon: float = 0.05
    headroom: float = 1.0

    def first(self) -> Measured:
        """Nothing is measured yet."""
        return UNMEASURED

    def observe(self, state: Measured, rates: Mapping[str, float], measured: Measured, now: float) -> Measured:
        """Take new costs; rates come with every plan."""
        return measured

    def hear(self, state: Measured, message: AnyMessage, now: float) -> tuple[Measured, AnyMessage | None]:
        """Refuse tables and plans."""
        raise RefusedError("unknown", f"{self.name!r} plans alone")

    def tick(self, state: Measured, now: float) -> tuple[Measured, tuple[AnyMessage, ...]]:
        """Nothing is ever due."""
        return state, ()

    def status(self, state: Measured, now: float) -> dict[str, object]:
        """Nobody to be cut off from."""
        return {"cut_off": []}

    def to_journal(self, state: Measured) -> str:
        """Costs are measured again after a restart."""
        return ""

    def from_journal(self, text: str, now: float) -> Measured | None:
        """There is none."""
        return None

    def planning(self, state: Callable[[], Measured]) -> Callable[[], Planner]:
        """Refuses a planner and an objective that do not go together."""
        planning = AlonePlanning(self)
        planning.planner(UNMEASURED)
        return lambda: planning.planner(state())


class AlonePlanning:
    """Keeps a planner of one node's part, and makes another when what was measured has moved remarkably."""

    def __init__(self, machine: Alone) -> None:
        self._machine = machine
        self._part = node_part(machine.network, machine.name)
        self._measured = UNMEASURED
        self._planner: Planner | None = None
        self._lock = threading.Lock()

    def planner(self, measured: Measured) -> Planner:
        """The planner for these costs."""
        machine, operators = self._machine, self._part.operators.values()
        with self._lock:
            if self._planner is None or has_moved(operators, self._measured, measured, TOLERANCE):
                self._planner = make_planner(
                    as_measured(self._part, {machine.name: measured}),
                    machine.planner,
                    objective=machine.objective,
                    epsilon=machine.epsilon,
                    headroom=machine.headroom,
                )
                self._measured = measured
            return self._planner
