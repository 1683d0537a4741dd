"""Clocks that are set, drift, and go back over a restart: on the agents of a network, on a simulated time.

Every agent has a wall clock of its own, which is set by up to a day and drifts, and a monotonic one. After every event
the rates change; within some seconds of true time the coordinator must have heard the new ones from every node, and
every node must have the plan that they lead to. Agents restart with a clock that was set since, some without a memory.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from typing import Any

from floodway.agent.planes.agent import Agent
from floodway.agent.planes.coordinated import CoordinatedNode
from floodway.agent.planes.coordinator import Coordinator
from floodway.agent.planes.dfit.own import UNMEASURED
from floodway.agent.wire.messages import COORDINATOR, AnyMessage, decode, encode
from floodway.experiments.chaos.plane_agents import NETWORK
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.job.clocks import SteadyClock
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.network.part import node_part

STEPS_SECONDS = (1.0, 60.0, 3600.0, 86_400.0)
MOST_DRIFT_PPM = 50_000
EPOCH = 1_700_000_000.0
TICK_SECONDS = 0.1
HEARD_SECONDS = 20.0


def all_steps(rng: random.Random, count: int) -> list[float]:
    """Every step in both directions, in an order by chance, before any comes again."""
    found: list[float] = []
    while len(found) < count:
        every = [sign * step for sign, step in product((-1, 1), STEPS_SECONDS)]
        found += rng.sample(every, len(every))
    return found[:count]


class MachineClocks:
    """The clocks of one machine, on a true time that everybody shares."""

    def __init__(self, now: list[float], rng: random.Random) -> None:
        self._now = now
        self._drift = rng.uniform(-5e-4, 5e-4)
        self.ahead = rng.choice((0.0, *STEPS_SECONDS)) * rng.choice((-1, 1))
        self.clock = self.started()

    def wall(self) -> float:
        """What its wall clock shows."""
        return EPOCH + self._now[0] * (1 + self._drift) + self.ahead

    def started(self) -> SteadyClock:
        """The clock of a process that starts now."""
        self.clock = SteadyClock(self.wall, lambda: self._now[0])
        return self.clock


class ClockedAgents:
    """A coordinator and its nodes, with messages as bytes and no network between them."""

    def __init__(self, network: Network, rng: random.Random) -> None:
        self._network = network
        self._now = [0.0]
        self._coordinator = Agent(Coordinator(network))
        self._nodes = {node: Agent(CoordinatedNode(network, node)) for node in network.nodes}
        self.machines = {name: MachineClocks(self._now, rng) for name in (*network.nodes, COORDINATOR)}
        self.rates: Mapping[str, float] = {}

    def restart(self, name: str) -> None:
        """Start a process anew, with nothing but its clock."""
        self.machines[name].started()
        if name == COORDINATOR:
            self._coordinator = Agent(Coordinator(self._network))
        else:
            self._nodes[name] = Agent(CoordinatedNode(self._network, name))

    def agreed(self, seconds: float) -> bool:
        """Let time pass; whether all came to know the present rates and to have the plan for them."""
        for _ in range(round(seconds / TICK_SECONDS)):
            self._now[0] += TICK_SECONDS
            self._tick()
            if self._all_know():
                return True
        return False

    def _tick(self) -> None:
        for node, machine in self._nodes.items():
            here = {name: self.rates.get(name, 0.5) for name in node_part(self._network, node).streams}
            now = self.machines[node].clock.now()
            machine.observe(here, UNMEASURED, now)
            self._deliver(machine.tick(now))
        self._deliver(self._coordinator.tick(self.machines[COORDINATOR].clock.now()))

    def _deliver(self, messages: tuple[AnyMessage, ...]) -> None:
        for message in messages:
            found = decode(encode(message), network=self._network.name, receiver=message.receiver)
            answer = self._agent(message.receiver).hear(found, self.machines[message.receiver].clock.now())
            if answer is not None:
                back = decode(encode(answer), network=self._network.name, receiver=answer.receiver)
                self._agent(message.sender).hear(back, self.machines[message.sender].clock.now())

    def _agent(self, name: str) -> Agent[Any]:
        return self._coordinator if name == COORDINATOR else self._nodes[name]

    def _all_know(self) -> bool:
        state = self._coordinator.state
        heard = all(
            member.rates.get(name) == rate
            for node, member in state.members.items()
            for name, rate in self.rates.items()
            if name in node_part(self._network, node).streams
        )
        same = all(
            (machine.state.plan, machine.state.generation) == (state.plan, state.generation)
            for machine in self._nodes.values()
        )
        return heard and same and state.plan is not None


def faults(trial: Trial) -> FaultResult:
    """Steps and restarts one after the other."""
    result = FaultResult("agent-clocks")
    rng = trial.rng("clocks")
    agents = ClockedAgents(parse_network(NETWORK), rng)
    for number in range(trial.points):
        name = rng.choice(list(agents.machines))
        step = rng.choice((-1, 1)) * rng.choice(STEPS_SECONDS)
        restarts = rng.random() < 0.3
        trial.progress(number / trial.points, f"{name}: clock set by {step:g} s")
        agents.machines[name].ahead += step
        if restarts:
            agents.restart(name)
        agents.rates = {"s1": round(rng.uniform(0.1, 2.0), 6), "s2": round(rng.uniform(0.1, 2.0), 6)}
        if not agents.agreed(HEARD_SECONDS):
            after = f"{name}'s clock was set by {step:g} s{', with a restart' if restarts else ''}"
            result.differences.append(f"no agreement within {HEARD_SECONDS:g} s after {after}")
        result.tried += 1
    return result
