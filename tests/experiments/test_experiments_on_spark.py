"""Results on Spark: what their networks promise, that their criteria can fail; all of them run when slow tests do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from floodway.agent.loop.sizes import MeasuredSizes
from floodway.experiments.on_spark import examples
from floodway.experiments.on_spark.runs import NetworkRun, NodesRun, uncoordinated
from floodway.experiments.registry import EXPERIMENTS, LONG, load
from floodway.experiments.result import Criterion
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from floodway.spark.log import LogWriter, create_log
from floodway.spark.query.layout import RunLayout

IN_ONE = [examples.SPLIT, examples.UNION, examples.JOIN, examples.WINDOWS]
BY_NODES = [examples.TABLE1, examples.TREE, examples.DIAMOND]
ON_SPARK = [name for name in EXPERIMENTS if "spark" in name or name == "federation-fig13"]
SECOND = 1_000_000
KEYS = [1] * 40


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


def windows(root: Path, counts: dict[int, int]) -> list[Criterion]:
    """The criteria for a stream of a tuple a second for 40 s and these counts by window start in seconds."""
    network, layout = parse_network(examples.WINDOWS.text), RunLayout(root)
    stamp = pa.timestamp("us", tz="UTC")
    for path, schema, columns in (
        (
            layout.stream(network, "s"),
            "key int, event_time timestamp",
            {"key": KEYS, "event_time": range(100, 140)},
        ),
        (
            layout.output(network, "q"),
            "event_time timestamp, key int, count bigint",
            {"event_time": counts.keys(), "key": [1] * len(counts), "count": counts.values()},
        ),
    ):
        create_log(path, schema)
        times = pa.array([second * SECOND for second in columns.pop("event_time")], pa.int64()).cast(stamp)
        kinds = {"key": pa.int32(), "count": pa.int64()}
        others = {name: pa.array(list(values), kinds[name]) for name, values in columns.items()}
        with LogWriter(path) as writer:
            table = pa.table({"event_time": times, **others})
            writer.append(table.select([part.split()[0] for part in schema.split(", ")]))
    return list(examples._subset(cast(Any, None), network, layout))


@pytest.mark.parametrize(
    ("counts", "met"),
    [
        ({105: 10, 115: 10}, [True, True]),
        ({105: 10, 115: 9}, [False, True]),
        ({95: 5, 100: 10, 105: 10, 110: 10}, [True, False]),
        ({}, [False, False]),
    ],
    ids=["a subset", "a window that lacks a tuple", "nothing dropped", "nothing at all"],
)
def test_windows_are_compared_with_those_of_the_whole_stream(
    tmp_path: Path, counts: dict[int, int], met: list[bool]
) -> None:
    assert [one.met for one in windows(tmp_path, counts)] == met


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", [name for name in ON_SPARK if name != "federation-fig13"])
def test_it_runs_and_its_accounts_agree(name: str) -> None:
    """Whether the claim holds is for `floodway reproduce` to say: that depends on what else the machine does."""
    result = load(name).run(seeds=[1], trace=None, progress=lambda share: None)
    print(result.id, result.holds, result.headline, result.reason)
    assert result.where == "spark" and result.criteria and not result.failed
    assert all(one.met for one in result.criteria if one.text.startswith("something was dropped"))


@pytest.mark.parametrize(
    ("example", "sizes", "figures"),
    [
        (examples.BANDWIDTH, MeasuredSizes({"wide": 560.0, "thin": 60.0}), ("bandwidth", "A->B", 248e3, 130e3)),
        (examples.MEMORY, MeasuredSizes({}, {"count": 600.0}), ("memory", "A", 2.4e6, 1e6)),
    ],
    ids=["bandwidth", "memory"],
)
def test_by_declared_sizes_nothing_would_be_dropped_and_the_result_would_not_hold(
    example: NetworkRun, sizes: MeasuredSizes, figures: tuple[str, str, float, float], tmp_path: Path
) -> None:
    network = parse_network(example.text)
    assert not ExactPlanner(Program(network)).plan(example.rates).overloaded
    assert ExactPlanner(Program(sizes.applied(network))).plan(example.rates).keeps["s1"] < 0.7
    kind, name, unlimited, full = figures
    for value, met in ((unlimited, False), (full, True), (full / 2, False)):
        report = SimpleNamespace(**{"load": {"A": 0.1, "B": 0.1}, kind: {name: value}})
        (first, *_) = example.check(cast(Any, report), network, RunLayout(tmp_path))
        assert first.met == met, value
