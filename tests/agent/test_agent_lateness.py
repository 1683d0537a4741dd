"""How late outputs are, on its way to the nodes before: the law, the messages of all planes, what is forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.agent.loop.stages import stages
from floodway.agent.loop.steering_loop import fragments_of
from floodway.agent.planes.agent import Agent
from floodway.agent.planes.alone import Alone
from floodway.agent.planes.lateness import FORGET_SECONDS, LEAST_FACTOR, Lateness, outputs_below
from floodway.agent.planes.plane import ControlPlane, make_control_plane, make_coordinator
from floodway.agent.wire.messages import COORDINATOR, NodeStatistics, TablePush, decode, encode
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import Security
from floodway.network.file import parse_network
from floodway.network.model import Network
from tests.agent.nodes import THREE_NODES
from tests.oracles.plan_checks import example

THREE = parse_network(THREE_NODES)
TARGET = 6.0


def one(latency: float, now: float, before: Lateness | None = None, depth: int = 3) -> Lateness:
    return (before or Lateness()).measured({"q": latency}, target_seconds=TARGET, depth=depth, now_seconds=now)


@given(st.lists(st.floats(0.0, 1e4), max_size=40), st.integers(1, 20))
def test_a_factor_stays_a_share_and_falls_only_when_results_are_late(latencies: list[float], depth: int) -> None:
    lateness = Lateness()
    for number, latency in enumerate(latencies):
        before = lateness.factor({"q"}, float(number))
        lateness = one(latency, float(number), lateness, depth)
        after = lateness.factor({"q"}, float(number))
        assert LEAST_FACTOR <= after <= 1.0
        assert after <= before if latency > TARGET else after >= before


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_earlier_nodes_hurry_until_outputs_are_in_time_and_have_their_share_back_afterwards(depth: int) -> None:
    """Results take what the earlier nodes take, which follows the factor two batches a node later, and the rest."""
    lateness = Lateness()
    told = deque([1.0] * 2 * depth)
    early, rest = 0.6 * TARGET, 0.7 * TARGET  # late by 30% with whole shares
    seen = []
    for batch in range(400):
        if batch == 200:
            rest = 0.2 * TARGET
        latency = early * told.popleft() + rest
        lateness = one(latency, float(batch), lateness, depth)
        told.append(lateness.factor({"q"}, float(batch)))
        seen.append(latency / TARGET)
    assert seen[0] == pytest.approx(1.3)
    assert all(abs(ratio - 1.0) < 0.02 for ratio in seen[150:200])
    assert min(seen[:200]) > 0.85  # no swinging
    assert told[-1] == 1.0 and max(seen[200:]) < 1.0


def test_what_is_told_and_what_is_forgotten() -> None:
    late = one(12.0, 100.0)
    assert 0.0 < late.to_tell(100.0)["q"] < 1.0
    heard = Lateness().hear({"q": 0.5, "stranger": 0.1, "mine": 0.0}, {"q", "mine", "x"}, 100.0)
    assert heard.to_tell(101.0) == {"q": 0.5, "mine": LEAST_FACTOR} and heard.to_tell(101.0, own_only=True) == {}
    # That it is in time again is passed on too, for as long as somebody may still think otherwise.
    again = heard.hear({"q": 1.0, "x": 1.0}, {"q", "mine", "x"}, 110.0)
    assert again.to_tell(111.0) == {"q": 1.0, "mine": LEAST_FACTOR}
    assert again.factor({"q"}, 111.0) == 1.0 and again.hear({"q": 1.0}, {"q"}, 131.0).to_tell(131.0) == {}
    assert heard.factor({"q"}, 100.0 + FORGET_SECONDS) == 0.5
    assert heard.factor({"q"}, 100.1 + FORGET_SECONDS) == 1.0
    assert late.factor({"q"}, 100.1 + FORGET_SECONDS) == 1.0
    # A node that measures an output believes nobody else about it.
    assert late.hear({"q": 0.3}, {"q"}, 101.0) is late
    # After a long silence the law begins anew.
    assert one(6.0, 1000.0, late).factor({"q"}, 1000.0) == 1.0


def test_which_outputs_are_below() -> None:
    assert outputs_below(THREE, ["a1"]) == {"q1"} and outputs_below(THREE, ["a1", "a2"]) == {"q1", "q2"}
    assert outputs_below(THREE, ["c1", "c2"]) == frozenset()
    assert outputs_below(example("diamond"), example("diamond").order) == frozenset()


class Talk:
    """Agents of one network that exchange messages, as bytes, without a network between them."""

    def __init__(self, network: Network, kind: str, folder: Path) -> None:
        self.network = network
        self.planes: dict[str, ControlPlane[Any]] = {}
        for node in network.nodes:
            plane = make_control_plane(kind, network, node, Security(), {}, folder / node)
            self.planes[node] = plane
        self.machines: dict[str, Agent[Any]] = {name: plane.agent for name, plane in self.planes.items()}
        if kind == "coordinator":
            self.machines[COORDINATOR] = make_coordinator(network, Security(), {}, folder / COORDINATOR).agent
        self.places = stages(fragments_of(network))
        self.now = 1000.0
        self.silent: set[str] = set()

    def turns(self, seconds: float, latencies: Mapping[str, float] | None = None) -> None:
        """Let time pass, with a batch of results a second at every output that `latencies` names."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for node, plane in self.planes.items():
                if node not in self.silent:
                    self.results(node, latencies or {})
                    rates = dict.fromkeys(plane.planner.network.streams, 1.0)
                    plane.observe(rates, {}, self.now)
            for name, machine in self.machines.items():
                for message in machine.tick(self.now):
                    self.carry(name, message.receiver, encode(message))

    def results(self, node: str, latencies: Mapping[str, float]) -> None:
        owners = {name: self.network.node_of(out.source) for name, out in self.network.outputs.items()}
        own = {name: seconds for name, seconds in latencies.items() if owners[name] == node}
        if own and self.now % 1.0 == 0.0:
            depth = max(place.depth for place in self.places.values())
            self.planes[node].observe_results(own, TARGET, depth, self.now)

    def carry(self, sender: str, receiver: str, data: bytes) -> None:
        if {sender, receiver} & self.silent:
            return
        other = self.machines[receiver]
        answer = other.hear(decode(data, network=other.network, receiver=receiver), self.now)
        if answer is not None:
            self.machines[sender].hear(decode(encode(answer), network=other.network, receiver=sender), self.now)

    def factor(self, *operators: str) -> float:
        node = self.network.operators[operators[0]].node
        return self.planes[node].share_factor(operators, self.now)


