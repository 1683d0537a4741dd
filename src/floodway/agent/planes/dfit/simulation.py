"""Many D-FIT agents on a simulated clock and a bad network, with the real machines and the real bytes on the wire.

Messages are encoded, lost, doubled, delayed (so that they overtake each other) and decoded as over HTTP, answers too.
Agents tick each at its own phase. Nothing is drawn but from the generator that is given, so a run repeats.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from floodway.agent.planes.agent import Agent
from floodway.agent.planes.dfit.agent import DFit, OwnTablePlanner
from floodway.agent.planes.dfit.own import NodeMeasures, as_measured
from floodway.agent.planes.dfit.state import DFitSettings, DFitState
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.planes.peers import PeerTraffic
from floodway.agent.wire.messages import AnyMessage, decode, encode
from floodway.agent.wire.refusals import RefusedError
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.network.part import node_part


@dataclass(frozen=True, slots=True)
class Wire:
    """How bad the network is: chances of a loss and of a double, and the range of delays in seconds."""

    loss: float = 0.0
    double: float = 0.0
    delay_seconds: tuple[float, float] = (0.001, 0.02)


@dataclass(order=True)
class _Due:
    at_seconds: float
    order: int
    node: str = field(compare=False)
    body: bytes | None = field(compare=False, default=None)
    is_answer: bool = field(compare=False, default=False)


class SimulatedAgents:
    """All agents of a network. `run` moves the clock; `changed_seconds` is when a table last changed."""

    def __init__(
        self,
        topology: ClusterTopology,
        rng: np.random.Generator,
        *,
        wire: Wire | None = None,
        settings: DFitSettings | None = None,
        tick_seconds: float = 0.1,
        start_seconds: float = 1_000.0,
    ) -> None:
        self.topology = topology
        self.now_seconds = start_seconds
        self.changed_seconds = start_seconds
        self.traffic = PeerTraffic()
        self.refused: Counter[str] = Counter()
        self._rng = rng
        self._wire = wire or Wire()
        self._tick = tick_seconds
        self.agents: dict[str, Agent[DFitState]] = {
            node: Agent(DFit(topology, node, settings or DFitSettings())) for node in topology.index
        }
        self._tables = {node: self._table(node) for node in self.agents}
        self._measured: dict[str, NodeMeasures] = {}
        self._planners: dict[str, OwnTablePlanner] = {}
        self._order = 0
        self._due: list[_Due] = []
        for node in self.agents:
            self._push(start_seconds + float(rng.uniform(0, tick_seconds)), node)

    def measure(self, node: str, measured: NodeMeasures, rates: Mapping[str, float] | None = None) -> None:
        """From now on a node has measured this."""
        self._measured[node] = measured
        self.agents[node].observe(rates or {}, measured, self.now_seconds)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now_seconds + seconds
        while self._due and self._due[0].at_seconds <= end:
            due = heapq.heappop(self._due)
            self.now_seconds = due.at_seconds
            if due.body is None:
                self._ticked(due.node)
            else:
                self._arrived(due.node, due.body, due.is_answer)
        self.now_seconds = end

    def settle(self, quiet_seconds: float, most_seconds: float) -> float:
        """Run until no table has changed for a while; seconds from now until the last change."""
        begin = self.now_seconds
        while self.now_seconds - begin < most_seconds:
            self.run(quiet_seconds / 4)
            if self.now_seconds - max(self.changed_seconds, begin) >= quiet_seconds:
                break
        return max(0.0, self.changed_seconds - begin)

    def score(self, rates: Mapping[str, float]) -> float:
        """What the network earns when every agent decides on what reaches it, parents first, from its own table."""
        offered = dict(rates)
        earned: dict[str, float] = {}
        for cluster in self.topology.clusters:
            # Members of a cluster may feed each other in any order.
            for node in cluster.nodes * len(cluster.nodes):
                part = self._part(node)
                here = {name: offered.get(name, 0.0) for name in part.streams}
                flow = flows(part, here, self._planner(node).plan(here).keeps)
                offered.update(flow.throughput)
                earned.update(
                    (name, out.weight * flow.throughput[name])
                    for name, out in part.outputs.items()
                    if name in self.topology.network.outputs
                )
        return sum(earned.values())

    def _planner(self, node: str) -> OwnTablePlanner:
        if node not in self._planners:
            role = DFit(self.topology, node)
            self._planners[node] = OwnTablePlanner(role, lambda: self.agents[node].state)
        return self._planners[node]

    def _part(self, node: str) -> Network:
        """A node's part with the costs that are true there."""
        own = self.agents[node].state.own
        if own is not None and not self.agents[node].state.stale:
            return own.parts[node].network
        return node_part(as_measured(self.topology.network, self._measured), node)

    def _ticked(self, node: str) -> None:
        for message in self.agents[node].tick(self.now_seconds):
            self._send(message, is_answer=False)
        table = self._table(node)
        if table is not self._tables[node]:
            self._tables[node] = table
            self.changed_seconds = self.now_seconds
        self._push(self.now_seconds + self._tick, node)

    def _arrived(self, node: str, body: bytes, is_answer: bool) -> None:
        try:
            message = decode(body, network=self.topology.network.name, receiver=node)
            answer = self.agents[node].hear(message, self.now_seconds)
        except RefusedError as error:
            self.refused[error.reason] += 1
            return
        if answer is not None and not is_answer:
            self._send(answer, is_answer=True)

    def _send(self, message: AnyMessage, *, is_answer: bool) -> None:
        body = encode(message)
        self.traffic.sent(message, len(body))
        copies = 1 + int(self._rng.random() < self._wire.double)
        for _ in range(copies):
            if self._rng.random() >= self._wire.loss:
                delay = float(self._rng.uniform(*self._wire.delay_seconds))
                self._push(self.now_seconds + delay, message.receiver, body, is_answer)

    def _push(self, at_seconds: float, node: str, body: bytes | None = None, is_answer: bool = False) -> None:
        self._order += 1
        heapq.heappush(self._due, _Due(at_seconds, self._order, node, body, is_answer))

    def _table(self, node: str) -> object:
        own = self.agents[node].state.own
        return None if own is None else own.table
