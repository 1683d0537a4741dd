from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from floodway.agent.loop.backlog import Backlog, RateMeter
from floodway.agent.loop.stages import Stage
from floodway.agent.loop.steering import FragmentBatch, Steering, source_work
from floodway.errors import InputError
from floodway.job.options.options import JobOptions
from floodway.job.options.values import Target
from floodway.network.file import parse_network
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.planning.factory import make_planner
from floodway.planning.windows.window_drop import WindowShape
from floodway.spark.query.fragments import fragments
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.source.offsets import BatchOffset
from tests.agent.nodes import EQUAL_WINDOWS


def split_network() -> Network:
    """Shared operator 1 ms, branches 2 and 5 ms, one CPU: the paper's split, a thousand times faster."""
    return Network(
        "split",
        {"s": Stream("s", 1000.0)},
        {"A": Node("A")},
        {
            "o": Operator("o", "A", ("s",), cost=0.001),
            "top": Operator("top", "A", ("o",), cost=0.002),
            "bottom": Operator("bottom", "A", ("o",), cost=0.005),
        },
        {"q1": Output("q1", "top"), "q2": Output("q2", "bottom")},
    )


def steering(network: Network, target: float = 1.5, controller: str = "batch") -> Steering:
    parts = {f"A.{f.name}": f for f in fragments(network, "A")}
    return Steering(make_planner(network, "exact"), parts, Target(target), JobOptions(controller=controller))


def test_work_of_a_tuple_follows_the_fragment_and_its_drops() -> None:
    network = split_network()
    (main,) = fragments(network, "A")
    assert source_work(network, main, {}) == pytest.approx({"s": 0.008})
    assert source_work(network, main, {"o->bottom": 0.0}) == pytest.approx({"s": 0.003})


def test_a_feasible_demand_is_not_limited() -> None:
    steered = steering(split_network()).decide({"s": 100.0}, {"s": 100.0}, "enforce", 0)
    assert not steered.plan.overloaded
    assert steered.decision.streams["s"].budget is None
    assert steered.decision.keep_ppm("s", waiting=10**6) == 1_000_000


def test_overload_goes_to_the_cheapest_branch_first_then_to_a_budget() -> None:
    steer = steering(split_network(), target=1.5)
    branch = steer.decide({"s": 200.0}, {"s": 200.0}, "enforce", 0).decision
    assert branch.arcs["o->bottom"] == 400_000
    assert branch.streams["s"].budget is None
    # Beyond 1/3 of capacity a tuple, the stream itself is cut: 1000/3 tuples/s over a period of one second.
    cut = steer.decide({"s": 500.0}, {"s": 500.0}, "enforce", 0).decision
    assert cut.streams["s"].budget == 333
    assert cut.arcs["o->bottom"] == 0


def test_without_loss_batches_take_what_fits_and_the_rest_waits() -> None:
    network = split_network()
    parts = {f"A.{f.name}": f for f in fragments(network, "A")}
    steer = Steering(make_planner(network, "exact"), parts, Target(1.5), JobOptions(lossless=True))
    calm = steer.decide({"s": 100.0}, {"s": 100.0}, "enforce", 0)
    # 8 ms per tuple: 125 tuples/s, in batches of a second; also of a burst that comes before the next decision.
    assert calm.decision.limit("s") == 125 and not calm.plan.overloaded
    full = steer.decide({"s": 100.0}, {"s": 1000.0}, "enforce", 0)
    assert full.decision.limit("s") == 125 and full.plan.overloaded
    assert set(full.plan.keeps.values()) == {1.0} and full.decision.arcs == {}
    assert full.decision.keep_ppm("s", waiting=10**6) == 1_000_000
    assert steer.catch_up_seconds({"s": 1000}, {"s": 100.0}) == pytest.approx(1000 / 25)
    assert steer.catch_up_seconds({"s": 1000}, {"s": 125.0}) is None
    assert steer.catch_up_seconds({"s": 0}, {"s": 500.0}) == 0.0
    # What a tuple costs is learnt from batches; that tuples have waited for ten minutes changes nothing.
    for cost, fits in ((0.015, 0.8 / 0.015), (0.004, 0.8 / 0.004)):
        for second in range(40):
            limit = steer.decide({"s": 100.0}, {"s": 9000.0}, "enforce", 0).decision.limit("s")
            assert limit is not None
            taken = {"s": limit}
            steer.observe(
                float(second), FragmentBatch("A.main", taken, taken, 0.2 + cost * limit, 600.0, {}), {"s": 10**6}
            )
        assert limit == pytest.approx(fits, rel=0.1)


