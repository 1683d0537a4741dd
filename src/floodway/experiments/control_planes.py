"""Centralised against distributed: how soon a network sheds rightly after a change, and how many bytes that takes.

A random tree of nodes, each with its real control plane behind a real HTTP server on this machine: once by D-FIT, once
under a coordinator that plans when a plan is first needed, once under one that has uploaded its plans in advance. There
are no tuples: what reaches a node is worked out from what the nodes above it decide at that moment. Rates double and
fall back, and a leaf's work becomes dearer and cheaper again. After each change the clock runs until what all nodes
decide is within ε of the linear program's optimum and overloads no node.

Short paper, sections 1.3 and 4: hypotheses there, "these require experimental verification".
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np

from floodway.agent.planes.agent import NodeMachine
from floodway.agent.planes.coordinated import CoordinatedNode
from floodway.agent.planes.coordinator import Coordinator
from floodway.agent.planes.dfit.agent import DFit
from floodway.agent.planes.dfit.own import NodeMeasures, as_measured
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.planes.plane import ControlPlane, Plane
from floodway.agent.wire.messages import COORDINATOR
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.server import HttpServer
from floodway.experiments.dfit_agents import random_tree
from floodway.experiments.plots import PALETTE, Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.planning.lp import LinearProgram
from floodway.planning.program import Program

TITLE = "Centralised against distributed: reaction time and bytes"
CLAIM = Claim(
    "fit-short",
    "Sections 1.3 and 4",
    "a coordinator can respond slowly to load spikes, but plans well; nodes that decide themselves react fast, and "
    "have to coordinate with little overhead (hypotheses that the paper leaves to experiments)",
)
NODES = 15
EPSILON = 0.05
LIGHT, HEAVY = 0.5, 2.0
"""Rates, of what the network can take."""
DEARER = 2.0
LOOK_SECONDS = 0.02
HOLD_SECONDS, CALM_SECONDS, PATIENCE_SECONDS = 1.0, 5.0, 60.0
KINDS = DISTRIBUTED, LAZY, ADVANCE = "D-FIT", "coordinator, plans when needed", "coordinator, plans in advance"
CHANGES = ("rates rise", "leaf dearer", "leaf cheaper", "rates fall")


@dataclass(frozen=True, slots=True)
class Reaction:
    """Seconds until all decide rightly, bytes of requests until a second after that, and the largest error then."""

    seconds: float
    bytes: int
    error: float


@dataclass(frozen=True, slots=True)
class PlaneFigures:
    """One network under one control plane: reactions by change, bytes to begin with and per second in between."""

    reactions: Mapping[str, Reaction]
    first_bytes: int
    bytes_per_second: float


class Deployment:
    """All agents of a network in this process, each with a server of its own."""

    def __init__(self, network: Network, kind: str) -> None:
        self.network = network
        machines: dict[str, NodeMachine[Any]] = {}
        topology = ClusterTopology(network, EPSILON) if kind == DISTRIBUTED else None
        for node in network.nodes:
            machines[node] = CoordinatedNode(network, node) if topology is None else DFit(topology, node)
        names = [*machines, COORDINATOR]
        urls = {name: f"http://127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
        self.nodes = {node: ControlPlane(machine, urls) for node, machine in machines.items()}
        self._planes: dict[str, Plane[Any]] = dict(self.nodes)
        if topology is None:
            self._planes[COORDINATOR] = Plane(Coordinator(network, epsilon=EPSILON, lazy=kind == LAZY), urls)
        self._servers = {
            name: HttpServer(plane.routes(), port=int(urls[name].rsplit(":", 1)[1]))
            for name, plane in self._planes.items()
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for name, server in self._servers.items():
            server.start()
            self._stack.callback(server.stop)
            self._planes[name].start()
            self._stack.callback(self._planes[name].stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def agreed(self) -> bool:
        """Whether every table or plan that was sent is known to have arrived."""
        told: dict[str, dict[str, Any]] = {name: plane.status() for name, plane in self._planes.items()}
        if COORDINATOR not in told:
            return all(told[node]["acknowledged"] or told[node]["above"] is None for node in self.nodes)
        rows, heard = (told[COORDINATOR][key] for key in ("prepared", "acknowledged"))
        return heard == list(self.nodes) and all(told[node]["rows"] >= rows for node in self.nodes)

    @property
    def sent_bytes(self) -> int:
        """Bodies of all requests so far; answers are not counted."""
        return sum(plane.peers.traffic.counts["bytes"] for plane in self._planes.values())


class World:
    """The truth about rates and costs, and what the agents' decisions come to in it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.costs = {
            node: {name: op.cost or 0.0 for name, op in network.operators.items() if op.node == node}
            for node in network.nodes
        }
        self._order = sorted(network.nodes, key=lambda node: int(node[1:]))
        self.change()

    def change(self, share: float = LIGHT, **costs: float) -> None:
        """Rates as this share of what the network could take at first; a node's costs times a factor."""
        for node, factor in costs.items():
            self.costs[node] = {name: factor * cost for name, cost in self.costs[node].items()}
        measured = {node: NodeMeasures(found, {}) for node, found in self.costs.items()}
        true = as_measured(self.network, measured)
        program = Program(true)
        vector = share * Program(self.network).max_feasible_rates
        self.rates = dict(zip(program.streams, vector.tolist(), strict=True))
        self.best = program.score(LinearProgram(program).solve(vector)[0])
        self._parts = {node: node_part(true, node) for node in self.network.nodes}

    def look(self, nodes: Mapping[str, ControlPlane[Any]]) -> tuple[float, float]:
        """Let every node measure and decide; (lost share of the optimum, load of the fullest node)."""
        offered, earned, fullest = dict(self.rates), 0.0, 0.0
        now = time.time()
        for node in self._order:
            part = self._parts[node]
            here = {name: offered.get(name, 0.0) for name in part.streams}
            flow = flows(part, here, nodes[node].planner.plan(here).keeps)
            nodes[node].observe(here, self.costs[node], now)
            offered.update(flow.throughput)
            fullest = max(fullest, flow.load[node] / part.nodes[node].cpu)
            earned += sum(
                out.weight * flow.throughput[name] for name, out in part.outputs.items() if name in self.network.outputs
            )
        return 1.0 - earned / self.best, fullest


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Three networks at most: a run takes as long as it takes."""
    table: dict[str, list[PlaneFigures]] = {kind: [] for kind in KINDS}
    chosen = list(seeds[:3])
    for place, seed in enumerate(chosen):
        network = random_tree(NODES, np.random.default_rng([seed, NODES]))
        for number, kind in enumerate(KINDS):
            table[kind].append(play(network, kind))
            progress((place * len(KINDS) + number + 1) / (len(chosen) * len(KINDS)))
    return judged(table)


def judged(table: Mapping[str, Sequence[PlaneFigures]]) -> Result:
    """The verdict on what was found by kind of control plane, once for each network."""
    slow = {kind: {change: _middle(table[kind], change) for change in CHANGES} for kind in KINDS}
    calm = {kind: median(found.bytes_per_second for found in table[kind]) for kind in KINDS}
    worst = max(one.error for rows in table.values() for found in rows for one in found.reactions.values())
    rise = {kind: slow[kind]["rates rise"] for kind in KINDS}
    return Result(
        measured={
            kind: {
                "seconds until all decide rightly": {change: round(value, 3) for change, value in slow[kind].items()},
                "bytes": {
                    change: round(median(found.reactions[change].bytes for found in table[kind])) for change in CHANGES
                },
                "bytes until all hold their first tables or plans": round(
                    median(found.first_bytes for found in table[kind])
                ),
                "bytes a second while nothing changes": round(calm[kind]),
            }
            for kind in KINDS
        },
        criteria=(
            Criterion(
                f"after every change all three come to within {EPSILON:.0%} of the optimum, and overload no node",
                worst <= EPSILON,
                f"{worst:.1%}",
            ),
            Criterion(
                "when rates rise, nodes with tables of their own react sooner than under a coordinator",
                all(rise[DISTRIBUTED] < rise[kind] for kind in (LAZY, ADVANCE)),
                ", ".join(f"{kind} {value:.2f} s" for kind, value in rise.items()),
            ),
            Criterion(
                "and send nothing for it but signs of life, fewer bytes than reports to a coordinator",
                all(calm[DISTRIBUTED] < calm[kind] for kind in (LAZY, ADVANCE)),
                ", ".join(f"{kind} {value:.0f} bytes/s" for kind, value in calm.items()),
            ),
        ),
        where="computation",
        notes=(
            f"{NODES} agents of each of {len(table[DISTRIBUTED])} random trees in one process, with real HTTP on "
            "loopback; medians. Times are of this machine, and of whatever else it did.",
            "Rates rise from half of what the network takes to twice that; a leaf's work costs twice as much, and then "
            "as before. An agent ticks every 0.1 s, a node reports every 0.5 s to a coordinator.",
            "There is no Spark in this: the rates that nodes see are worked out. Bodies of requests are counted, "
            "answers and HTTP's heads are not.",
        ),
        headline="; ".join(
            f"{kind}: {slow[kind]['rates rise']:.2f} s after rates rise, {slow[kind]['leaf dearer']:.2f} s after a "
            f"leaf's costs, {calm[kind] / 1000:.1f} kB/s in between"
            for kind in KINDS
        ),
        plots={"control-planes": lambda: _draw(slow)},
    )


def play(network: Network, kind: str) -> PlaneFigures:
    """All changes in turn, under one control plane."""
    world, leaf = World(network), f"n{len(network.nodes) - 1}"
    with Deployment(network, kind) as agents:
        _until_right(world, agents)
        end = time.monotonic() + PATIENCE_SECONDS
        while not agents.agreed and time.monotonic() < end:
            _watched(world, agents, LOOK_SECONDS)
        first = agents.sent_bytes
        before, began = agents.sent_bytes, time.monotonic()
        _watched(world, agents, CALM_SECONDS)
        calm = (agents.sent_bytes - before) / (time.monotonic() - began)
        reactions = {}
        for change, share, factor in zip(
            CHANGES, (HEAVY, HEAVY, HEAVY, LIGHT), (1.0, DEARER, 1.0 / DEARER, 1.0), strict=True
        ):
            world.change(share, **{leaf: factor})
            reactions[change] = _until_right(world, agents)
    return PlaneFigures(reactions, first, calm)


def _until_right(world: World, agents: Deployment) -> Reaction:
    """Look until all is right and stays so; the reaction counts from now to the first look of that time."""
    before, began = agents.sent_bytes, time.monotonic()
    right: float | None = None
    error = 0.0
    while (now := time.monotonic()) - began < PATIENCE_SECONDS:
        lost, fullest = world.look(agents.nodes)
        wrong = lost > EPSILON or fullest > 1.0 + EPSILON
        error = max(lost, fullest - 1.0, 0.0)
        if wrong:
            right = None
        elif right is None:
            right = now
        elif now - right >= HOLD_SECONDS:
            break
        time.sleep(LOOK_SECONDS)
    return Reaction(PATIENCE_SECONDS if right is None else right - began, agents.sent_bytes - before, error)


def _watched(world: World, agents: Deployment, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        world.look(agents.nodes)
        time.sleep(LOOK_SECONDS)


def _middle(found: Sequence[PlaneFigures], change: str) -> float:
    return median(one.reactions[change].seconds for one in found)


def _draw(slow: Mapping[str, Mapping[str, float]]) -> Figure:
    figure, (axes,) = panels(1, 1, width=9.0)
    width = 0.8 / len(slow)
    for place, ((kind, values), colour) in enumerate(zip(slow.items(), PALETTE, strict=False)):
        axes.bar(np.arange(len(CHANGES)) + place * width, [values[change] for change in CHANGES], width, color=colour)
        axes.plot([], [], color=colour, label=kind)
    axes.set_xticks(np.arange(len(CHANGES)) + width, CHANGES)
    style(axes, title="Until all nodes decide rightly", x="change", y="seconds", legend=True)
    return figure
