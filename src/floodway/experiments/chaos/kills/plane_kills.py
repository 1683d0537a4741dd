"""Agents and a coordinator as processes with real sockets and journals, killed or held up while they agree on plans.

Under D-FIT and under a coordinator in turn. Node B finds its operator to cost something else at every point; right
after that a process is struck, so its messages and its journal are under way. Then A must come to shed as well as the
whole network can. A process that was killed starts with its journal; nobody else is restarted. Agents under D-FIT
forget a child after half of a stop: meanwhile the other sheds as the network file says.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from floodway.agent.planes.dfit.agent import DFit
from floodway.agent.planes.dfit.state import DFitSettings
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.planes.plane import ControlPlane, make_control_plane, make_coordinator
from floodway.agent.wire.messages import COORDINATOR
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.server import HttpServer
from floodway.experiments.chaos.kills.kills import SPARK_HOLD_SECONDS, points_of, until
from floodway.experiments.chaos.kills.processes import ForkedJob
from floodway.experiments.chaos.networks import COSTS, HEAL_SECONDS, NETWORK, RATES, SECURITY, sheds_well
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.job.clocks import PROCESS_CLOCK
from floodway.job.store.store import write_atomically
from floodway.network.file import parse_network

TICK_SECONDS = 0.1
HOLD_SECONDS = SPARK_HOLD_SECONDS
"""Longer than messages are fresh, and than what a silent node said is remembered: thirty seconds."""
CONFIGURED_COST = COSTS[0]
"""What the network file says of B's first operator."""


def kills(trial: Trial) -> FaultResult:
    """Half of the points under each control plane."""
    result = FaultResult("plane-kills", detail={"points": []})
    for control, count in (("dfit", trial.points // 2), ("coordinator", trial.points - trial.points // 2)):
        if count:
            _campaign(control, count, trial, result)
    return result


def _campaign(control: str, count: int, trial: Trial, result: FaultResult) -> None:
    targets = ["A", "B", *([COORDINATOR] if control == "coordinator" else [])]
    points = points_of(trial.rng(f"plane-kills {control}"), count, ["cost"], targets)
    with AgentProcesses(control, trial.folder / control) as agents:
        for number, point in enumerate(points):
            words = (
                f"{control}: {point.signal.name} of {point.target} {point.delay_seconds * 1e3:.0f} ms after a change"
            )
            trial.progress(result.tried / trial.points, words)
            cost = COSTS[number % len(COSTS)]
            agents.change(cost)
            time.sleep(point.delay_seconds)
            if point.signal == signal.SIGKILL:
                agents.jobs[point.target].end()
                agents.start(point.target)
            elif not agents.hold(point.target):
                result.differences.append(f"{words}: A still planned with the last table of a B that was silent")
            if not until(partial(agents.shed_well, cost), HEAL_SECONDS):
                said = agents.jobs[point.target].said()
                result.differences.append(f"{words}: no agreement within {HEAL_SECONDS:g} s: {said}")
            result.tried += 1
            result.detail["points"].append(words)


class AgentProcesses:
    """Two nodes, and a coordinator where there is one, each a process with its own folder."""

    def __init__(self, control: str, folder: Path) -> None:
        self._control = control
        self._folder = folder
        folder.mkdir(parents=True)
        names = ["A", "B", *([COORDINATOR] if control == "coordinator" else [])]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._hold_seconds = HOLD_SECONDS
        self.jobs: dict[str, ForkedJob] = {}
        self.change(COSTS[-1])

    def start(self, name: str) -> None:
        """Start a process on what the one before has left."""
        arguments = [name, self._control, str(self._folder), self._ports, self._hold_seconds / 2]
        self.jobs[name] = ForkedJob(run_agent, arguments, self._folder / f"{name}.txt")

    def change(self, cost: float) -> None:
        """From now on B finds that its first operator costs so much."""
        write_atomically(self._folder / "cost", str(cost))

    def hold(self, name: str) -> bool:
        """Stop a process for longer than every time-out; whether A then forgets a B that is silent, under D-FIT."""
        with self.jobs[name].held("driver"):
            time.sleep(self._hold_seconds)
            forgets = (name, self._control) == ("B", "dfit")
            return not forgets or until(partial(self.shed_well, CONFIGURED_COST), HEAL_SECONDS)

    def shed_well(self, cost: float, *, other: float | None = None) -> bool:
        """Whether what A would keep now is as good as can be; and would not be if b1 cost `other`."""
        with suppress(OSError, ValueError):
            keeps = json.loads((self._folder / "A.keeps").read_text(encoding="utf-8"))
            return sheds_well(keeps, cost) and (other is None or not sheds_well(keeps, other))
        return False

    def __enter__(self) -> AgentProcesses:
        for name in self._ports:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.jobs.values():
            job.end()


def run_agent(name: str, control: str, folder: str, ports: Mapping[str, int], forget_seconds: float) -> None:
    """The body of a process: a node that measures and plans, or the coordinator."""
    network, root = parse_network(NETWORK), Path(folder)
    urls = {peer: f"http://127.0.0.1:{port}" for peer, port in ports.items()}
    with ExitStack() as stack:
        plane: ControlPlane[Any] | None = None
        if name == COORDINATOR:
            coordinator = make_coordinator(network, SECURITY, urls, root / name)
            routes, start = coordinator.routes(), coordinator.start
        else:
            if control == "dfit":
                agent = DFit(ClusterTopology(network), name, DFitSettings(forget_after_seconds=forget_seconds))
                plane = ControlPlane(agent, urls, SECURITY, root / name)
            else:
                plane = make_control_plane(control, network, name, SECURITY, urls, root / name)
            routes, start = plane.routes(), plane.start
        stack.enter_context(HttpServer(routes, port=ports[name], security=SECURITY))
        start()
        parent = os.getppid()
        while os.getppid() == parent:
            if plane is not None:
                _measure(plane, name, root)
            time.sleep(TICK_SECONDS)


def _measure(plane: ControlPlane[Any], name: str, root: Path) -> None:
    inputs = dict(RATES) if name == "A" else dict.fromkeys(plane.planner.network.streams, 0.5)
    cost = float((root / "cost").read_text(encoding="utf-8"))
    plane.observe(inputs, {"b1": cost} if name == "B" else {}, PROCESS_CLOCK.now())
    write_atomically(root / f"{name}.keeps", json.dumps(dict(plane.planner.plan(inputs).keeps)))
