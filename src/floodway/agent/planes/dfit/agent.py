"""The machine of a D-FIT agent: it plans for itself and all below it from its own table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from floodway.agent.planes.agent import is_fresh, silence
from floodway.agent.planes.dfit import journal, machine
from floodway.agent.planes.dfit.own import Measured
from floodway.agent.planes.dfit.planner import OwnTablePlanner
from floodway.agent.planes.dfit.state import Child, DFitState, Role
from floodway.agent.wire.messages import AnyMessage
from floodway.network.model import Network
from floodway.planning.plan import Planner


@dataclass(frozen=True, slots=True)
class DFit(Role):
    """Which agent of which tree this is, and what it does."""

    shares_target: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """That of its node."""
        return self.node

    @property
    def network(self) -> Network:
        """The whole network."""
        return self.topology.network

    def first(self) -> DFitState:
        """Children as the network file says."""
        return machine.first_state(self)

    def observe(self, state: DFitState, rates: Mapping[str, float], measured: Measured, now: float) -> DFitState:
        """What this node has measured itself."""
        return machine.observe(self, state, self.node, now, dict(rates), measured)

    def hear(self, state: DFitState, message: AnyMessage, now: float) -> tuple[DFitState, AnyMessage | None]:
        """A message from another agent, or the answer to one of ours."""
        return machine.hear(self, state, message, now)

    def tick(self, state: DFitState, now: float) -> tuple[DFitState, tuple[AnyMessage, ...]]:
        """What is due."""
        return machine.tick(self, state, now)

    def status(self, state: DFitState, now: float) -> dict[str, object]:
        """Children, parent and own table; `cut_off` names those that are silent for too long."""
        most = self.settings.child_timeout_seconds
        children = {
            child.leader: {
                "planned_as": _planned_as(child, now, most),
                "version": child.version,
                "silent_seconds": silence(child.heard_seconds, now),
            }
            for child in state.children
        }
        above = self.topology.parent_of(self.cluster) if self.leads else self.leader
        silent = [name for name, child in children.items() if child["planned_as"] != "last table"]
        if above is not None and not is_fresh(state.above_seconds, now, most):
            silent.append(above)
        return {
            "cluster": list(self.topology.clusters[self.cluster].nodes),
            "leader": self.leader,
            "above": above,
            "acknowledged": state.pushed is not None and state.pushed is state.acked,
            "children": children,
            "rows": 0 if state.own is None else len(state.own.table),
            "table_bytes": 0 if state.own is None else len(state.own.message),
            "cut_off": silent,
        }

    def to_journal(self, state: DFitState) -> str:
        """Children's tables and what was measured."""
        return journal.to_journal(self, state)

    def from_journal(self, text: str, now: float) -> DFitState | None:
        """The state again, with its own table built from it."""
        return journal.from_journal(self, text, now)

    def planning(self, state: Callable[[], DFitState]) -> Callable[[], Planner]:
        """One planner, which asks for the state at every plan."""
        planner = OwnTablePlanner(self, state)
        return lambda: planner


def _planned_as(child: Child, now: float, most_seconds: float) -> str:
    if child.version is None:
        return "configured"
    return "last table" if is_fresh(child.heard_seconds, now, most_seconds) else "last table, gone"
