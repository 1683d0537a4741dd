"""The shared strategy really gives valid networks with every feature in reach."""

from __future__ import annotations

import pytest
from hypothesis import Phase, find, given, settings

from floodway.network.flow import fixed_memory
from floodway.network.model import Network, OperatorKind
from tests.effort import tries
from tests.strategies import networks

QUICK = settings(max_examples=tries(500), deadline=None, derandomize=True, phases=[Phase.generate], database=None)


@settings(max_examples=tries(50), deadline=None, derandomize=True)
@given(networks(4, 8, 3))
def test_every_producer_is_read_and_memory_holds_the_join_windows(network: Network) -> None:
    assert all(network.consumers[name] for name in (*network.streams, *network.operators))
    for name, node in network.nodes.items():
        assert node.memory is None or node.memory >= fixed_memory(network, name)


@settings(max_examples=tries(30), deadline=None, derandomize=True)
@given(networks(splits=False))
def test_without_splits_nothing_is_read_twice(network: Network) -> None:
    assert network.drop_locations == tuple(network.streams)


@pytest.mark.parametrize("kind", list(OperatorKind))
def test_every_kind_of_operator_occurs(kind: OperatorKind) -> None:
    # find raises when no such network turns up; shrinking it would only take time.
    found = find(networks(), lambda net: any(op.kind is kind for op in net.operators.values()), settings=QUICK)
    assert kind in {op.kind for op in found.operators.values()}


def test_links_and_splits_occur() -> None:
    found = find(networks(), lambda net: bool(net.links) and len(net.drop_locations) > 2, settings=QUICK)
    assert found.links
