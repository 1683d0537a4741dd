"""D-FIT between agents, as pure functions of its machine (`dfit/agent.py`): (state, event) -> (state, messages).

The leader of every cluster keeps the last table of each child, works out its own from them and from what was measured,
and pushes it to its parent when it has changed: as a change to what the parent is known to hold if that is smaller,
else whole. The parent answers with the version it holds and with its *reach*, the most of every input it can deliver;
so ranges travel down as tables travel up, and all agents together come to the tables of `planning/fit/dfit`.

A push that is not answered is repeated unchanged; a version gap makes it whole. A child unheard of for
`child_timeout_seconds` counts as gone and is planned with its last table; after `forget_after_seconds`, as the network
file says. Nothing here waits: an agent that hears nothing goes on shedding with what it has.

Long paper, sections 6.3 and 8.2.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from floodway.agent.planes.dfit.own import UNMEASURED, ClusterTable, NodeMeasures, has_moved, work_out
from floodway.agent.planes.dfit.state import (
    Child,
    ClusterMember,
    DFitState,
    Role,
    SentTable,
    measures_of,
    rates_of,
    scales_of,
    stamp,
    statistics,
)
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.wire.messages import AnyMessage, Keeps, NodeStatistics, Noted, TableAck, TablePush, TableReach
from floodway.agent.wire.refusals import RefusedError
from floodway.planning.fit.node import NodeTable
from floodway.planning.fit.wire import WireError, apply_delta, decode_delta, decode_table, encode_delta, table_delta

_SAME_TABLE = 1e-7
"""Scores that differ by less, relative to the largest, are the wire's rounding and no change."""


def first_state(role: Role) -> DFitState:
    """Before anything is heard: children as the network file says."""
    topology = role.topology
    members = {node: ClusterMember() for node in topology.clusters[role.cluster].nodes}
    if not role.leads:
        return DFitState(None, (), members)
    children = tuple(configured_child(topology, child) for child in topology.clusters[role.cluster].children)
    reach = topology.configured.ranges[role.cluster] if role.cluster in topology.parents else None
    return rebuilt(role, DFitState(None, children, members, reach=reach))


def configured_child(topology: ClusterTopology, cluster: int) -> Child:
    """A child that was never heard of, or forgotten."""
    table = decode_table(topology.configured.sent[cluster])
    return Child(topology.leader(cluster), table, topology.useful(cluster))


def hear(role: Role, state: DFitState, message: AnyMessage, now: float) -> tuple[DFitState, AnyMessage | None]:
    """Take a message from another agent, or the answer to one of ours; the answer to it."""
    if isinstance(message, TablePush):
        return _pushed_to(role, state, message, now)
    if isinstance(message, TableAck):
        return _acked(role, state, message, now), None
    if isinstance(message, TableReach):
        return _reached(role, state, message, now), _noted(role, message.sender)
    if isinstance(message, NodeStatistics):
        if not role.leads or message.sender not in state.members or message.sender == role.node:
            raise RefusedError("unknown", f"{message.sender!r} is not planned for by {role.node!r}")
        found = measures_of(message)
        state = observe(role, state, message.sender, now, message.rates, found, message.number)
        return state, _noted(role, message.sender, state.members[message.sender].number)
    if isinstance(message, Keeps):
        if role.leads or message.sender != role.leader:
            raise RefusedError("unknown", f"{message.sender!r} does not plan for {role.node!r}")
        if message.number > state.ordered_number:
            state = replace(state, ordered=message.keeps, ordered_number=message.number)
        answer = _noted(role, message.sender, state.ordered_number)
        return replace(state, above_seconds=now), answer
    if isinstance(message, Noted):
        state = replace(state, number=max(state.number, message.number))
        return replace(state, above_seconds=now) if message.sender == role.leader else state, None
    raise RefusedError("unknown", f"a {message.kind} message means nothing to D-FIT")


def observe(
    role: Role,
    state: DFitState,
    node: str,
    now: float,
    rates: Mapping[str, float],
    measured: NodeMeasures,
    number: int | None = None,
) -> DFitState:
    """What a node has measured; `number` is that of its report, None for this node itself."""
    before = state.members[node]
    if number is not None and number <= before.number:
        return state
    member = ClusterMember(measured, rates, before.number if number is None else number, now)
    planned = state.planned.get(node, UNMEASURED)
    moved = has_moved(role.topology.operators[node], planned, measured, role.settings.tolerance)
    stale = state.stale or (role.leads and moved)
    return replace(state, members={**state.members, node: member}, stale=stale)