def test_what_is_skipped_is_in_every_decision_and_not_taken_out_of_windows() -> None:
    network = split_network()
    parts = {f"A.{f.name}": f for f in fragments(network, "A")}
    for lossless in (False, True):
        steer = Steering(
            make_planner(network, "exact"),
            parts,
            Target(1.5),
            JobOptions(lossless=lossless, max_age=600.0, skip_when_lag=5000),
        )
        found = steer.decide({"s": 500.0}, {"s": 500.0}, "enforce", 0).decision.streams["s"]
        assert (found.max_age_us, found.most_waiting) == (600_000_000, 5000)
        assert (found.budget is None) == lossless
    with pytest.raises(InputError, match="out of windows that are kept whole"):
        Steering(
            make_planner(network, "exact"),
            parts,
            Target(1.5),
            JobOptions(skip_when_lag=1),
            windowed={"s": WindowShape(10, 10)},
        )


def test_the_plan_told_is_the_one_that_windows_of_several_streams_are_dropped_by() -> None:
    operators = {
        "o1": Operator("o1", "A", ("s1",), cost=0.001),
        "o2": Operator("o2", "A", ("s2",), cost=0.004),
        "both": Operator("both", "A", ("o1", "o2"), kind=OperatorKind.UNION, cost=0.0),
        "count": Operator("count", "A", ("both",), kind=OperatorKind.AGGREGATE, cost=0.0, window=10.0),
    }
    streams = {name: Stream(name, 1000.0) for name in ("s1", "s2")}
    network = Network("meeting", streams, {"A": Node("A")}, operators, {"q": Output("q", "count")})
    parts = {f"A.{f.name}": f for f in fragments(network, "A")}
    planner, rates = make_planner(network, "exact"), {"s1": 500.0, "s2": 500.0}
    apart = planner.plan(rates).keeps
    assert apart["s1"] == 1.0 > apart["s2"]
    steered = Steering(planner, parts, Target(1.5), windowed=dict.fromkeys(rates, WindowShape(10, 10))).decide(
        rates, rates, "enforce", 0
    )
    assert steered.plan.keeps["s1"] == steered.plan.keeps["s2"] == apart["s2"]
    assert steered.plan.load == {"A": pytest.approx(apart["s2"] * 500.0 * 0.005)}
    assert {steered.decision.streams[name].keep_ppm for name in rates} == {round(apart["s2"] * 1e6)}


def test_a_slow_engine_shrinks_the_capacity_that_is_planned_for() -> None:
    steer = steering(split_network(), target=1.5)
    for second in range(8):
        batch = FragmentBatch("A.main", {"s": 500}, {"s": 300}, 2.0, 3.0, {"o->bottom": 0.0})
        steer.observe(float(second), batch, {"s": 500})
    assert steer.scale < 0.7
    budget = steer.decide({"s": 500.0}, {"s": 500.0}, "enforce", 0).decision.streams["s"].budget
    assert budget is not None and budget < 333


