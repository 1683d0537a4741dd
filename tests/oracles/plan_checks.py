"""What must hold for any plan of any planner, checked with the flow arithmetic of the network alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from floodway.network.file import load_network
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.planning.plan import Plan

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"


def example(name: str) -> Network:
    """A network of `examples/networks`."""
    return load_network(EXAMPLES / f"{name}.yaml")


def check_plan(network: Network, rates: Mapping[str, float], plan: Plan, *, cpu: float = 1.0) -> None:
    """Keeps are in [0, 1], the plan's numbers follow from them, and no resource is overdrawn."""
    assert set(plan.keeps) == set(network.drop_locations)
    assert all(0.0 <= keep <= 1.0 for keep in plan.keeps.values()), plan.keeps
    flow = flows(network, rates, plan.keeps)
    assert flow.score == plan.score and flow.load == plan.load and flow.throughput == plan.throughput
    slack = 1 + 1e-6
    for name, node in network.nodes.items():
        assert flow.load[name] <= node.cpu * cpu * slack, (name, flow.load[name], node.cpu)
        if node.memory is not None:
            assert flow.memory[name] <= node.memory * slack, name
    for link in network.links:
        assert flow.bandwidth[link.source, link.target] <= link.bandwidth * slack, link


def hard_rates(network: Network, seed: int, count: int = 12) -> Iterator[dict[str, float]]:
    """Rates where planners go wrong: on and close to axes, tiny, huge, at and above the maximum."""
    generator = np.random.default_rng(seed)
    tops = np.array([stream.max_rate or 1.0 for stream in network.streams.values()])
    names = list(network.streams)
    for _ in range(count):
        scale = generator.choice([0.0, 1e-9, 1e-4, 0.01, 0.5, 1.0, 1.0, 3.0, 1e4], len(tops))
        rates = tops * scale * generator.choice([1.0, float(generator.uniform(0.5, 1.0))], len(tops))
        yield dict(zip(names, rates.tolist(), strict=True))