def _pushed_to(role: Role, state: DFitState, push: TablePush, now: float) -> tuple[DFitState, AnyMessage]:
    place = next((i for i, child in enumerate(state.children) if child.leader == push.sender), None)
    if place is None:
        raise RefusedError("unknown", f"{push.sender!r} is no child of {role.node!r}")
    before = state.children[place]
    after = replace(before, heard_seconds=now)
    newer = before.version is None or push.version > before.version
    if newer and (push.form == "full" or (push.form == "delta" and push.base == before.version)):
        after = replace(after, table=_table(before, push), version=push.version, useful=np.array(push.useful))
    changed = not _same(before, after)
    children = (*state.children[:place], after, *state.children[place + 1 :])
    state = replace(state, children=children, stale=state.stale or changed)
    reach = () if state.own is None else tuple(state.own.reach[place].tolist())
    network = role.topology.network.name
    answer = TableAck(network=network, sender=role.node, receiver=push.sender, held=after.version, reach=reach)
    return state, answer


def _table(before: Child, push: TablePush) -> NodeTable:
    """The pushed table, refused unless it is one of this child's inputs."""
    try:
        table = decode_table(push.table) if push.form == "full" else apply_delta(before.table, decode_delta(push.table))
    except (WireError, ValueError, OverflowError, IndexError) as error:
        raise RefusedError("malformed", f"the table of {push.sender!r} cannot be read: {error}") from error
    sound = table.inputs == before.table.inputs and len(table) > 0 and len(push.useful) == len(table.inputs)
    if not sound or not np.isfinite(table.rates).all() or not np.isfinite(table.scores).all():
        raise RefusedError("malformed", f"the table of {push.sender!r} is not one of its inputs")
    return table


def _same(one: Child, other: Child) -> bool:
    if one.table is other.table:
        return True
    close = _SAME_TABLE * max(float(one.table.scores.max(initial=0.0)), 1e-300)
    return (
        np.array_equal(one.table.rates, other.table.rates)
        and np.array_equal(one.useful, other.useful)
        and bool(np.abs(one.table.scores - other.table.scores).max(initial=0.0) <= close)
    )


def _reached(role: Role, state: DFitState, message: TableAck | TableReach, now: float) -> DFitState:
    if message.sender != role.topology.parent_of(role.cluster) or not role.leads:
        raise RefusedError("unknown", f"{message.sender!r} is not above {role.node!r}")
    state = replace(state, above_seconds=now)
    inputs = len(role.topology.clusters[role.cluster].inputs)
    if len(message.reach) == inputs and (state.reach is None or not np.array_equal(state.reach, message.reach)):
        state = replace(state, reach=np.array(message.reach), stale=True)
    return state


def _acked(role: Role, state: DFitState, ack: TableAck, now: float) -> DFitState:
    state = _reached(role, state, ack, now)
    pushed = state.pushed
    if pushed is None:
        return state
    if ack.held == pushed.version:
        return replace(state, acked=pushed)
    # It holds something else: what was sent got lost, or it has lost what it held.
    if state.acked is not None and ack.held != state.acked.version:
        state = replace(state, acked=None)
    if ack.held is not None and ack.held > pushed.version:
        # From a life of ours that we have forgotten: only a later version will be taken.
        state = replace(state, pushed=None, number=max(state.number, ack.held))
    return replace(state, push_due_seconds=now)


def tick(role: Role, state: DFitState, now: float) -> tuple[DFitState, tuple[AnyMessage, ...]]:
    """Build what is stale, repeat what was not answered, show that we are alive."""
    if not role.leads:
        return _reported(role, state, now)
    settings = role.settings
    children = tuple(
        configured_child(role.topology, role.topology.index[child.leader])
        if child.heard_seconds is not None and now - child.heard_seconds > settings.forget_after_seconds
        else child
        for child in state.children
    )
    if any(old is not new for old, new in zip(state.children, children, strict=True)):
        state = replace(state, children=children, stale=True)
    before = state.own
    if state.stale:
        state = rebuilt(role, state)
    orders, state = _orders(role, state, now)
    push, state = next_push(role, state, now)
    return state, (*_reaches(role, before, state), *orders, *push)


def _reaches(role: Role, before: ClusterTable | None, state: DFitState) -> list[AnyMessage]:
    """Tell children whose reach has changed; one that misses it hears it with the next answer."""
    if before is None or state.own is None or before is state.own:
        return []
    return [
        TableReach(
            network=role.topology.network.name, sender=role.node, receiver=child.leader, reach=tuple(new.tolist())
        )
        for child, old, new in zip(state.children, before.reach, state.own.reach, strict=True)
        if child.version is not None and not np.array_equal(old, new)
    ]