def test_late_outputs_further_down_leave_a_query_less_of_its_share() -> None:
    network = split_network()
    parts = {f"A.{f.name}": f for f in fragments(network, "A")}
    asked: list[tuple[tuple[str, ...], float]] = []

    def half(operators: Collection[str], now_seconds: float) -> float:
        asked.append((tuple(operators), now_seconds))
        return 0.5

    whole = steering(network)
    hurried = Steering(make_planner(network, "exact"), parts, Target(1.5), share_factor=half)
    for second in range(8):
        batch = FragmentBatch("A.main", {"s": 500}, {"s": 300}, 0.9, 1.4, {"o->bottom": 0.0})
        whole.observe(float(second), batch, {"s": 500})
        hurried.observe(float(second), batch, {"s": 500})
    assert hurried.scale < 0.6 * whole.scale
    assert asked[-1] == (tuple(parts["A.main"].operators), 7.0)


def test_a_percentile_as_the_target_leaves_shorter_batches_than_the_same_mean() -> None:
    network = split_network()
    parts = {f"A.{f.name}": f for f in fragments(network, "A")}
    mean = steering(network, target=3.0)
    p95 = Steering(make_planner(network, "exact"), parts, Target(3.0, 0.95))
    assert p95.period_seconds == pytest.approx(mean.period_seconds / 1.3, rel=0.01)
    for second in range(20):
        seconds = 1.0 + 0.5 * (second % 2)
        batch = FragmentBatch("A.main", {"s": 500}, {"s": 150}, seconds, 1.5 * seconds, {"o->bottom": 0.0}, seconds)
        mean.observe(float(second), batch, {"s": 500})
        p95.observe(float(second), batch, {"s": 500})
    assert p95.batch_seconds < 0.75 * mean.batch_seconds
    assert "times the mean" in p95.control["A.main"].reason


@pytest.mark.parametrize("controller", ["batch", "latency", "pid", "red", "aurora", "tu", "gradient", "vegas"])
def test_every_controller_for_spark_can_be_chosen(controller: str) -> None:
    steer = steering(split_network(), controller=controller)
    batch = FragmentBatch("A.main", {"s": 2000}, {"s": 900}, 2.5, 4.0, {"o->bottom": 0.0})
    steer.observe(0.0, batch, {"s": 2000})
    budget = steer.decide({"s": 500.0}, {"s": 2000.0}, "enforce", 0).decision.streams["s"].budget
    assert steer.scale > 0.0
    assert budget is None or budget > 0


def test_rates_are_those_of_the_window() -> None:
    meter = RateMeter(1.0)
    for tick in range(31):
        meter.sample(tick / 10, {"s": 10 * tick if tick < 20 else 200 + 50 * (tick - 20)})
    assert meter.rates() == pytest.approx({"s": 500.0})
    meter.sample(0.0, {"s": 0})  # the clock jumped back: no rate until there is a second sample
    assert meter.rates() == {"s": 0.0}


def journal(end: int, at_ms: int) -> JournaledBatch:
    return JournaledBatch(0, at_ms, {"s": BatchOffset("s", {0: 0}, {0: end})})


def test_demand_counts_the_backlog_and_what_comes_until_the_cut() -> None:
    network = split_network()
    backlog = Backlog(network, {"A.main": fragments(network, "A")[0]})
    assert backlog.demand(0.0, {"s": 300}, {"s": 100.0}, 1.0) == {"s": 300.0}
    backlog.cut("A.main", journal(300, at_ms=0), 0.0)
    backlog.ended("A.main", 2.0)
    backlog.cut("A.main", journal(400, at_ms=10_000), 10.0)
    # 100 wait, the batch under way is expected to run until 12.0, and 100 tuples/s come until then.
    assert backlog.demand(10.5, {"s": 500}, {"s": 100.0}, 1.0) == pytest.approx({"s": 250.0})
    assert not backlog.idle({"s": 500})
    backlog.ended("A.main", 2.0)
    assert backlog.idle({"s": 400})


