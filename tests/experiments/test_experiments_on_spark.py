"""Results on Spark: what their networks promise, that their criteria can fail; all of them run when slow tests do."""

from __future__ import annotations

from typing import Any, cast

import pytest

from floodway.agent.loop.sizes import MeasuredSizes
from floodway.experiments.on_spark import examples, window_examples
from floodway.experiments.on_spark.runs import NetworkRun, NodesRun, uncoordinated
from floodway.experiments.registry import EXPERIMENTS, LONG, load
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program

IN_ONE = [examples.SPLIT, examples.UNION, examples.JOIN, window_examples.DROP, window_examples.CHOICE]
BY_NODES = [examples.TABLE1, examples.TREE, examples.DIAMOND]
ON_SPARK = [name for name in EXPERIMENTS if "spark" in name or name == "federation-fig13"]


def most(network: Network) -> dict[str, float]:
    return {name: stream.max_rate or 0.0 for name, stream in network.streams.items()}


def test_at_least_ten_results_run_on_spark_and_all_of_them_only_when_asked_for() -> None:
    assert len(ON_SPARK) >= 10
    assert set(ON_SPARK) <= LONG


@pytest.mark.parametrize("example", [*IN_ONE, *BY_NODES], ids=lambda example: example.id)
def test_the_registry_knows_it_and_its_network_is_overloaded(example: NetworkRun | NodesRun) -> None:
    assert load(example.id) is cast(Any, example)
    network = parse_network(example.text)
    rates = (
        example.rates if isinstance(example, NetworkRun) else {n: s.max_rate or 0 for n, s in network.streams.items()}
    )
    assert ExactPlanner(Program(network)).plan(rates).overloaded


@pytest.mark.parametrize("example", BY_NODES, ids=lambda example: example.id)
def test_nodes_that_plan_alone_earn_less_by_more_than_is_asked_for(example: NodesRun) -> None:
    network = parse_network(example.text)
    rates = most(network)
    best = ExactPlanner(Program(network)).plan(rates).score
    alone = uncoordinated(network, rates, dict.fromkeys(network.nodes, 1.0))
    assert best >= 1.2 * example.gain * alone


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", [name for name in ON_SPARK if name != "federation-fig13"])
def test_it_runs_and_its_accounts_agree(name: str) -> None:
    """Whether the claim holds is for `floodway reproduce` to say: that depends on what else the machine does."""
    result = load(name).run(seeds=[1], trace=None, progress=lambda share: None)
    print(name, result.holds, result.headline, result.reason)
    assert result.where == "spark" and result.criteria and not result.failed
    assert all(one.met for one in result.criteria if one.text.startswith("something was dropped"))


@pytest.mark.parametrize(
    ("example", "sizes"),
    [
        (examples.BANDWIDTH, MeasuredSizes({"wide": 560.0, "thin": 60.0})),
        (examples.MEMORY, MeasuredSizes({}, {"count": 600.0})),
    ],
    ids=["bandwidth", "memory"],
)
def test_by_declared_sizes_nothing_would_be_dropped(example: NetworkRun, sizes: MeasuredSizes) -> None:
    network = parse_network(example.text)
    assert not ExactPlanner(Program(network)).plan(example.rates).overloaded
    assert ExactPlanner(Program(sizes.applied(network))).plan(example.rates).keeps["s1"] < 0.7
