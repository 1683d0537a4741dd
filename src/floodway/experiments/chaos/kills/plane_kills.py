"""Agents and a coordinator as processes with real sockets and journals, killed or held up while they agree on plans.

Under D-FIT and under a coordinator in turn. Node B finds its operator to cost something else at every point; right
after that a process is struck, so its messages and its journal are under way. Then A must come to shed as well as the
whole network can. A process that was killed starts with its journal; nobody else is restarted. Agents under D-FIT
forget a child after half of a stop: meanwhile the other sheds as the network file says.
"""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

from floodway.agent.wire.ports import free_ports
from floodway.experiments.chaos.kills.kills import SPARK_HOLD_SECONDS, points_of, until
from floodway.experiments.chaos.kills.processes import ForkedJob
from floodway.experiments.chaos.plane_agents import COSTS, HEAL_SECONDS, AgentProcesses, agent_names, run_agent
from floodway.experiments.chaos.result import FaultResult, Trial

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
    points = points_of(trial.rng(f"plane-kills {control}"), count, ["cost"], agent_names(control))
    with LocalAgents(control, trial.folder / control) as agents:
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


class LocalAgents(AgentProcesses):
    """The agents on this machine's own network."""

    def __init__(self, control: str, folder: Path) -> None:
        super().__init__(control, folder)
        ports = zip(self.names, free_ports(len(self.names)), strict=True)
        self._urls = {name: f"http://127.0.0.1:{port}" for name, port in ports}
        self._hold_seconds = HOLD_SECONDS

    def start(self, name: str) -> None:
        """See `AgentProcesses`; it forgets a child after half of a stop."""
        arguments = (name, self.control, str(self.folder), self._urls, self._hold_seconds / 2)
        self.jobs[name] = ForkedJob(run_agent, arguments, self.folder / f"{name}.txt")

    def hold(self, name: str) -> bool:
        """Stop a process for longer than every time-out; whether A then forgets a B that is silent, under D-FIT."""
        with self.jobs[name].held("driver"):
            time.sleep(self._hold_seconds)
            forgets = (name, self.control) == ("B", "dfit")
            return not forgets or until(partial(self.shed_well, CONFIGURED_COST), HEAL_SECONDS)