@pytest.mark.parametrize("kind", ["dfit", "coordinator"])
def test_the_first_of_three_nodes_hears_from_the_last(kind: str, tmp_path: Path) -> None:
    talk = Talk(THREE, kind, tmp_path)
    talk.turns(20, {"q1": 3.0, "q2": 5.0})
    assert talk.factor("a1") == talk.factor("b1", "b2") == 1.0
    talk.turns(20, {"q1": 12.0, "q2": 5.0})
    assert talk.factor("a1") < 0.7 and talk.factor("b1") < 0.7
    assert talk.factor("a2") == talk.factor("b2") == 1.0  # each path for itself
    assert talk.factor("a1", "a2") == talk.factor("a1")
    assert talk.factor("c1") == 1.0  # its own controller sees to it
    assert talk.machines["A"].status(talk.now)["late"] == {"q1": round(talk.factor("a1"), 3)}
    talk.turns(60, {"q1": 3.0, "q2": 5.0})
    assert talk.factor("a1") == 1.0 and talk.machines["A"].status(talk.now)["late"] == {}


@pytest.mark.parametrize("kind", ["dfit", "coordinator"])
def test_a_node_that_falls_silent_is_forgotten(kind: str, tmp_path: Path) -> None:
    talk = Talk(THREE, kind, tmp_path)
    talk.turns(20, {"q1": 12.0})
    late = talk.factor("a1")
    assert late < 1.0
    talk.silent = {"C"}
    talk.turns(10)
    assert talk.factor("a1") == pytest.approx(late, rel=0.2) and talk.factor("a1") < 1.0
    talk.turns(4 * FORGET_SECONDS)
    assert talk.factor("a1") == 1.0


def test_members_of_a_cluster_hear_through_their_leader(tmp_path: Path) -> None:
    network = example("diamond")
    talk = Talk(network, "dfit", tmp_path)
    outputs = dict.fromkeys(network.outputs, 12.0)
    talk.turns(30, outputs)
    before = [name for name in network.order if outputs_below(network, [name])]
    nodes = {network.operators[name].node for name in before}
    assert len(nodes) >= 3
    assert all(talk.factor(name) < 1.0 for name in before)
    talk.turns(90, dict.fromkeys(network.outputs, 1.0))
    assert all(talk.factor(name) == 1.0 for name in before)
    # What comes back from where it went would never be forgotten.
    talk.turns(30, outputs)
    talk.turns(4 * FORGET_SECONDS)
    assert all(talk.factor(name) == 1.0 for name in before)


def test_a_refused_message_says_nothing(tmp_path: Path) -> None:
    talk = Talk(THREE, "dfit", tmp_path)
    lies = {"q1": 0.3}
    stranger = TablePush(network=THREE.name, sender="C", receiver="A", form="beat", version=1, late=lies)
    report = NodeStatistics(network=THREE.name, sender="C", receiver="A", number=1, rates={}, late=lies)
    for message in (stranger, report):
        with pytest.raises(RefusedError):
            talk.machines["A"].hear(message, talk.now)
    assert talk.factor("a1") == 1.0


def test_alone_hears_nothing(tmp_path: Path) -> None:
    alone = make_control_plane("alone", THREE, "A", Security(), {}, tmp_path)
    assert isinstance(alone.agent.machine, Alone)
    alone.observe_results({"q1": 99.0}, TARGET, 3, 0.0)
    assert alone.share_factor(["a1"], 0.0) == 1.0
