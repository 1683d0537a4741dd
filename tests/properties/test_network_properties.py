"""Properties of network files and of the fair scheduler on random networks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.network.fair import fair, water_fill
from floodway.network.file import network_to_json, network_to_yaml, parse_network
from floodway.network.flow import flows, max_feasible_rates
from floodway.network.model import Arc, Network
from tests.effort import tries
from tests.strategies import hundredths, keeps_for, networks, rates_for

CHECKED = settings(max_examples=tries(60), deadline=None, derandomize=True)
ALMOST = 1e-9


@CHECKED
@given(networks(4, 10, 4, stream_outputs=True, node_cycles=True))
def test_a_network_written_out_reads_back_equal(network: Network) -> None:
    assert parse_network(network_to_yaml(network)) == network
    assert parse_network(network_to_json(network)) == network


@CHECKED
@given(st.data(), networks(3, 8, 3, node_cycles=True))
def test_fair_serves_no_more_than_arrives_nor_than_there_is(data: st.DataObject, network: Network) -> None:
    rates = data.draw(rates_for(network))
    keeps = data.draw(keeps_for(network))
    result = fair(network, rates, keeps)
    offered = flows(network, rates, keeps)
    for node, served in result.served.items():
        assert served.keys() == result.arriving[node].keys()
        assert all(0 <= rate <= result.arriving[node][name] + ALMOST for name, rate in served.items())
    used, emitted = _work(network, result.served, keeps)
    for rates_out in result.node_throughput.values():
        for name, rate in rates_out.items():
            assert rate == pytest.approx(emitted[name], abs=ALMOST)
    for node, entry in network.nodes.items():
        assert used[node] <= entry.cpu + ALMOST
        # Work-conserving: a node that is asked for more than it has is busy all the time.
        assert used[node] == pytest.approx(min(result.load[node], entry.cpu), abs=ALMOST)
    for name, rate in result.throughput.items():
        assert rate <= offered.throughput[name] + ALMOST


@CHECKED
@given(st.data(), networks(3, 8, 3))
def test_fair_equals_plain_flows_when_nothing_is_overloaded(data: st.DataObject, network: Network) -> None:
    limits = max_feasible_rates(network)
    parts = data.draw(st.lists(hundredths(0, 100), min_size=len(limits), max_size=len(limits)))
    rates = {
        name: min(limit, 10.0) * part / len(limits) for (name, limit), part in zip(limits.items(), parts, strict=True)
    }
    result = fair(network, rates)
    plain = flows(network, rates)
    assert result.load == pytest.approx(plain.load, abs=ALMOST)
    assert result.throughput == pytest.approx(plain.throughput, abs=ALMOST)
    assert result.arc == pytest.approx(plain.arc, abs=ALMOST)
    assert result.score == pytest.approx(plain.score, abs=ALMOST)


@CHECKED
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(hundredths(0, 500), hundredths(0, 300))),
    hundredths(1, 500),
)
def test_water_filling_is_max_min_fair(inputs: dict[str, tuple[float, float]], capacity: float) -> None:
    arriving = {name: rate for name, (rate, _) in inputs.items()}
    cost = {name: each for name, (_, each) in inputs.items()}
    served = water_fill(arriving, cost, capacity)
    cut = [rate for name, rate in served.items() if rate < arriving[name] - ALMOST]
    used = sum(cost[name] * rate for name, rate in served.items())
    assert used <= capacity + ALMOST
    if cut:
        assert used == pytest.approx(capacity)
        # Who is cut gets the same as the others who are cut, and nobody who costs anything gets more.
        assert max(cut) == pytest.approx(min(cut))
        assert all(served[name] <= min(cut) + ALMOST for name in served if cost[name] > 0)


def _work(
    network: Network, served: Mapping[str, Mapping[str, float]], keeps: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """CPU-seconds/s spent on each node and tuples/s emitted, operator by operator from the served rates."""
    used = dict.fromkeys(network.nodes, 0.0)
    emitted: dict[str, float] = {}
    for name in network.order:
        operator = network.operators[name]
        emitted[name] = 0.0
        for producer in operator.inputs:
            rate = _arc_rate(network, Arc(producer, name), served, emitted, keeps)
            used[operator.node] += (operator.cost or 0.0) * rate
            emitted[name] += network.contribution(operator, producer) * rate
    return used, emitted


def _arc_rate(
    network: Network,
    arc: Arc,
    served: Mapping[str, Mapping[str, float]],
    emitted: Mapping[str, float],
    keeps: Mapping[str, float],
) -> float:
    node = network.operators[arc.consumer].node
    keep = keeps.get(str(arc), 1.0)
    if network.node_of(arc.producer) == node:
        return emitted[arc.producer] * keep
    # Served tuples passed the mildest drop of the arcs that enter this node; the others thin them out further.
    mildest = max(
        keeps.get(str(Arc(arc.producer, consumer)), 1.0)
        for consumer in network.consumers[arc.producer]
        if network.node_of(consumer) == node
    )
    return served[node][arc.producer] * keep / mildest if mildest > 0 else 0.0
