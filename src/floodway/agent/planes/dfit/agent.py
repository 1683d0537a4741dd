"""The machine of a D-FIT agent: it plans for itself and all below it from its own table.

Its journal has what it needs after a restart: its children's last tables and what it measured. What changes all the
time is not kept, so that the file is written when there is something to keep: not rates, not numbers (they grow with
the clock), not when a child was heard. The first push after a restart is whole. A journal of another network or shape,
or a damaged one, is no reason not to start; the agent then begins as the network file says.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from floodway.agent.planes.agent import is_fresh, silence
from floodway.agent.planes.alone import AgentPlanner
from floodway.agent.planes.dfit import machine
from floodway.agent.planes.dfit.machine import first_state, rebuilt
from floodway.agent.planes.dfit.own import NodeMeasures
from floodway.agent.planes.dfit.state import Child, ClusterMember, DFitState, Role, rates_of, scales_of
from floodway.agent.wire.messages import Amount, Inputs, Name, Number, Shares
from floodway.network.model import Network
from floodway.planning.fit.wire import WireError, decode_table, encode_table
from floodway.planning.plan import Planner
from floodway.planning.program import Vector


class OwnTablePlanner(AgentPlanner):
    """Plans for one node with whatever its agent knows now (`state` is asked at every plan).

    A leader decides for the rates it is given; a member of a cluster applies what its leader ordered last, and plans
    for itself alone until the first order.
    """

    name = "dfit"

    def __init__(self, role: Role, state: Callable[[], DFitState]) -> None:
        super().__init__(role.topology.network, role.node, role.topology.headroom)
        self.role = role
        self._state = state

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
            return self.alone.planner(state.members[self.role.node].measured).keeps(rates, scale)
        return np.array([found.get(at, 1.0) for at in self.network.drop_locations])

    def _found(self, state: DFitState, rates: Mapping[str, float], scale: float) -> Mapping[str, float] | None:
        if state.own is None:
            return state.ordered
        node = self.role.node
        return state.own.keeps({**rates_of(state), node: rates}, {**scales_of(state), node: scale})[node]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _ChildRecord(_Record):
    leader: Name
    version: Number | None
    useful: Inputs
    table: str


class _StateRecord(_Record):
    version: int = 1
    network: Name
    node: Name
    children: tuple[_ChildRecord, ...]
    members: dict[Name, NodeMeasures]
    reach: tuple[Amount, ...] | None
    ordered: Shares | None


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

    first = machine.first_state
    hear = machine.hear
    tick = machine.tick

    def observe(self, state: DFitState, rates: Mapping[str, float], measured: NodeMeasures, now: float) -> DFitState:
        """What this node has measured itself."""
        return machine.observe(self, state, self.node, now, dict(rates), measured)

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
        """The journal's text, one line of JSON."""
        children = tuple(
            _ChildRecord(
                leader=child.leader,
                version=child.version,
                useful=tuple(child.useful.tolist()),
                table=base64.b64encode(encode_table(child.table)).decode(),
            )
            for child in state.children
        )
        return _StateRecord(
            network=self.topology.network.name,
            node=self.node,
            children=children,
            members={node: member.measured for node, member in state.members.items()},
            reach=None if state.reach is None else tuple(state.reach.tolist()),
            ordered=None if state.ordered is None else dict(state.ordered),
        ).model_dump_json()

    def from_journal(self, text: str, now: float) -> DFitState | None:
        """The state again, with its own table built from it; None if the journal is not this agent's."""
        try:
            record = _StateRecord.model_validate_json(text)
            tables = [decode_table(base64.b64decode(child.table, validate=True)) for child in record.children]
        except (ValidationError, WireError, ValueError, OverflowError):
            return None
        state = first_state(self)
        inputs = self.topology.clusters[self.cluster].inputs
        fits = (
            (record.version, record.network, record.node) == (1, self.topology.network.name, self.node)
            and record.members.keys() == state.members.keys()
            and [child.leader for child in record.children] == [child.leader for child in state.children]
            and all(new.inputs == old.table.inputs for new, old in zip(tables, state.children, strict=True))
            and all(
                len(child.useful) == len(table.inputs) for child, table in zip(record.children, tables, strict=True)
            )
            and len(record.reach or inputs) == len(inputs)
        )
        if not fits:
            return None
        children = tuple(
            Child(child.leader, table, np.array(child.useful), child.version, now)
            for child, table in zip(record.children, tables, strict=True)
        )
        members = {node: ClusterMember(found) for node, found in record.members.items()}
        reach = None if record.reach is None else np.array(record.reach)
        state = replace(state, children=children, members=members, reach=reach, ordered=record.ordered)
        return rebuilt(self, state) if self.leads else state

    def planning(self, state: Callable[[], DFitState]) -> Callable[[], Planner]:
        """One planner, which asks for the state at every plan."""
        planner = OwnTablePlanner(self, state)
        return lambda: planner


def _planned_as(child: Child, now: float, most_seconds: float) -> str:
    if child.version is None:
        return "configured"
    return "last table" if is_fresh(child.heard_seconds, now, most_seconds) else "last table, gone"