def link_network() -> Network:
    """The second node of a chain, as its own part: one input that another node writes, one CPU."""
    return Network(
        "part",
        {"a->b": Stream("a->b", 1000.0)},
        {"B": Node("B")},
        {"b": Operator("b", "B", ("a->b",), cost=0.01)},
        {"q": Output("q", "b")},
    )


def second_node(target: float = 6.0) -> Steering:
    network = link_network()
    parts = {f"B.{f.name}": f for f in fragments(network, "B")}
    return Steering(
        make_planner(network, "exact"),
        parts,
        Target(target),
        places={"B.main": Stage(2, 2)},
        links=["a->b"],
    )


def test_a_delivery_that_has_just_come_is_no_backlog() -> None:
    network = link_network()
    backlog = Backlog(network, {"B.main": fragments(network, "B")[0]}, {"a->b": 3.0})
    # 100 tuples/s in deliveries of up to three seconds: 300 that wait are one delivery, 500 are two seconds more.
    assert backlog.demand(0.0, {"a->b": 300}, {"a->b": 100.0}, 2.0) == {"a->b": 100.0}
    assert backlog.demand(0.0, {"a->b": 500}, {"a->b": 100.0}, 2.0) == {"a->b": 200.0}


def test_a_link_is_not_cut_for_a_few_percent() -> None:
    steer = second_node()
    little = steer.decide({"a->b": 104.0}, {"a->b": 104.0}, "enforce", 0).decision
    assert little.streams["a->b"].budget is None and little.keep_ppm("a->b", waiting=10**6) == 1_000_000
    much = steer.decide({"a->b": 200.0}, {"a->b": 200.0}, "enforce", 0).decision
    assert much.streams["a->b"].budget == 200  # half of 200 tuples/s, in periods of T/2/1.5 = 2 s


def observed(steer: Steering, latency: float, batches: int = 12) -> float:
    """Feed batches of one length and latency that had to shed; the capacity that follows."""
    for second in range(batches):
        steer.decide({"a->b": 200.0}, {"a->b": 200.0}, "enforce", 0)
        batch = FragmentBatch("B.main", {"a->b": 400}, {"a->b": 200}, 2.0, latency, {})
        steer.observe(2.0 * second, batch, {"a->b": 400})
    return steer.scale


def test_a_node_answers_for_its_share_and_for_the_lateness_of_those_before_it() -> None:
    in_time, late = observed(second_node(), 6.0), observed(second_node(), 8.0)
    # At 6 s the target of the path is met: the node before was due at 3 s, and a period of 2 s gives the rest.
    assert in_time == pytest.approx(1.0, rel=0.1)
    assert late < 0.8 * in_time


def test_what_is_dropped_for_another_node_says_nothing_about_the_own_capacity() -> None:
    steer = second_node()
    for second in range(12):
        steer.decide({"a->b": 50.0}, {"a->b": 50.0}, "enforce", 0)  # half of what the node could take
        batch = FragmentBatch("B.main", {"a->b": 400}, {"a->b": 100}, 1.0, 4.5, {})
        steer.observe(2.0 * second, batch, {"a->b": 0})
    assert steer.scale == pytest.approx(1.0, rel=0.5)


def test_a_planner_that_knows_the_capacity_already_is_asked_relative_to_it() -> None:
    steer = second_node()
    observed(steer, 8.0)
    before = steer.decide({"a->b": 200.0}, {"a->b": 200.0}, "enforce", 0).plan.keeps["a->b"]
    dearer = link_network()
    scale = steer.scale
    dearer = replace(dearer, operators={"b": replace(dearer.operators["b"], cost=0.01 / scale)})
    steer.plan_with(make_planner(dearer, "exact"), link_network(), planned_scale=scale)
    after = steer.decide({"a->b": 200.0}, {"a->b": 200.0}, "enforce", 0).plan.keeps["a->b"]
    assert after == pytest.approx(before)


