"""Two nodes whose agents agree on plans while something suffers, by D-FIT or under a coordinator.

Node B finds its first operator to cost something else at every point. That must come to be known at A, which then sheds
as well as the whole network can. Agents run in this process, or each in one of its own.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from floodway.agent.planes.dfit.agent import DFit
from floodway.agent.planes.dfit.state import DFitSettings
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.planes.plane import ControlPlane, Plane, make_control_plane, make_coordinator
from floodway.agent.wire.messages import COORDINATOR
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.experiments.chaos.kills.processes import Job
from floodway.job.clocks import PROCESS_CLOCK
from floodway.job.store.store import write_atomically
from floodway.network.file import parse_network
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program

SECURITY = Security(b"a key for faults on this machine alone")
HEAL_SECONDS = 300.0
"""A bound for agents that do not come to agree, not an expectation: it takes some seconds."""
LOOK_SECONDS = 0.05
CONTROLS = ("dfit", "coordinator")
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


def agent_names(control: str) -> tuple[str, ...]:
    """Both nodes, and the coordinator where there is one."""
    return ("A", "B", *([COORDINATOR] if control == "coordinator" else []))


@contextmanager
def serving(
    name: str,
    control: str,
    urls: Mapping[str, str],
    folder: Path,
    listen: tuple[str, int],
    forget_seconds: float | None = None,
) -> Iterator[Plane[Any]]:
    """An agent that talks to the others; under D-FIT it forgets a silent child after so long, if given."""
    network = parse_network(NETWORK)
    plane: Plane[Any]
    if name == COORDINATOR:
        plane = make_coordinator(network, SECURITY, urls, folder)
    elif control == "dfit" and forget_seconds is not None:
        machine = DFit(ClusterTopology(network), name, DFitSettings(forget_after_seconds=forget_seconds))
        plane = ControlPlane(machine, urls, SECURITY, folder)
    else:
        plane = make_control_plane(control, network, name, SECURITY, urls, folder)
    with HttpServer(plane.routes(), host=listen[0], port=listen[1], security=SECURITY):
        plane.start()
        try:
            yield plane
        finally:
            plane.stop()


def measure(plane: ControlPlane[Any], cost: float) -> Mapping[str, float]:
    """Let a node measure its rates, and B that cost; what the node would keep now."""
    name = plane.agent.name
    inputs = dict(RATES) if name == "A" else dict.fromkeys(plane.planner.network.streams, 0.5)
    plane.observe(inputs, {"b1": cost} if name == "B" else {}, PROCESS_CLOCK.now())
    return plane.planner.plan(inputs).keeps


def sheds_well(keeps: Mapping[str, float], cost: float) -> bool:
    """Whether no node is overloaded by what A keeps, and the score is as high as it can be, where b1 costs so much."""
    changed = parse_network(NETWORK.replace("cost: 3.0", f"cost: {cost}"))
    best = ExactPlanner(Program(changed)).plan(RATES).score
    let = {name: keeps[name] * rate for name, rate in RATES.items()}
    loads = (let["s1"] * 1.0 + let["s2"] * 2.0, let["s1"] * cost + let["s2"] * 1.0)
    return max(loads) <= 1.01 and sum(let.values()) >= 0.94 * best


class AgentProcesses(ABC):
    """The agents as processes. B's cost and what A would keep are in files of the folder."""

    def __init__(self, control: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.control, self.folder = control, folder
        self.names = agent_names(control)
        self.jobs: dict[str, Job] = {}
        self.change(COSTS[-1])

    @abstractmethod
    def start(self, name: str) -> None:
        """Start a process on what the one before has left."""

    def change(self, cost: float) -> None:
        """From now on B finds that its first operator costs so much."""
        write_atomically(self.folder / "cost", str(cost))

    def shed_well(self, cost: float, *, other: float | None = None) -> bool:
        """Whether what A would keep now is as good as can be; and would not be if b1 cost `other`."""
        with suppress(OSError, ValueError):
            keeps = json.loads((self.folder / "A.keeps").read_text(encoding="utf-8"))
            return sheds_well(keeps, cost) and (other is None or not sheds_well(keeps, other))
        return False

    def said(self) -> str:
        """The end of what the agents printed."""
        return " ".join(job.said(300) for job in self.jobs.values())

    def end(self) -> None:
        """Kill every process."""
        for job in self.jobs.values():
            job.end()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.end)
            for name in self.names:
                self.start(name)
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def run_agent(
    name: str, control: str, folder: str, urls: Mapping[str, str], forget_seconds: float | None = None
) -> None:
    """The body of a process: a node that measures and plans, or the coordinator, until its parent is gone."""
    root, at, parent = Path(folder), urlsplit(urls[name]), os.getppid()
    listen = (at.hostname or "", at.port or 0)
    with serving(name, control, urls, root / name, listen, forget_seconds) as plane:
        while os.getppid() == parent:
            if isinstance(plane, ControlPlane):
                keeps = measure(plane, float((root / "cost").read_text(encoding="utf-8")))
                write_atomically(root / f"{name}.keeps", json.dumps(dict(keeps)))
            time.sleep(LOOK_SECONDS)
