"""Classes of queries under targets of their own, on a simulated clock: a batch takes P = a + work."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from floodway.agent.loop.classes import Classes, by_target, classes_of
from floodway.agent.loop.record import OutputLatencies
from floodway.agent.loop.runner import RunOptions, steerings
from floodway.agent.loop.steering import FragmentBatch, Steered
from floodway.agent.loop.steering_loop import fragments_of
from floodway.agent.node.node import NodeAgent
from floodway.agent.node.node_options import NodeOptions
from floodway.errors import InputError
from floodway.job.options.values import Target
from floodway.job.status.batches import Sketch
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.source.offsets import BatchOffset
from floodway.units import PPM

TWO = """
version: 1
name: two-classes
streams: {clicks: {max_rate: 4000}, orders: {max_rate: 4000}}
nodes: {A: {cpu: 1.0}, B: {cpu: 1.0}}
operators:
  alert: {node: A, from: clicks, cost: 0.001}
  sum: {node: B, from: orders, cost: 0.001}
outputs:
  alerts: {from: alert, latency: 2s}
  reports: {from: sum, latency: 8s}
"""
TICK, OVERHEAD, SLOWNESS = 0.1, 0.4, 1.3
"""A batch takes so many seconds more than its work, which takes so many times what the file says."""


@dataclass
class Query:
    """One query of a class: it takes all that waits of its stream, and drops as the decision says."""

    name: str
    stream: str
    taken: int = 0
    number: int = 0
    cut: float = 0.0
    under_way: tuple[float, int, int, float] | None = None
    latencies: list[tuple[float, float]] = field(default_factory=list)

    def turn(self, now: float, arrived: int, classes: Classes, steered: Steered) -> None:
        if self.under_way is not None and now >= self.under_way[0]:
            ends, offered, kept, came = self.under_way
            self.under_way = None
            latency = ends - came
            self.latencies.append((now, latency))
            classes.ended(self.name, ends - self.cut)
            batch = FragmentBatch(self.name, {self.stream: offered}, {self.stream: kept}, ends - self.cut, latency, {})
            classes.observe(now, batch, {"clicks": arrived, "orders": arrived})
        if self.under_way is None and arrived > self.taken:
            offered = arrived - self.taken
            kept = offered * steered.decision.keep_ppm(self.stream, waiting=offered) // PPM
            came, self.cut = (self.cut + now) / 2.0, now
            offset = BatchOffset(self.stream, {0: self.taken}, {0: arrived})
            classes.cut(self.name, JournaledBatch(self.number, round(now * 1e3), {self.stream: offset}), now)
            self.taken, self.number = arrived, self.number + 1
            self.under_way = now + OVERHEAD + SLOWNESS * 0.001 * kept, offered, kept, came

    def mean(self, since: float) -> float:
        found = [latency for time, latency in self.latencies if time >= since]
        return sum(found) / len(found)


def simulated(network: Network, options: RunOptions, rate: float, seconds: float) -> dict[str, Query]:
    classes = Classes(network, steerings(network, options))
    queries = [Query("A.main", "clicks"), Query("B.main", "orders")]
    for tick in range(round(seconds / TICK)):
        now, arrived = tick * TICK, round(rate * tick * TICK)
        both, rates = {"clicks": arrived, "orders": arrived}, {"clicks": rate, "orders": rate}
        steered = classes.decide(now, both, rates, "enforce", 0)
        for query in queries:
            query.turn(now, arrived, classes, steered)
    assert ";" in classes.reason() or len({one.target_seconds for one in steerings(network, options)}) == 1
    return {query.stream: query for query in queries}


def options(**given: Target) -> RunOptions:
    return RunOptions(seconds=1.0, root=Path("unused"), targets=given or None)


def test_two_classes_hold_targets_of_two_and_eight_seconds_in_one_job() -> None:
    found = simulated(parse_network(TWO), options(), rate=2000.0, seconds=400.0)
    assert found["clicks"].mean(200.0) == pytest.approx(2.0, rel=0.1)
    assert found["orders"].mean(200.0) == pytest.approx(8.0, rel=0.1)


def test_a_target_of_the_command_line_comes_before_that_of_the_file() -> None:
    found = simulated(parse_network(TWO), options(reports=Target(4.0)), rate=2000.0, seconds=300.0)
    assert found["orders"].mean(150.0) == pytest.approx(4.0, rel=0.1)


def test_a_class_that_fits_drops_nothing_beside_one_that_does_not() -> None:
    network = parse_network(TWO.replace("from: orders, cost: 0.001", "from: orders, cost: 0.0001"))
    (strict, loose) = steerings(network, options())
    steered = Classes(network, [strict, loose]).decide(
        0.0, {"clicks": 9000, "orders": 9000}, {"clicks": 3000.0, "orders": 3000.0}, "enforce", 0
    )
    assert steered.decision.streams["clicks"].budget is not None and steered.decision.streams["orders"].budget is None
    assert steered.plan.keeps["orders"] == 1.0 and steered.plan.overloaded
    assert steered.plan.load["A"] == pytest.approx(1.0) and set(steered.scales) == {"A", "B"}


def test_what_shares_a_node_or_a_stream_or_feeds_each_other_is_one_class() -> None:
    def groups(text: str) -> list[set[str]]:
        return [set(found) for found in classes_of(fragments_of(parse_network(text)))]

    assert groups(TWO) == [{"A.main"}, {"B.main"}]
    assert groups(TWO.replace("from: orders", "from: clicks").replace(", orders: {max_rate: 4000}", "")) == [
        {"A.main", "B.main"}
    ]
    fed = TWO.replace(
        "  sum: {node: B, from: orders", "  pass: {node: A, from: orders, cost: 0.1}\n  sum: {node: B, from: pass"
    )
    assert groups(fed) == [{"A.main", "B.main"}]
    parts = fragments_of(parse_network(TWO))
    assert len(by_target(parts, lambda outputs: Target(3.0))) == 1
    assert [target for target, _ in by_target(parts, lambda outputs: Target(float(len(*outputs))))] == [
        Target(6.0),
        Target(7.0),
    ]


def test_latencies_are_shown_by_output_where_targets_differ() -> None:
    found = OutputLatencies({"alerts": 2.0, "reports": 8.0}, differ=True)
    found.add("q", 10.0, {"alerts": Sketch.of([(1.9, 5)]), "link": Sketch.of([(1.0, 5)])}, is_measured=False)
    found.add("q", 12.0, {"alerts": Sketch.of([(2.1, 5)]), "reports": Sketch()}, is_measured=True)
    assert found.now()["alerts"].mean == pytest.approx(2.0) and found.now()["reports"].mean is None
    assert found.measured()["alerts"].mean == pytest.approx(2.1)
    assert OutputLatencies({"alerts": 2.0}, differ=True).now()["alerts"].target == 2.0  # the other is another node's
    assert OutputLatencies({"a": 2.0, "b": 2.0}, differ=False).now() == {}


def test_a_node_follows_the_strictest_output_below_it(tmp_path: Path) -> None:
    before = "  pass: {node: C, from: orders, cost: 0.0001}\n"
    text = TWO.replace("  sum: {node: B, from: orders", f"{before}  sum: {{node: B, from: pass").replace(
        "B: {cpu: 1.0}}", "B: {cpu: 1.0}, C: {cpu: 1.0}}"
    )
    nodes = {name: NodeAgent(parse_network(text), NodeOptions(node=name, root=tmp_path)) for name in "ABC"}
    assert {name: agent.target for name, agent in nodes.items()} == {"A": 2.0, "B": 8.0, "C": 8.0}
    own = NodeOptions(node="C", root=tmp_path, targets={"reports": Target(3.0)})
    assert NodeAgent(parse_network(text), own).target == 3.0


def test_a_node_refuses_keys_that_its_streams_do_not_have(tmp_path: Path) -> None:
    wrong = NodeOptions(node="A", root=tmp_path, share_by={"orders": "tenant"})
    with pytest.raises(InputError, match=r"--share-by: streams\.orders has no column 'tenant'"):
        NodeAgent(parse_network(TWO), wrong)
