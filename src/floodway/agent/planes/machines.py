"""The pure machines with their state and a lock: what threads and routes talk to. No I/O.

What outputs measure (`planes/lateness.py`) travels with the machines' messages and is no part of their states.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from floodway.agent.planes.coordinated import Post, PostState, hear_order, report
from floodway.agent.planes.coordinator import CoordinatorState, Office, first_coordinator_state, hear, turn
from floodway.agent.planes.dfit.machine import Heard, Observed, Step, Ticked, first_state, reconfigured, step
from floodway.agent.planes.dfit.own import Measured
from floodway.agent.planes.dfit.state import DFitState, Role
from floodway.agent.planes.lateness import Lateness, outputs_below
from floodway.agent.wire.messages import COORDINATOR, AnyMessage, Keeps, PlanChoice, Statistics, TablePush
from floodway.network.model import Network


class Hurry:
    """What one agent knows of late outputs, and how it goes with its messages."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._lock = threading.Lock()
        self.lateness = Lateness()

    def measured(self, latencies: Mapping[str, float], target_seconds: float, depth: int, now_seconds: float) -> None:
        """Note the mean latencies of a batch's results at the node's own outputs."""
        known = {name: seconds for name, seconds in latencies.items() if name in self._network.outputs}
        with self._lock:
            self.lateness = self.lateness.measured(
                known, target_seconds=target_seconds, depth=depth, now_seconds=now_seconds
            )

    def heard(self, message: AnyMessage, now_seconds: float) -> None:
        """Take what a message says that was not refused."""
        if isinstance(message, (TablePush, Statistics, Keeps, PlanChoice)) and message.late:
            with self._lock:
                self.lateness = self.lateness.hear(message.late, self._network.outputs, now_seconds)

    def sent(self, messages: tuple[AnyMessage, ...], now_seconds: float) -> tuple[AnyMessage, ...]:
        """Messages with what their receivers should know: statistics carry the sender's own outputs only."""
        return tuple(
            message.model_copy(
                update={"late": self.lateness.to_tell(now_seconds, own_only=isinstance(message, Statistics))}
            )
            if isinstance(message, (TablePush, Statistics, Keeps, PlanChoice))
            else message
            for message in messages
        )

    def share_factor(self, operators: Collection[str], now_seconds: float) -> float:
        """What is left of the share of the target of a query with these operators."""
        return self.lateness.factor(outputs_below(self._network, operators), now_seconds)

    def status(self, now_seconds: float) -> dict[str, float]:
        """Outputs that are late, with their factors."""
        known = self.lateness.to_tell(now_seconds)
        return {name: round(value, 3) for name, value in known.items() if value < 1.0}


class DFitMachine:
    """One D-FIT agent."""

    def __init__(self, role: Role, state: DFitState | None = None) -> None:
        self.role = role
        self.name = role.node
        self.network = role.topology.network.name
        self._state = state or first_state(role)
        self._lock = threading.Lock()
        self.hurry = Hurry(role.topology.network)

    @property
    def state(self) -> DFitState:
        """What the agent knows now."""
        return self._state

    def observe(self, rates: Mapping[str, float], measured: Measured, now_seconds: float) -> None:
        """Note what the node itself has measured."""
        self._step(Observed(now_seconds, dict(rates), measured))

    def reconfigure(self, role: Role) -> None:
        """Go on under another network file."""
        with self._lock:
            self.role, self._state = role, reconfigured(role, self._state)

    def hear(self, message: AnyMessage, now_seconds: float) -> AnyMessage | None:
        """Take a message and return the answer."""
        answer = self._step(Heard(now_seconds, message)).answer
        self.hurry.heard(message, now_seconds)
        return answer

    def tick(self, now_seconds: float) -> tuple[AnyMessage, ...]:
        """What is to be sent now."""
        return self.hurry.sent(self._step(Ticked(now_seconds)).send, now_seconds)

    def status(self, now_seconds: float) -> dict[str, object]:
        """Children, parent and own table; `cut_off` names those that are silent for too long."""
        state, role = self._state, self.role
        most = role.settings.child_timeout_seconds
        children = {
            child.leader: {
                "planned_as": _planned_as(child.version, child.heard_seconds, now_seconds, most),
                "version": child.version,
                "silent_seconds": _since(child.heard_seconds, now_seconds),
            }
            for child in state.children
        }
        above = role.topology.parent_of(role.cluster) if role.leads else role.leader
        silent = [name for name, child in children.items() if child["planned_as"] != "last table"]
        if above is not None and not _fresh(state.above_seconds, now_seconds, most):
            silent.append(above)
        return {
            "cluster": list(role.topology.clusters[role.cluster].nodes),
            "leader": role.leader,
            "above": above,
            "acknowledged": state.pushed is not None and state.pushed is state.acked,
            "children": children,
            "rows": 0 if state.own is None else len(state.own.table),
            "table_bytes": 0 if state.own is None else len(state.own.message),
            "late": self.hurry.status(now_seconds),
            "cut_off": silent,
        }

    def _step(self, event: Observed | Heard | Ticked) -> Step:
        with self._lock:
            done = step(self.role, self._state, event)
            self._state = done.state
            return done


