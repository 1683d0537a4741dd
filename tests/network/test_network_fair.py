"""The fair scheduler: Table 1 of the papers, links, drops within nodes, and nodes that feed each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.network.fair import fair
from floodway.network.file import load_network, parse_network

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"

# Plan, rates kept, then load and throughput of A and of B.
TABLE_1 = [
    (0, (1, 1), 3, (1 / 3, 1 / 3), 4 / 3, (1 / 4, 1 / 4)),
    (1, (1 / 3, 1 / 3), 1, (1 / 3, 1 / 3), 4 / 3, (1 / 4, 1 / 4)),
    (2, (1, 0), 1, (1, 0), 3, (1 / 3, 0)),
    (3, (0, 1 / 2), 1, (0, 1 / 2), 1 / 2, (0, 1 / 2)),
    (4, (1 / 5, 2 / 5), 1, (1 / 5, 2 / 5), 1, (1 / 5, 2 / 5)),
]


@pytest.mark.parametrize(("plan", "kept", "load_a", "out_a", "load_b", "out_b"), TABLE_1)
def test_table_1(
    plan: int,
    kept: tuple[float, float],
    load_a: float,
    out_a: tuple[float, float],
    load_b: float,
    out_b: tuple[float, float],
) -> None:
    network = load_network(EXAMPLES / "figure1.yaml")
    by_keep = fair(network, {"s1": 1.0, "s2": 1.0}, {"s1": kept[0], "s2": kept[1]})
    by_rate = fair(network, {"s1": kept[0], "s2": kept[1]})
    for result in (by_keep, by_rate):
        assert result.load == pytest.approx({"A": load_a, "B": load_b}, rel=1e-12, abs=1e-12), f"plan {plan}"
        assert result.node_throughput["A"] == pytest.approx({"a1": out_a[0], "a2": out_a[1]}, rel=1e-12, abs=1e-12)
        assert result.node_throughput["B"] == pytest.approx({"b1": out_b[0], "b2": out_b[1]}, rel=1e-12, abs=1e-12)
        assert result.throughput == pytest.approx({"q1": out_b[0], "q2": out_b[1]}, rel=1e-12, abs=1e-12)
        assert result.score == pytest.approx(sum(out_b), rel=1e-12, abs=1e-12)


def test_selectivity_counts_in_the_score() -> None:
    result = fair(load_network(EXAMPLES / "figure1-short.yaml"), {"s1": 0.2, "s2": 0.4})
    assert result.throughput == pytest.approx({"q1": 0.1, "q2": 0.4})


def test_the_split_network_of_the_papers() -> None:
    network = load_network(EXAMPLES / "split.yaml")
    shed = fair(network, {"s": 0.2}, {"shared->bottom": 0.4})
    assert shed.load["A"] == pytest.approx(1.0)
    assert shed.score == pytest.approx(0.28)
    unshed = fair(network, {"s": 0.2})
    assert unshed.load["A"] == pytest.approx(1.6)
    assert unshed.served["A"] == pytest.approx({"s": 1 / 8})
    assert unshed.score == pytest.approx(0.25)


def test_a_join_costs_and_emits_by_its_windows() -> None:
    network = load_network(EXAMPLES / "merge-join.yaml")
    result = fair(network, {"s1": 0.4, "s2": 0.2})
    # o1 emits 0.2, o2 0.2; the join emits 0.05 * (0.2 * 20 + 0.2 * 10) = 0.3.
    assert result.throughput["q"] == pytest.approx(0.3)
    assert result.load["A"] == pytest.approx(0.4 * 0.5 + 0.2 * 0.25 + 0.4 * 0.5 + 0.3 * 0.1)


def test_a_link_limits_what_crosses_fairly() -> None:
    network = load_network(EXAMPLES / "bandwidth-memory.yaml")
    result = fair(network, {"sensors": 10.0, "events": 10.0})
    # A clean tuple crosses twice (80 bytes), a parse tuple once (60 bytes): 400 / 140 of both per second.
    assert result.link_load["edge", "core"] == pytest.approx(8 * 80 + 10 * 60)
    assert result.arriving["core"] == pytest.approx({"clean": 400 / 140, "parse": 400 / 140})


def test_drops_on_arcs_into_one_node_act_branch_by_branch() -> None:
    text = """
    version: 1
    streams: {s: {}}
    nodes: {A: {cpu: 10}}
    operators:
      x: {node: A, from: s, cost: 1}
      y: {node: A, from: s, cost: 1}
    outputs: {q: {from: x}, p: {from: y}}
    """
    network = parse_network(text)
    result = fair(network, {"s": 1.0}, {"s->x": 0.25, "s->y": 0.5})
    assert result.throughput == pytest.approx({"q": 0.25, "p": 0.5})
    assert result.load["A"] == pytest.approx(0.75)
    assert fair(network, {"s": 1.0}, {"s->x": 0.0, "s->y": 0.0}).score == 0.0


def test_nodes_that_feed_each_other_settle_on_a_consistent_answer() -> None:
    # What A serves comes back from B as dear work: an undamped iteration swings between two wrong answers.
    text = """
    version: 1
    streams: {s: {}}
    nodes: {A: {cpu: 1}, B: {cpu: 100}}
    operators:
      first: {node: A, from: s, cost: 1}
      there: {node: B, from: first, cost: 1, selectivity: 0.9}
      back: {node: A, from: there, cost: 10}
    outputs: {q: {from: back}}
    """
    result = fair(parse_network(text), {"s": 5.0})
    # s is served at L with L + 10 * 0.9 L = 1, and all that returns is served, as it stays below the level.
    assert result.served["A"] == pytest.approx({"s": 0.1, "there": 0.09}, rel=1e-9)
    assert result.throughput["q"] == pytest.approx(0.09, rel=1e-9)


def test_free_inputs_are_served_in_full() -> None:
    text = """
    version: 1
    streams: {s: {}, t: {}}
    nodes: {A: {cpu: 1}}
    operators:
      free: {node: A, from: s, cost: 0}
      dear: {node: A, from: t, cost: 2}
    outputs: {q: {from: free}, p: {from: dear}}
    """
    assert fair(parse_network(text), {"s": 9.0, "t": 9.0}).throughput == pytest.approx({"q": 9.0, "p": 0.5})
