"""A node that plans for itself only, with its own costs: the papers' uncoordinated shedding (Table 1, plan 2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from floodway.agent.planes.dfit.own import UNMEASURED, NodeMeasures, as_measured, has_moved
from floodway.agent.wire.messages import AnyMessage
from floodway.agent.wire.refusals import RefusedError
from floodway.job.options.options import JobOptions
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.planning.plan import Plan, Planner
from floodway.planning.program import Program, Vector

TOLERANCE = 0.02
"""The part of a cost or selectivity whose change is not worth another planner."""


@dataclass(frozen=True)
class Alone:
    """The machine of a node that talks to nobody; its state is what the node has measured."""

    shares_target: ClassVar[bool] = False
    network: Network
    name: str
    options: JobOptions = field(default_factory=JobOptions)

    def first(self) -> NodeMeasures:
        """Nothing is measured yet."""
        return UNMEASURED

    def observe(
        self, state: NodeMeasures, rates: Mapping[str, float], measured: NodeMeasures, now: float
    ) -> NodeMeasures:
        """Take new costs; rates come with every plan."""
        return measured

    def hear(self, state: NodeMeasures, message: AnyMessage, now: float) -> tuple[NodeMeasures, AnyMessage | None]:
        """Refuse tables and plans."""
        raise RefusedError("unknown", f"{self.name!r} plans alone")

    def tick(self, state: NodeMeasures, now: float) -> tuple[NodeMeasures, tuple[AnyMessage, ...]]:
        """Nothing is ever due."""
        return state, ()

    def status(self, state: NodeMeasures, now: float) -> dict[str, object]:
        """Nobody to be cut off from."""
        return {"cut_off": []}

    def to_journal(self, state: NodeMeasures) -> str:
        """Costs are measured again after a restart."""
        return ""

    def from_journal(self, text: str, now: float) -> NodeMeasures | None:
        """There is none."""
        return None

    def planning(self, state: Callable[[], NodeMeasures]) -> Callable[[], Planner]:
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

    def planner(self, measured: NodeMeasures) -> Planner:
        """The planner for these costs."""
        machine, operators = self._machine, self._part.operators.values()
        with self._lock:
            if self._planner is None or has_moved(operators, self._measured, measured, TOLERANCE):
                self._planner = machine.options.planner_of(as_measured(self._part, {machine.name: measured}))
                self._measured = measured
            return self._planner


class AgentPlanner(Planner):
    """Plans for a node's part with what its agent knows; until that knows something, for the node alone."""

    def __init__(self, network: Network, node: str, headroom: float) -> None:
        super().__init__(Program(node_part(network, node), headroom))
        self.alone = AlonePlanning(Alone(network, node, options=JobOptions(headroom=headroom)))

    def lookup(self, rates: Vector) -> Vector:
        """As `keeps`: what is overloaded below does not show in this node's own load."""
        return self.keeps(rates)

    def plan(self, rates: Mapping[str, float], scale: float = 1.0) -> Plan:
        """The plan for these rates (tuples/s); overloaded also when a node below is, which shows in the drops."""
        found = super().plan(rates, scale)
        return replace(found, overloaded=found.overloaded or bool(found.drops))
