"""Tuples through operators and their selectivities, from the counts at sources, branches and sinks."""

from __future__ import annotations

import pytest

from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.planning.selectivities import SelectivityRefiner, tuples_through

SPLIT = parse_network("""
version: 1
streams: {s: {max_rate: 100}, t: {max_rate: 100}}
nodes: {A: {cpu: 1}}
operators:
  parse: {node: A, from: s, cost: 1}
  only: {node: A, from: parse, kind: filter, cost: 1, selectivity: 0.5}
  left: {node: A, from: only, cost: 1}
  right: {node: A, from: only, cost: 1}
  both: {node: A, from: [right, t], kind: union, cost: 1}
outputs: {q1: {from: left}, q2: {from: both}}
""")
ALL = ["parse", "only", "left", "right", "both"]


def learned(network: Network, entered: dict[str, float], emitted: dict[str, float]) -> dict[str, float]:
    refiner = SelectivityRefiner(network)
    for _ in range(3):
        refiner.observe(entered, emitted, ALL)
    return refiner.selectivities()


def test_counts_follow_the_selectivities_where_nothing_was_counted() -> None:
    counts = tuples_through(SPLIT, {"s": 1000, "t": 10}, {}, ALL)
    assert counts == {"parse": 1000, "only": 1000, "left": 500, "right": 500, "both": 510}


def test_counts_at_branches_and_sinks_win_over_the_selectivities() -> None:
    entered = {"s": 1000.0, "t": 10.0, "only->left": 150.0, "only->right": 300.0}
    counts = tuples_through(SPLIT, entered, {"only": 300.0, "right": 290.0}, ALL)
    assert counts == {"parse": 1000, "only": 1000, "left": 150, "right": 300, "both": 300}


def test_operators_outside_the_fragment_are_not_counted() -> None:
    assert tuples_through(SPLIT, {"only->left": 20.0}, {}, ["left"]) == {"left": 20.0}


def test_a_filter_takes_the_whole_correction_from_the_map_before_it() -> None:
    found = learned(SPLIT, {"s": 1000, "t": 0, "only->left": 200, "only->right": 200}, {"only": 200})
    assert found["only"] == pytest.approx(0.2) and found["parse"] == 1.0


def test_a_merge_and_what_was_not_counted_keep_theirs() -> None:
    found = learned(SPLIT, {"s": 1000, "t": 500}, {"both": 100})
    assert found == {"parse": 1.0, "only": 0.5, "left": 1.0, "right": 1.0, "both": 1.0}


def test_nothing_came_out() -> None:
    assert learned(SPLIT, {"s": 1000, "t": 0}, {"only": 0})["only"] == 0.0


def test_a_handful_of_tuples_proves_nothing() -> None:
    assert learned(SPLIT, {"s": 10, "t": 0}, {"only": 0})["only"] == 0.5


def test_two_that_can_change_counts_share_the_correction() -> None:
    network = parse_network("""
version: 1
streams: {s: {max_rate: 100}}
nodes: {A: {cpu: 1}}
operators:
  parse: {node: A, from: s, kind: filter, cost: 1, selectivity: 0.8}
  only: {node: A, from: parse, kind: filter, cost: 1, selectivity: 0.2}
outputs: {q: {from: only}}
""")
    found = learned(network, {"s": 1000}, {"only": 40})
    assert found["parse"] * found["only"] == pytest.approx(0.04)
    assert found["parse"] / found["only"] == pytest.approx(4.0)
