"""A D-FIT agent's plans as any other planner's: for the node's own streams and links, from its own table alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from floodway.agent.planes.alone import Alone, AlonePlanning
from floodway.agent.planes.dfit.state import DFitState, Role, rates_of, scales_of
from floodway.network.part import node_part
from floodway.planning.plan import Plan, Planner
from floodway.planning.program import Program, Vector


class OwnTablePlanner(Planner):
    """Plans for one node with whatever its agent knows now (`state` is asked at every plan).

    A leader decides for the rates it is given; a member of a cluster applies what its leader ordered last, and plans
    for itself alone until the first order.
    """

    name = "dfit"

    def __init__(self, role: Role, state: Callable[[], DFitState]) -> None:
        self.role = role
        self._state = state
        super().__init__(Program(node_part(role.topology.network, role.node), role.topology.headroom))
        self._alone = AlonePlanning(Alone(role.topology.network, role.node, headroom=role.topology.headroom))

    @property
    def size(self) -> int:
        """Rows of the agent's own table; of a member, the locations it has keeps for."""
        state = self._state()
        return len(state.own.table) if state.own is not None else len(state.ordered or ())

    def keeps(self, rates: Vector, scale: float = 1.0) -> Vector:
        """Keeps at the part's drop locations, for rates in the order of its streams."""
        state = self._state()
        given = dict(zip(self.network.streams, rates.tolist(), strict=True))
        found = self._found(state, given, scale)
        if found is None:
            return self._alone.planner(state.members[self.role.node].measured).keeps(rates, scale)
        return np.array([found.get(at, 1.0) for at in self.network.drop_locations])

    def lookup(self, rates: Vector) -> Vector:
        """As `keeps`: what is overloaded below does not show in this node's own load."""
        return self.keeps(rates)

    def plan(self, rates: Mapping[str, float], scale: float = 1.0) -> Plan:
        """The plan for these rates (tuples/s); overloaded also when a node below is, which shows in the drops."""
        found = super().plan(rates, scale)
        return replace(found, overloaded=found.overloaded or bool(found.drops))

    def _found(self, state: DFitState, rates: Mapping[str, float], scale: float) -> Mapping[str, float] | None:
        if state.own is None:
            return state.ordered
        node = self.role.node
        return state.own.keeps({**rates_of(state), node: rates}, {**scales_of(state), node: scale})[node]
