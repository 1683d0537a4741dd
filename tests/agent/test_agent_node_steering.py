"""Several nodes on a simulated clock: the mix, the place of the drops and the latency that real nodes should show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from floodway.agent.node.steering import NodeSteering
from floodway.agent.planes.plane import make_control_plane
from floodway.agent.wire.signing import Security
from floodway.experiments.on_spark.runs import uncoordinated
from floodway.job.options.options import JobOptions
from floodway.job.options.values import Target
from floodway.network.file import parse_network
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from floodway.planning.windows.window_drop import WindowShape
from floodway.spark.query.fragment_windows import drop_shapes, fragment_windows
from floodway.spark.query.fragments import fragments
from tests.agent.nodes import EQUAL_BRANCHES, EQUAL_WINDOWS, FIGURE1, THREE_NODES
from tests.agent.simulated_nodes import Outcome, simulate

RATES = {"s1": 100.0, "s2": 100.0}


def optimum(network: Network, outcome: Outcome) -> float:
    nodes = {name: replace(node, cpu=node.cpu * outcome.capacity[name]) for name, node in network.nodes.items()}
    return ExactPlanner(Program(replace(network, nodes=nodes))).plan(RATES).score


@pytest.mark.parametrize("kind", ["dfit", "coordinator"])
@pytest.mark.parametrize("slowness", [{}, {"B": 1.5}, {"A": 1.5}])
def test_coordinated_nodes_reach_the_optimum(tmp_path: Path, kind: str, slowness: dict[str, float]) -> None:
    network = parse_network(FIGURE1)
    found = simulate(network, kind, tmp_path, rates=RATES, slowness=slowness)
    score = sum(found.throughput.values())
    assert score >= 0.95 * optimum(network, found)
    assert found.link_loss < 0.05
    assert found.latency == pytest.approx(6.0, rel=0.2)


def test_nodes_alone_get_what_table_1_predicts(tmp_path: Path) -> None:
    network = parse_network(FIGURE1)
    found = simulate(network, "alone", tmp_path, rates=RATES)
    assert sum(found.throughput.values()) == pytest.approx(uncoordinated(network, RATES, found.capacity), rel=0.05)
    assert found.throughput["q2"] < 0.05 * found.throughput["q1"]


@pytest.mark.parametrize("kind", ["dfit", "coordinator"])
def test_three_nodes_shed_at_the_source(tmp_path: Path, kind: str) -> None:
    network = parse_network(THREE_NODES)
    found = simulate(network, kind, tmp_path, rates=RATES, target=9.0, seconds=160.0)
    assert sum(found.throughput.values()) >= 0.95 * optimum(network, found)
    assert found.link_loss < 0.05


def test_nodes_without_loss_limit_what_they_read_and_skip_at_the_streams_only(tmp_path: Path) -> None:
    network = parse_network(FIGURE1)
    for node in network.nodes:
        part = node_part(network, node)
        plane = make_control_plane("alone", network, node, Security(), {}, tmp_path / node)
        steering = NodeSteering(
            network, part, plane.planner, Target(6.0), JobOptions(lossless=True, max_age=60.0)
        ).steering
        waiting = dict.fromkeys(part.streams, 10_000.0)
        found = steering.decide(dict.fromkeys(part.streams, 1.0), waiting, "enforce", 0)
        assert found.decision.arcs == {} and found.plan.drops == {}
        admitted = {at: decided.limit for at, decided in found.decision.streams.items()}
        taken = {at: (limit or 0) / steering.period_seconds for at, limit in admitted.items()}
        assert len(taken) == len(part.streams)
        assert flows(part, taken).load[node] == pytest.approx(network.nodes[node].cpu, rel=0.02)
        ages = {at: decided.max_age_us for at, decided in found.decision.streams.items()}
        assert ages == {at: None if "->" in at else 60_000_000 for at in ages}


@pytest.mark.parametrize("kind", ["alone", "dfit"])
def test_the_node_at_the_head_chooses_for_windows_that_are_counted_below_it(tmp_path: Path, kind: str) -> None:
    network = parse_network(EQUAL_WINDOWS.format(first="A", second="B"))
    plane = make_control_plane(kind, network, "A", Security(), {}, tmp_path)
    windowed = dict.fromkeys(("s", "t"), WindowShape(10_000_000, 5_000_000))
    rates = {"s": 1000.0, "t": 1000.0}

    def keeps(shapes: dict[str, WindowShape]) -> list[float]:
        node = NodeSteering(network, node_part(network, "A"), plane.planner, Target(1.5), windowed=shapes)
        plan = node.steering.decide(rates, rates, "enforce", 0).plan
        return sorted(plan.keeps[name] for name in rates)

    assert keeps(windowed) == pytest.approx([0.0, 1.0], abs=0.05)
    assert sum(keeps({})) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("kind", ["alone", "dfit"])
def test_the_node_at_the_head_chooses_among_branches_that_are_counted_below_it(tmp_path: Path, kind: str) -> None:
    network = parse_network(EQUAL_BRANCHES.format(second="B"))
    part = node_part(network, "A")
    plane = make_control_plane(kind, network, "A", Security(), {}, tmp_path)
    own = {fragment.query: fragment for fragment in fragments(part, "A")}
    windowed = drop_shapes(fragment_windows(network, part, own, tmp_path, {}))
    rates = {"u": 1000.0}

    def sent(shapes: dict[str, WindowShape]) -> list[float]:
        node = NodeSteering(network, part, plane.planner, Target(1.5), windowed=shapes)
        plan = node.steering.decide(rates, rates, "enforce", 0).plan
        return sorted(plan.throughput[name] for name in ("ou->os", "ou->ot"))

    (low, high), even = sent(windowed), sent({})
    if kind == "alone":  # what A passes on is worth the same wherever it goes, and B's room is not known
        assert (low, high) == pytest.approx(even)
    else:
        assert low < 50.0 and high > 850.0
        assert sum(even) == pytest.approx(low + high, rel=0.05) and even[0] > 400.0