class PostMachine:
    """One node under a coordinator."""

    def __init__(self, post: Post, state: PostState | None = None) -> None:
        self.post = post
        self.name = post.node
        self.network = post.network.name
        self._state = state or PostState()
        self._lock = threading.Lock()
        self.hurry = Hurry(post.network)

    @property
    def state(self) -> PostState:
        """What the node holds now."""
        return self._state

    def observe(self, rates: Mapping[str, float], measured: Measured, now_seconds: float) -> None:
        """Note what the node itself has measured."""
        with self._lock:
            self._state = self._state.seen(rates, measured)

    def hear(self, message: AnyMessage, now_seconds: float) -> AnyMessage | None:
        """Take a message and return the answer."""
        with self._lock:
            self._state, answer = hear_order(self.post, self._state, message, now_seconds)
        self.hurry.heard(message, now_seconds)
        return answer

    def tick(self, now_seconds: float) -> tuple[AnyMessage, ...]:
        """What is to be sent now."""
        with self._lock:
            self._state, messages = report(self.post, self._state, now_seconds)
        return self.hurry.sent(messages, now_seconds)

    def status(self, now_seconds: float) -> dict[str, object]:
        """The plan in use, and whether the coordinator is silent for too long."""
        state = self._state
        there = _fresh(state.heard_seconds, now_seconds, self.post.timeout_seconds)
        return {
            "plan": state.plan,
            "generation": state.generation,
            "rows": len(state.rows),
            "scale": state.scale,
            "late": self.hurry.status(now_seconds),
            "silent_seconds": _since(state.heard_seconds, now_seconds),
            "cut_off": [] if there else [COORDINATOR],
        }


class CoordinatorMachine:
    """The coordinator; with a `state` from its journal it goes on where it was."""

    def __init__(self, office: Office, state: CoordinatorState | None = None) -> None:
        self.office = office
        self.name = COORDINATOR
        self.network = office.network.name
        self.resumed = state is not None
        self.hurry = Hurry(office.network)
        self._state = state or first_coordinator_state(office)
        self._lock = threading.Lock()

    @property
    def state(self) -> CoordinatorState:
        """What the coordinator knows now."""
        return self._state

    def hear(self, message: AnyMessage, now_seconds: float) -> AnyMessage | None:
        """Take a message and return the answer."""
        with self._lock:
            self._state, answer = hear(self.office, self._state, message, now_seconds)
        self.hurry.heard(message, now_seconds)
        return answer

    def tick(self, now_seconds: float) -> tuple[AnyMessage, ...]:
        """What is to be sent now."""
        with self._lock:
            self._state, messages = turn(self.office, self._state, now_seconds)
        return self.hurry.sent(messages, now_seconds)

    def status(self, now_seconds: float) -> dict[str, object]:
        """The plan in force and which nodes have it."""
        state = self._state
        most = self.office.timeout_seconds
        return {
            "planner": self.office.planner,
            "resumed": self.resumed,
            "plan": state.plan,
            "generation": state.generation,
            "rows": len(state.rows),
            "scale": state.scale,
            "late": self.hurry.status(now_seconds),
            "acknowledged": [node for node, told in state.told.items() if told.acked],
            "cut_off": [n for n, m in state.members.items() if not _fresh(m.heard_seconds, now_seconds, most)],
        }


def _fresh(heard_seconds: float | None, now_seconds: float, most_seconds: float) -> bool:
    return heard_seconds is not None and now_seconds - heard_seconds <= most_seconds


def _since(heard_seconds: float | None, now_seconds: float) -> float | None:
    return None if heard_seconds is None else round(max(0.0, now_seconds - heard_seconds), 3)


def _planned_as(version: int | None, heard_seconds: float | None, now_seconds: float, most_seconds: float) -> str:
    if version is None:
        return "configured"
    return "last table" if _fresh(heard_seconds, now_seconds, most_seconds) else "last table, gone"
