"""One agent of a control plane, without I/O: its machine, the machine's state, and how late outputs are.

A machine is pure: (state, event) -> (state, messages). `Agent` holds the state behind a lock; threads, timers, sockets
and files are those of the shell (`plane.py`), a simulated clock and a bad network those of a test.

How late results are (`lateness.py`) travels with the machines' messages and is no part of their states.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from floodway.agent.planes.dfit.own import NodeMeasures
from floodway.agent.planes.lateness import Lateness, outputs_below
from floodway.agent.wire.messages import AnyMessage, Keeps, NodeStatistics, PlanChoice, TablePush
from floodway.network.model import Network
from floodway.planning.plan import Planner

State = TypeVar("State")


class Machine(Protocol[State]):
    """What an agent does; times in seconds of its clock. A `RefusedError` changes nothing.

    `shares_target` says whether it hurries when results are late further down.
    """

    shares_target: ClassVar[bool]

    @property
    def name(self) -> str:
        """The agent's name: that of its node, or `coordinator`."""

    @property
    def network(self) -> Network:
        """The whole network."""

    def first(self) -> State:
        """Before anything is heard."""

    def observe(self, state: State, rates: Mapping[str, float], measured: NodeMeasures, now: float) -> State:
        """The node has measured rates (tuples/s) at its streams and links, and costs."""

    def hear(self, state: State, message: AnyMessage, now: float) -> tuple[State, AnyMessage | None]:
        """A peer's message, or its answer to one; the answer to it."""

    def tick(self, state: State, now: float) -> tuple[State, tuple[AnyMessage, ...]]:
        """Time has passed; what is to be sent."""

    def status(self, state: State, now: float) -> dict[str, object]:
        """How it stands, for people; `cut_off` names the peers that are silent."""

    def to_journal(self, state: State) -> str:
        """What a restart needs, as text that changes only when there is something new; empty for nothing."""

    def from_journal(self, text: str, now: float) -> State | None:
        """The state again; None if the journal is damaged, or of another network."""


class NodeMachine(Machine[State], Protocol):
    """The machine of a node, which plans."""

    def planning(self, state: Callable[[], State]) -> Callable[[], Planner]:
        """Gives the planner for the node's own part of the network, with whatever the agent knows at the time."""


class Agent(Generic[State]):
    """A machine with its state; may be called from any thread."""

    def __init__(self, machine: Machine[State], state: State | None = None) -> None:
        self.machine = machine
        self.name, self.network = machine.name, machine.network.name
        self.state: State = machine.first() if state is None else state
        self.lateness = Lateness()
        self._lock = threading.Lock()

    def observe(self, rates: Mapping[str, float], measured: NodeMeasures, now: float) -> None:
        """Note what the node has measured; the next tick says whom that concerns."""
        with self._lock:
            self.state = self.machine.observe(self.state, rates, measured, now)

    def observe_results(self, latencies: Mapping[str, float], target_seconds: float, depth: int, now: float) -> None:
        """Note the mean latencies of a batch's results at the node's outputs, `depth` queries from the sources."""
        if not self.machine.shares_target:
            return
        known = {name: seconds for name, seconds in latencies.items() if name in self.machine.network.outputs}
        with self._lock:
            self.lateness = self.lateness.measured(known, target_seconds=target_seconds, depth=depth, now_seconds=now)

    def hear(self, message: AnyMessage, now: float) -> AnyMessage | None:
        """Take a message and return the answer."""
        with self._lock:
            self.state, answer = self.machine.hear(self.state, message, now)
            if isinstance(message, (TablePush, NodeStatistics, Keeps, PlanChoice)) and message.late:
                self.lateness = self.lateness.hear(message.late, self.machine.network.outputs, now)
        return answer

    def tick(self, now: float) -> tuple[AnyMessage, ...]:
        """What is to be sent now, with what the receivers should know of late outputs."""
        with self._lock:
            self.state, messages = self.machine.tick(self.state, now)
            return tuple(self._with_lateness(message, now) for message in messages)

    def share_factor(self, operators: Collection[str], now: float) -> float:
        """What is left of its share of the target for a query with these operators, in (0, 1].

        Below 1 when results are late at outputs of later queries.
        """
        return self.lateness.factor(outputs_below(self.machine.network, operators), now)

    def status(self, now: float) -> dict[str, object]:
        """The machine's status, and the outputs that are late with their factors."""
        late = {name: round(value, 3) for name, value in self.lateness.to_tell(now).items() if value < 1.0}
        return {**self.machine.status(self.state, now), "late": late}

    def _with_lateness(self, message: AnyMessage, now: float) -> AnyMessage:
        """Statistics carry the sender's own outputs only."""
        if not isinstance(message, (TablePush, NodeStatistics, Keeps, PlanChoice)):
            return message
        late = self.lateness.to_tell(now, own_only=isinstance(message, NodeStatistics))
        return message.model_copy(update={"late": late})


def is_fresh(heard_seconds: float | None, now: float, most_seconds: float) -> bool:
    """Whether a peer was heard not longer ago than this."""
    return heard_seconds is not None and now - heard_seconds <= most_seconds


def silence(heard_seconds: float | None, now: float) -> float | None:
    """Seconds since a peer was heard; None if it never was."""
    return None if heard_seconds is None else round(max(0.0, now - heard_seconds), 3)
