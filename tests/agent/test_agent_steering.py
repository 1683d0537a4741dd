from __future__ import annotations

import pytest

from floodway.agent.backlog import Backlog
from floodway.agent.rates import RateMeter
from floodway.agent.steering import FragmentBatch, Steering, source_work
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.factory import make_planner
from floodway.spark.fragments import fragments
from floodway.spark.journal import JournaledBatch
from floodway.spark.source.offsets import BatchOffset


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
    return Steering(make_planner(network, "exact"), parts, target_seconds=target, controller=controller)


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


def test_a_slow_engine_shrinks_the_capacity_that_is_planned_for() -> None:
    steer = steering(split_network(), target=1.5)
    for second in range(8):
        batch = FragmentBatch("A.main", {"s": 500}, {"s": 300}, 2.0, 3.0, {"o->bottom": 0.0})
        steer.observe(float(second), batch, {"s": 500})
    assert steer.scale < 0.7
    budget = steer.decide({"s": 500.0}, {"s": 500.0}, "enforce", 0).decision.streams["s"].budget
    assert budget is not None and budget < 333


@pytest.mark.parametrize("controller", ["batch", "latency", "pid", "red", "aurora", "tu"])
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
    backlog.cut("A.main", journal(300, at_ms=0))
    backlog.ended("A.main", 2.0)
    backlog.cut("A.main", journal(400, at_ms=10_000))
    # 100 wait, the batch under way is expected to run until 12.0, and 100 tuples/s come until then.
    assert backlog.demand(10.5, {"s": 500}, {"s": 100.0}, 1.0) == pytest.approx({"s": 250.0})
    assert not backlog.idle({"s": 500})
    backlog.ended("A.main", 2.0)
    assert backlog.idle({"s": 400})
