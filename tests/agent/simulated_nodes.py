"""Nodes on a simulated clock: the steering, backlog and control planes of real nodes, batches of P = a + work.

What is simulated is Spark (a batch takes its overhead and its work) and the wire (messages arrive at once); all that
decides is the code that runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodway.agent.loop.backlog import Backlog, RateMeter
from floodway.agent.loop.steering import FragmentBatch, source_work
from floodway.agent.node.steering import NodeSteering
from floodway.agent.planes.plane import Plane, make_control_plane, make_coordinator
from floodway.agent.wire.messages import COORDINATOR, decode, encode
from floodway.agent.wire.signing import Security
from floodway.job.decision import JobDecision
from floodway.job.options.options import JobOptions
from floodway.job.options.values import Target
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.source.offsets import BatchOffset
from floodway.units import PPM

TICK = 0.2


@dataclass
class _Batch:
    ends: float
    cut: float
    offered: dict[str, int]
    kept: dict[str, int]
    age: float


class SimulatedNode:
    """One node whose batches take `overhead` seconds and their work times `slowness`; it has one fragment."""

    def __init__(
        self, network: Network, node: str, kind: str, folder: Path, *, target: float, overhead: float, slowness: float
    ) -> None:
        self.name = node
        self.part = node_part(network, node)
        self.plane: Any = make_control_plane(kind, network, node, Security(), {}, folder / node)
        self.steering = NodeSteering(network, self.part, self.plane.planner, Target(target))
        options = self.steering.loop_options(JobOptions())
        self.query, self.fragment = next(iter(self.steering.fragments.items()))
        self.backlog = Backlog(self.part, self.steering.fragments, options.delivered_every)
        self.meter = RateMeter(options.rate_window_seconds)
        self.overhead, self.slowness = overhead, slowness
        self.arrived: Counter[str] = Counter(dict.fromkeys(self.part.streams, 0))
        self.taken: Counter[str] = Counter()
        self.oldest: dict[str, list[tuple[float, int]]] = {name: [] for name in self.part.streams}
        self.decision = JobDecision()
        self.batch: _Batch | None = None
        self.number = 0
        self.work = self.busy = 0.0
        self.latencies: list[tuple[float, int]] = []
        self._carry = dict.fromkeys(self.part.streams, 0.0)

    def receive(self, stream: str, tuples: float, first_arrival: float) -> None:
        """Tuples arrive; fractions are carried over."""
        self._carry[stream] += tuples
        whole = int(self._carry[stream])
        self._carry[stream] -= whole
        self.arrived[stream] += whole
        if whole:
            self.oldest[stream].append((first_arrival, whole))

    def turn(self, now: float, measuring: bool) -> dict[str, tuple[int, float]]:
        """One tick; what was delivered to each output, with the mean first arrival of its tuples."""
        delivered = self._end(now, measuring) if self.batch is not None and now >= self.batch.ends else {}
        self.steering.plan_with(self.plane.planner)
        self.meter.sample(now, self.arrived)
        rates = self.meter.rates()
        steering = self.steering.steering
        period, length = steering.period_seconds, steering.batch_seconds
        demand = self.backlog.demand(now, self.arrived, rates, period, length)
        steered = steering.decide(rates, demand, "enforce", int(now * 1e6))
        self.decision = steered.decision
        costs = self.steering.costs_to_tell(now)
        if costs is not None:
            self.plane.observe(rates, costs, now)
        if self.batch is None and any(self.arrived[s] > self.taken[s] for s in self.part.streams):
            self._cut(now)
        return delivered

    def _cut(self, now: float) -> None:
        offered = {s: self.arrived[s] - self.taken[s] for s in self.part.streams}
        kept = {s: n * self.decision.keep_ppm(s, waiting=n) // PPM for s, n in offered.items()}
        ages = [(at, count) for s in offered for at, count in self.oldest[s]]
        total = sum(count for _, count in ages)
        age = sum(at * count for at, count in ages) / total
        self.oldest = {s: [] for s in self.part.streams}
        self.taken = Counter(self.arrived)
        cost = source_work(self.part, self.fragment, {})
        work = sum(cost[s] * n for s, n in kept.items())
        self.batch = _Batch(now + self.overhead + self.slowness * work, now, offered, kept, age)
        offsets = {s: BatchOffset(s, {0: 0}, {0: self.taken[s]}) for s in offered}
        self.backlog.cut(self.query, JournaledBatch(self.number, int(now * 1e3), offsets), now)
        self.number += 1

    def _end(self, now: float, measuring: bool) -> dict[str, tuple[int, float]]:
        batch, self.batch = self.batch, None
        assert batch is not None
        seconds = now - batch.cut
        self.backlog.ended(self.query, seconds)
        waiting = self.backlog.waiting(self.arrived)
        latency = now - batch.age if any(batch.kept.values()) else None
        seen = FragmentBatch(self.query, batch.offered, batch.kept, seconds, latency, {})
        if self.number > 1:
            self.steering.steering.observe(now, seen, waiting)
        cost = source_work(self.part, self.fragment, {})
        if measuring:
            self.work += sum(cost[s] * n for s, n in batch.kept.items())
            self.busy += seconds
            if latency is not None:
                self.latencies.append((latency, sum(batch.kept.values())))
        return {
            out.name: (batch.kept[self.part.operators[out.source].inputs[0]], batch.age)
            for out in self.part.outputs.values()
        }


@dataclass
class Outcome:
    """Throughput of every output, the capacity each node turned out to have, its drops, and the mean latency."""

    throughput: dict[str, float]
    capacity: dict[str, float]
    link_loss: float
    latency: float
    nodes: Mapping[str, SimulatedNode] = field(repr=False)


def simulate(
    network: Network,
    kind: str,
    folder: Path,
    *,
    rates: Mapping[str, float],
    target: float = 6.0,
    overhead: float = 0.3,
    slowness: Mapping[str, float] | None = None,
    seconds: float = 120.0,
) -> Outcome:
    """Run a network of chains (every operator reads one stream) for this long; the second half is measured."""
    slow = slowness or {}
    nodes = {
        node: SimulatedNode(network, node, kind, folder, target=target, overhead=overhead, slowness=slow.get(node, 1.0))
        for node in network.nodes
    }
    boss = make_coordinator(network, Security(), {}, folder / COORDINATOR) if kind == "coordinator" else None
    delivered: Counter[str] = Counter()
    offered = kept = 0
    for step in range(round(seconds / TICK)):
        now = 1000.0 + step * TICK
        measuring = now >= 1000.0 + seconds / 2
        for node in nodes.values():
            for stream, rate in rates.items():
                if stream in node.part.streams:
                    node.receive(stream, rate * TICK, now)
        for node in nodes.values():
            for sink, (count, age) in node.turn(now, measuring).items():
                if sink in network.outputs:
                    delivered[sink] += count if measuring else 0
                else:
                    reader = nodes[network.operators[sink.partition("->")[2]].node]
                    reader.receive(sink, count, age)
        _talk(nodes, boss, now)
        for node in nodes.values():
            if measuring and node.batch is not None and node.batch.cut == now and node.steering.links:
                offered += sum(node.batch.offered.values())
                kept += sum(node.batch.kept.values())
    last = list(nodes.values())[-1]
    counted = sum(count for _, count in last.latencies)
    return Outcome(
        throughput={name: delivered[name] / (seconds / 2) for name in network.outputs},
        capacity={name: node.work / node.busy if node.busy else 1.0 for name, node in nodes.items()},
        link_loss=1.0 - kept / offered if offered else 0.0,
        latency=sum(latency * count for latency, count in last.latencies) / max(counted, 1),
        nodes=nodes,
    )


def _talk(nodes: Mapping[str, SimulatedNode], boss: Plane[Any] | None, now: float) -> None:
    """Deliver what every machine sends, through the real encoding, and the answers back."""
    machines = {name: node.plane.agent for name, node in nodes.items()}
    if boss is not None:
        machines[COORDINATOR] = boss.agent
    for machine in list(machines.values()):
        for message in machine.tick(now):
            other = machines[message.receiver]
            heard = decode(encode(message), network=other.network, receiver=other.name)
            answer = other.hear(heard, now)
            if answer is not None:
                machine.hear(decode(encode(answer), network=machine.network, receiver=machine.name), now)