def test_of_equal_streams_with_overlapping_windows_one_is_dropped() -> None:
    network = parse_network(EQUAL_WINDOWS.format(first="A", second="A"))
    parts = {f"A.{f.name}": f for f in fragments(network, "A")}
    shapes = dict.fromkeys(("s", "t"), WindowShape(10_000_000, 5_000_000))
    rates = {"s": 500.0, "t": 500.0}
    steer = Steering(make_planner(network, "exact"), parts, Target(1.5), windowed=shapes)
    keeps = [steer.decide(rates, rates, "enforce", 0).plan.keeps for _ in range(2)]
    assert sorted(keeps[0].values()) == [0.0, 1.0]
    assert keeps[0] == keeps[1]
    kept, dropped = sorted(rates, key=lambda name: -keeps[0][name])
    turned = {kept: 100.0, dropped: 450.0}
    held, late = (steer.decide(turned, turned, "enforce", at).plan.keeps for at in (1_000_000, 11_000_000))
    assert (held[kept], held[dropped]) == (1.0, 0.0)
    assert late[dropped] == 1.0 > late[kept]
    tuples = Steering(make_planner(network, "exact"), parts, Target(1.5)).decide(rates, rates, "enforce", 0)
    assert tuples.plan.keeps == {"s": pytest.approx(0.5), "t": pytest.approx(0.5)}


def test_short_batches_of_one_stream_leave_the_windows_of_another_alone() -> None:
    """A window outlasts many batches: one that holds little does not raise a keep, and a lull changes no choice."""
    network = parse_network(EQUAL_WINDOWS.format(first="A", second="A"))
    parts = {f"A.{f.name}": f for f in fragments(network, "A")}
    shapes = dict.fromkeys(("s", "t"), WindowShape(10_000_000, 5_000_000))
    steer = Steering(make_planner(network, "exact"), parts, Target(1.5), windowed=shapes)
    offered = {"s": 500.0, "t": 500.0}

    def keeps(demand: dict[str, float], rates: dict[str, float], seconds: int) -> dict[str, float]:
        return dict(steer.decide(rates, demand, "enforce", seconds * 1_000_000, rates).plan.keeps)

    first = keeps(offered, offered, 0)
    assert sorted(first.values()) == [0.0, 1.0]
    for demand in ({"s": 40.0, "t": 40.0}, {"s": 20.0, "t": 90.0}, {"s": 90.0, "t": 20.0}):
        assert keeps(demand, offered, 1) == first
    little = {"s": 100.0, "t": 100.0}
    assert set(keeps(little, little, 20).values()) == {1.0}
    assert keeps(offered, offered, 40) == first


def test_a_link_carries_the_mix_that_arrives_and_not_that_of_one_batch() -> None:
    text = """
version: 1
name: link
streams: {s1: {max_rate: 400, bytes: 100}, s2: {max_rate: 400, bytes: 100}}
nodes: {A: {}, B: {}}
operators:
  wide: {node: A, from: s1, cost: 0.0001, bytes: 500}
  thin: {node: A, from: s2, cost: 0.0001, bytes: 50}
  b1: {node: B, from: wide, cost: 0.0001}
  b2: {node: B, from: thin, cost: 0.0001}
outputs: {q1: {from: b1}, q2: {from: b2}}
links: {A->B: {bandwidth: 120000}}
"""
    network = parse_network(text)
    parts = {f"{node}.{f.name}": f for node in network.nodes for f in fragments(network, node)}
    offered = {"s1": 400.0, "s2": 400.0}
    for demand in ({"s1": 26.0, "s2": 4.0}, {"s1": 4.0, "s2": 15.0}, offered):
        steer = Steering(make_planner(network, "exact"), parts, Target(8.0))
        kept = steer.decide(offered, demand, "enforce", 0, offered).plan.keeps
        assert kept["s1"] == pytest.approx((120_000 - 400 * 50) / (400 * 500), rel=0.03) and kept["s2"] == 1.0
