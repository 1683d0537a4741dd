"""When and how a leader's table goes to its parent: the whole of it, what changed, or only a sign of life."""

from __future__ import annotations

from dataclasses import replace

from floodway.agent.planes.dfit.own import Own
from floodway.agent.planes.dfit.state import DFitState, Pushed, Role, stamp
from floodway.agent.wire.messages import AnyMessage, TablePush
from floodway.planning.fit.delta import apply_delta, decode_delta, encode_delta, table_delta
from floodway.planning.fit.wire import decode_table


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
    role: Role, parent: str, state: DFitState, pushed: Pushed, now_seconds: float
) -> tuple[list[AnyMessage], DFitState]:
    if now_seconds < state.beat_due_seconds:
        return [], state
    name = role.topology.network.name
    beat = TablePush(network=name, sender=role.node, receiver=parent, form="beat", version=pushed.version)
    return [beat], replace(state, beat_due_seconds=now_seconds + role.settings.beat_seconds)


def _source(own: Own) -> bytes:
    return own.message + own.useful.tobytes()


def _made(own: Own, version: int, held: Pushed | None, tolerance: float) -> Pushed:
    """A change to what the parent holds if that is smaller, else the whole table."""
    source, useful = _source(own), tuple(own.useful.tolist())
    if held is not None:
        delta = table_delta(held.table, own.table, tolerance)
        body = encode_delta(delta)
        if len(body) < len(own.message):
            after = apply_delta(held.table, decode_delta(body))
            return Pushed(version, held.version, source, body, len(delta.fresh), useful, after)
    return Pushed(version, None, source, own.message, len(own.table), useful, decode_table(own.message))
