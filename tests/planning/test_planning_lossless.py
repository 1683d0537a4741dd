"""Loss-free overload: the share that is admitted, and when a backlog is gone, against a step-by-step count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.network.file import parse_network
from floodway.network.flow import flows
from floodway.planning.lossless import admitted_share, catch_up_seconds, fitting_rate

NETWORK = parse_network("""
version: 1
name: two
streams: {a: {max_rate: 1000}, b: {max_rate: 1000}}
nodes: {A: {cpu: 1.0}, B: {cpu: 2.0}}
operators:
  one: {node: A, from: a, cost: 0.01, selectivity: 0.5}
  two: {node: A, from: b, cost: 0.002}
  far: {node: B, from: one, cost: 0.05}
outputs: {q: {from: far}, r: {from: two}}
""")
rates = st.floats(0.0, 2000.0)


@given(rates, rates, st.floats(0.1, 3.0))
def test_what_is_admitted_fits_and_more_would_not(a: float, b: float, scale: float) -> None:
    demand = {"a": a, "b": b}
    share = admitted_share(NETWORK, NETWORK.nodes, demand, scale)
    load = flows(NETWORK, {name: share * rate for name, rate in demand.items()}).load
    assert all(load[name] <= node.cpu * scale + 1e-9 for name, node in NETWORK.nodes.items())
    if share < 1.0:
        assert any(load[name] == pytest.approx(node.cpu * scale) for name, node in NETWORK.nodes.items())


def test_a_stream_alone_fits_up_to_the_node_that_it_fills_first() -> None:
    assert fitting_rate(NETWORK, NETWORK.nodes, "a", 1.0) == pytest.approx(2.0 / 0.025)
    assert fitting_rate(NETWORK, ["A"], "a", 0.5) == pytest.approx(0.5 / 0.01)
    assert fitting_rate(NETWORK, ["B"], "b", 1.0) is None


def test_a_backlog_is_gone_when_it_was_said() -> None:
    waiting, arriving = {"a": 3000.0, "b": 1500.0}, {"a": 20.0, "b": 10.0}
    found = catch_up_seconds(NETWORK, ["A"], waiting, arriving, 1.0)
    assert found is not None
    work = flows(NETWORK, waiting).load["A"]
    for _ in range(round(found * 100)):
        work += 0.01 * (flows(NETWORK, arriving).load["A"] - 1.0)
    assert work == pytest.approx(0.0, abs=0.02)
    assert catch_up_seconds(NETWORK, ["A", "B"], waiting, {"a": 90.0, "b": 0.0}, 1.0) is None
    assert catch_up_seconds(NETWORK, ["A"], {"a": 0.0, "b": 0.0}, {"a": 5000.0, "b": 0.0}, 1.0) == 0.0
