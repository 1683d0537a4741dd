"""Control planes as machines: a crash, a loss, a double or a delay at every step, and every pair of them.

The machines are the real ones, and so are the bytes between them; there is no thread, no socket and no file. A crash
brings an agent back with its journal, with the one of the beginning, or with none. Whatever happened, nobody ever holds
a plan without its rows, and once nothing happens any more all come to agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from floodway.agent.planes.agent import Agent, Machine
from floodway.agent.planes.coordinated import CoordinatedNode
from floodway.agent.planes.coordinator import Coordinator
from floodway.agent.planes.coordinator_state import WHOLE
from floodway.agent.planes.dfit.agent import DFit
from floodway.agent.planes.dfit.own import UNMEASURED, NodeMeasures
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.wire.messages import AnyMessage, decode, encode
from floodway.network.part import node_part
from tests.oracles.plan_checks import example

NETWORK = example("figure1")
TOPOLOGY = ClusterTopology(NETWORK)
RATES = {"s1": 1.0, "s2": 1.0}
STEPS = 5
ROUNDS = 6
ROUND_STEPS = 15
TICK_SECONDS = 0.6
RESTART_SECONDS = 0.2
MEASURED = {"B": NodeMeasures({"b1": 4.0}, {})}


@dataclass(frozen=True)
class Fault:
    """What happens before a step: to the message that would arrive next, or to an agent."""

    kind: str
    agent: str = ""


class World:
    """Agents, the messages under way between them, and a clock; one step is one delivery or one tick."""

    def __init__(self, machines: Iterable[Machine[Any]]) -> None:
        self.now = 1_000_000.0
        self.agents: dict[str, Agent[Any]] = {machine.name: Agent(machine) for machine in machines}
        self.under_way: deque[tuple[str, bytes, bool]] = deque()
        self._order = deque(self.agents)
        self._first = {name: self._journal(name) for name in self.agents}

    def suffer(self, fault: Fault) -> None:
        if fault.kind == "restart":
            self._restart(fault.agent, self._journal(fault.agent))
        elif fault.kind == "restart with the first journal":
            self._restart(fault.agent, self._first[fault.agent])
        elif fault.kind == "restart without a journal":
            self._restart(fault.agent, "")
        elif self.under_way:
            message = self.under_way.popleft()
            if fault.kind != "loss":
                self.under_way.append(message)  # behind all others
            if fault.kind == "double":
                self.under_way.appendleft(message)

    def step(self) -> None:
        if self.under_way:
            receiver, body, is_answer = self.under_way.popleft()
            message = decode(body, network=NETWORK.name, receiver=receiver)
            answer = self.agents[receiver].hear(message, self.now)
            if answer is not None and not is_answer:
                self._send(answer, is_answer=True)
            return
        self.now += TICK_SECONDS
        name = self._order[0]
        self._order.rotate(-1)
        agent = self.agents[name]
        if name in NETWORK.nodes:
            here = {at: RATES.get(at, 1.0) for at in node_part(NETWORK, name).streams}
            agent.observe(here, MEASURED.get(name, UNMEASURED), self.now)
        for sent in agent.tick(self.now):
            self._send(sent, is_answer=False)

    def _send(self, message: AnyMessage, *, is_answer: bool) -> None:
        if message.receiver in self.agents:
            self.under_way.append((message.receiver, encode(message), is_answer))

    def _journal(self, name: str) -> str:
        agent = self.agents[name]
        return agent.machine.to_journal(agent.state)

    def _restart(self, name: str, journal: str) -> None:
        self.now += RESTART_SECONDS  # versions and numbers grow with the clock
        machine = self.agents[name].machine
        self.agents[name] = Agent(machine, machine.from_journal(journal, self.now))


def coordinated() -> World:
    return World([CoordinatedNode(NETWORK, "A"), CoordinatedNode(NETWORK, "B"), Coordinator(NETWORK, lazy=True)])


def prepared() -> World:
    return World([CoordinatedNode(NETWORK, "A"), CoordinatedNode(NETWORK, "B"), Coordinator(NETWORK)])


def distributed() -> World:
    return World([DFit(TOPOLOGY, "A"), DFit(TOPOLOGY, "B")])


def sound(world: World) -> None:
    """What holds at every step: a node uses the row of the plan that it says it uses, or plans for itself."""
    for name in NETWORK.nodes:
        state = world.agents[name].state
        if isinstance(world.agents[name].machine, CoordinatedNode):
            assert state.row is None if state.plan in (None, WHOLE) else state.row.plan == state.plan


def coordinated_agree(world: World) -> bool:
    """Every node has the plan in force, the coordinator knows so, and it was made for what the nodes measure."""
    chief = world.agents["coordinator"].state
    states = {name: world.agents[name].state for name in NETWORK.nodes}
    return chief.plan is not None and all(
        (state.plan, state.generation) == (chief.plan, chief.generation)
        and state.row == chief.rows[chief.plan][name]
        and chief.told[name].acked
        and chief.planned[name] == MEASURED.get(name, UNMEASURED)
        for name, state in states.items()
    )


def distributed_agree(world: World) -> bool:
    """The node above plans with the table that the node below has made of what it measures."""
    above, below = world.agents["A"].state, world.agents["B"].state
    held, own = above.children[0].table, below.own.table
    return (
        below.pushed is not None
        and below.pushed is below.acked
        and below.planned["B"] == MEASURED["B"]
        and np.array_equal(held.rates, own.rates)
        and np.allclose(held.scores, own.scores, rtol=1e-3, atol=1e-9)
        and np.allclose(above.own.children[0].scores, held.scores, rtol=1e-3, atol=1e-9)
        and np.array_equal(below.reach, above.own.reach[0])
    )


PLANES: Mapping[str, tuple[Callable[[], World], Callable[[World], bool]]] = {
    "coordinated": (coordinated, coordinated_agree),
    "distributed": (distributed, distributed_agree),
}


def every_fault(world: World) -> list[Fault]:
    kinds = ("restart", "restart with the first journal", "restart without a journal")
    to_messages = [Fault(kind) for kind in ("loss", "double", "delay")]
    return to_messages + [Fault(kind, name) for kind, name in product(kinds, world.agents)]


SOME = 5
"""Of so many pairs one is tried without `--run-slow`; every kind of fault still meets every other."""
Place = tuple[int, Fault]


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("every", [SOME, pytest.param(1, marks=pytest.mark.slow)])
def test_after_any_two_faults_at_any_steps_all_agree(plane: str, every: int) -> None:
    make, agree = PLANES[plane]
    places = list(product(range(STEPS), every_fault(make())))
    pairs = list(combinations(places, 2))
    assert kinds_of(pairs[::every]) == kinds_of(pairs)
    for schedule in [(), *((one,) for one in places), *pairs[::every]]:
        world = make()
        for number in range(STEPS):
            for place, fault in schedule:
                if place == number:
                    world.suffer(fault)
            world.step()
            sound(world)
        assert any(settled(world, agree) for _ in range(ROUNDS)), schedule


def test_after_a_fault_at_any_step_nodes_agree_on_a_plan_made_in_advance() -> None:
    # Every run makes and uploads a whole table, so each fault comes at every seventh step, in turn.
    for place, fault in list(product(range(STEPS), every_fault(prepared())))[::7]:
        world = prepared()
        for number in range(STEPS):
            if place == number:
                world.suffer(fault)
            world.step()
            sound(world)
        assert any(settled(world, coordinated_agree) for _ in range(ROUNDS)), (place, fault)
        assert world.agents["A"].state.plan.startswith("cell-")


def kinds_of(pairs: Iterable[tuple[Place, Place]]) -> set[tuple[str, str]]:
    return {(one.kind, other.kind) for (_, one), (_, other) in pairs}


def settled(world: World, agree: Callable[[World], bool]) -> bool:
    """Some steps without a fault; whether all agree then."""
    for _ in range(ROUND_STEPS):
        world.step()
    sound(world)
    return agree(world)