def rebuilt(role: Role, state: DFitState) -> DFitState:
    """The state with its own table worked out anew from all that it holds."""
    measured = {node: member.measured for node, member in state.members.items()}
    tables = [child.table for child in state.children]
    useful = [child.useful for child in state.children]
    own = work_out(role.topology, role.cluster, measured, tables, useful, state.reach)
    return replace(state, own=own, planned=measured, stale=False)


def _orders(role: Role, state: DFitState, now: float) -> tuple[list[AnyMessage], DFitState]:
    """Keeps for the other members of the cluster, from their last rates."""
    others = [node for node, member in state.members.items() if node != role.node and member.heard_seconds is not None]
    if not others or state.own is None or now < state.report_due_seconds:
        return [], state
    keeps = state.own.keeps(rates_of(state), scales_of(state))
    number = stamp(state.number, now)
    state = replace(state, number=number, report_due_seconds=now + role.settings.report_seconds)
    network = role.topology.network.name
    return [
        Keeps(network=network, sender=role.node, receiver=node, number=number, keeps=keeps[node]) for node in others
    ], state


def _reported(role: Role, state: DFitState, now: float) -> tuple[DFitState, tuple[AnyMessage, ...]]:
    """A member tells its leader what it sees."""
    member = state.members[role.node]
    if now < state.report_due_seconds or member.heard_seconds is None:
        return state, ()
    number = stamp(state.number, now)
    network = role.topology.network.name
    report = statistics(network, role.node, role.leader, number, member.rates, member.measured)
    return replace(state, number=number, report_due_seconds=now + role.settings.report_seconds), (report,)


def _noted(role: Role, receiver: str, number: int = 0) -> Noted:
    return Noted(network=role.topology.network.name, sender=role.node, receiver=receiver, number=max(0, number))


def next_push(role: Role, state: DFitState, now_seconds: float) -> tuple[list[AnyMessage], DFitState]:
    """The push that is due now, if any, and the state after it.

    One at a time: the next table waits for the answer to the last, or for its time to run out.
    """
    parent = role.topology.parent_of(role.cluster)
    if parent is None or state.own is None:
        return [], state
    pushed, acked = state.pushed, state.acked
    fresh = pushed is None or pushed.source != _source(state.own)
    waiting = pushed is not None and pushed is not acked
    if pushed is not None and not (now_seconds >= state.push_due_seconds if waiting else fresh):
        return _beat(role, parent, state, pushed, now_seconds)
    if pushed is None or fresh or (pushed.base is not None and (acked is None or pushed.base != acked.version)):
        # One version, one content: a repetition is the same message, anything else a new version.
        pushed = _made(state.own, stamp(state.number, now_seconds), acked, role.settings.row_tolerance)
    state = replace(
        state,
        pushed=pushed,
        number=max(state.number, pushed.version),
        push_due_seconds=now_seconds + role.settings.retry_seconds,
        beat_due_seconds=now_seconds + role.settings.beat_seconds,
    )
    message = TablePush(
        network=role.topology.network.name,
        sender=role.node,
        receiver=parent,
        form="full" if pushed.base is None else "delta",
        version=pushed.version,
        base=pushed.base,
        rows=pushed.rows,
        useful=pushed.useful,
        table=pushed.body,
    )
    return [message], state


def _beat(
    role: Role, parent: str, state: DFitState, pushed: SentTable, now_seconds: float
) -> tuple[list[AnyMessage], DFitState]:
    if now_seconds < state.beat_due_seconds:
        return [], state
    name = role.topology.network.name
    beat = TablePush(network=name, sender=role.node, receiver=parent, form="beat", version=pushed.version)
    return [beat], replace(state, beat_due_seconds=now_seconds + role.settings.beat_seconds)


def _source(own: ClusterTable) -> bytes:
    return own.message + own.useful.tobytes()


def _made(own: ClusterTable, version: int, held: SentTable | None, tolerance: float) -> SentTable:
    """A change to what the parent holds if that is smaller, else the whole table."""
    source, useful = _source(own), tuple(own.useful.tolist())
    if held is not None:
        delta = table_delta(held.table, own.table, tolerance)
        body = encode_delta(delta)
        if len(body) < len(own.message):
            after = apply_delta(held.table, decode_delta(body))
            return SentTable(version, held.version, source, body, len(delta.fresh), useful, after)
    return SentTable(version, None, source, own.message, len(own.table), useful, decode_table(own.message))
