"""What a D-FIT agent needs to go on after a restart: its children's last tables and what it measured.

What changes all the time is not kept, so that the file is written when there is something to keep: not rates, not
numbers (they grow with the clock), not when a child was heard. The first push after a restart is whole. A journal of
another network or shape, or a damaged one, is no reason not to start; the agent then begins as the network file says.
"""

from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from floodway.agent.planes.dfit.machine import first_state, rebuilt
from floodway.agent.planes.dfit.own import Measured
from floodway.agent.planes.dfit.state import Child, DFitState, Member, Role
from floodway.agent.wire.messages import Amount, Inputs, Name, Number, Shares
from floodway.planning.fit.wire import WireError, decode_table, encode_table


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
    members: dict[Name, Measured]
    reach: tuple[Amount, ...] | None
    ordered: Shares | None


def to_journal(role: Role, state: DFitState) -> str:
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
        network=role.topology.network.name,
        node=role.node,
        children=children,
        members={node: member.measured for node, member in state.members.items()},
        reach=None if state.reach is None else tuple(state.reach.tolist()),
        ordered=None if state.ordered is None else dict(state.ordered),
    ).model_dump_json()


def from_journal(role: Role, text: str, now_seconds: float) -> DFitState | None:
    """The state again, with its own table built from it; None if the journal is not this agent's."""
    try:
        record = _StateRecord.model_validate_json(text)
        tables = [decode_table(base64.b64decode(child.table, validate=True)) for child in record.children]
    except (ValidationError, WireError, ValueError, OverflowError):
        return None
    state = first_state(role)
    inputs = role.topology.clusters[role.cluster].inputs
    fits = (
        (record.version, record.network, record.node) == (1, role.topology.network.name, role.node)
        and record.members.keys() == state.members.keys()
        and [child.leader for child in record.children] == [child.leader for child in state.children]
        and all(new.inputs == old.table.inputs for new, old in zip(tables, state.children, strict=True))
        and all(len(child.useful) == len(table.inputs) for child, table in zip(record.children, tables, strict=True))
        and len(record.reach or inputs) == len(inputs)
    )
    if not fits:
        return None
    children = tuple(
        Child(child.leader, table, np.array(child.useful), child.version, now_seconds)
        for child, table in zip(record.children, tables, strict=True)
    )
    members = {node: Member(found) for node, found in record.members.items()}
    reach = None if record.reach is None else np.array(record.reach)
    state = replace(state, children=children, members=members, reach=reach, ordered=record.ordered)
    return rebuilt(role, state) if role.leads else state
