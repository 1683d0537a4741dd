"""Agents whose messages are lost, late, overtaken, doubled or answered to nobody: real HTTP, real signatures.

Two nodes under D-FIT and two under a coordinator talk through proxies. While messages suffer, both go on planning; when
the network is well again, they must come to the plan that an undisturbed pair has, within a bound of ticks. A message
that is played twice must be taken once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from floodway.agent.planes.plane import ControlPlane, make_control_plane, make_coordinator
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.experiments.chaos.wire import FAULTS, FaultyWire
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program

SECURITY = Security(b"a key for faults on this machine alone")
FAULTY_SECONDS = 1.5
HEAL_SECONDS = 120.0
"""A bound for agents that do not come to agree, not an expectation: it takes some seconds."""
RATES = {"s1": 1.0, "s2": 1.0}
NETWORK = """
version: 1
name: faulty-wire
streams: {s1: {max_rate: 2.0}, s2: {max_rate: 2.0}}
nodes: {A: {cpu: 1.0}, B: {cpu: 1.0}}
operators:
  a1: {node: A, from: s1, cost: 1.0}
  a2: {node: A, from: s2, cost: 2.0}
  b1: {node: B, from: a1, cost: 3.0}
  b2: {node: B, from: a2, cost: 1.0}
outputs: {q1: {from: b1}, q2: {from: b2}}
"""
COSTS = (3.0, 1.0, 6.0, 2.0)
"""What B finds its first operator to cost, from one point to the next: every point changes what must be known above."""


def faults(trial: Trial) -> FaultResult:
    """Every fault alone, then all together, under both control planes."""
    result = FaultResult("networks")
    rng = trial.rng("networks")
    kinds = [(control, fault) for fault in (*FAULTS, "all") for control in ("dfit", "coordinator")]
    network = parse_network(NETWORK)
    for number in range(trial.points):
        control, fault = kinds[number % len(kinds)]
        trial.progress(number / trial.points, f"{control}, messages {fault}")
        with _agents(control, network, trial.folder / str(number), trial) as (planes, wires):
            _settle(network, planes, 3.0)
            for wire in wires:
                wire.faults = FAULTS if fault == "all" else (fault,)
                wire.share = rng.uniform(0.3, 0.9)
            cost = COSTS[number % len(COSTS)]
            _observe(network, planes, cost, FAULTY_SECONDS)
            for wire in wires:
                wire.share = 0.0
            place = f"{control}, messages {fault}"
            if not _settle(network, planes, cost):
                result.differences.append(f"{place}: no agreement within {HEAL_SECONDS:g} s of a sound network")
            for name, plane in planes.items():
                if error := plane.status().get("error"):
                    result.differences.append(f"{place}: {name} failed: {error}")
            result.doubled += sum(wire.both_taken for wire in wires)
            met = result.detail.setdefault("met", {})
            for wire in wires:
                for name, count in wire.met.items():
                    met[name] = met.get(name, 0) + count
        result.tried += 1
    return result


@contextmanager
def _agents(
    control: str, network: Network, folder: Path, trial: Trial
) -> Iterator[tuple[Mapping[str, ControlPlane[Any]], list[FaultyWire]]]:
    """Nodes (and a coordinator) behind a proxy each."""
    with ExitStack() as stack:
        names = [*network.nodes, *(["coordinator"] if control == "coordinator" else [])]
        wires: dict[str, FaultyWire] = {}
        planes: dict[str, ControlPlane[Any]] = {}
        # Addresses first: agents are told those of the proxies, which need the ports of servers that start later.
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        for name, port in ports.items():
            wires[name] = stack.enter_context(FaultyWire(port, trial.rng(f"wire {name}")))
        urls = {name: wire.url for name, wire in wires.items()}
        for name in names:
            if name == "coordinator":
                talking = make_coordinator(network, SECURITY, urls, folder / name)
                routes = talking.routes()
                start, stop = talking.start, talking.stop
            else:
                plane = planes[name] = make_control_plane(control, network, name, SECURITY, urls, folder / name)
                routes, start, stop = plane.routes(), plane.start, plane.stop
            stack.enter_context(HttpServer(routes, port=ports[name], security=SECURITY))
            start()
            stack.callback(stop)
        yield planes, list(wires.values())


def _observe(network: Network, planes: Mapping[str, ControlPlane[Any]], cost: float, seconds: float) -> None:
    """Let the nodes measure for a while, and plan with what they have."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, plane in planes.items():
            here = {at: rate for at, rate in RATES.items() if name == "A"}
            inputs = here or dict.fromkeys(plane.planner.network.streams, 0.5)
            plane.observe(inputs, {"b1": cost} if name == "B" else {}, time.time())
            plane.planner.plan(inputs)
        time.sleep(0.05)


def _settle(network: Network, planes: Mapping[str, ControlPlane[Any]], cost: float) -> bool:
    """Until A sheds as well as the whole network can; False if it does not come to that."""
    changed = parse_network(NETWORK.replace("cost: 3.0", f"cost: {cost}"))
    best = ExactPlanner(Program(changed)).plan(RATES).score
    end = time.monotonic() + HEAL_SECONDS
    while time.monotonic() < end:
        _observe(network, planes, cost, 0.2)
        keeps = planes["A"].planner.plan(RATES).keeps
        let = {name: keeps[name] * rate for name, rate in RATES.items()}
        load_a = let["s1"] * 1.0 + let["s2"] * 2.0
        load_b = let["s1"] * cost + let["s2"] * 1.0
        fits = load_a <= 1.01 and load_b <= 1.01
        if fits and let["s1"] + let["s2"] >= 0.94 * best:
            return True
    return False
