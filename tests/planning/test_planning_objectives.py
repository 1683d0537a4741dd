"""Max-min fair and tiered plans on networks small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodway.errors import PlanningError
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.factory import make_planner
from floodway.planning.objectives import ObjectivePlanner
from floodway.planning.plan import Objective
from floodway.planning.program import Program
from tests.oracles.plan_checks import check_plan, example


def chains(*queries: tuple[float, float, int]) -> Network:
    """One node of capacity 1; every query (cost, weight, tier) reads a stream of its own."""
    return Network(
        "chains",
        {f"s{i}": Stream(f"s{i}", 2.0) for i in range(len(queries))},
        {"A": Node("A")},
        {f"o{i}": Operator(f"o{i}", "A", (f"s{i}",), cost=cost) for i, (cost, _, _) in enumerate(queries)},
        {f"q{i}": Output(f"q{i}", f"o{i}", weight, tier=tier) for i, (_, weight, tier) in enumerate(queries)},
    )


def test_fair_figure_1_gives_both_outputs_a_quarter() -> None:
    plan = make_planner(example("figure1"), objective=Objective.FAIR).plan({"s1": 1.0, "s2": 1.0})
    assert plan.throughput == pytest.approx({"q1": 0.25, "q2": 0.25})


def test_fair_goes_on_where_the_least_output_is_stuck() -> None:
    # s0 brings only 0.1; the rest of the node goes to the other two in equal parts: 0.1 + 0.45 + 0.45.
    plan = ObjectivePlanner(Program(chains((1, 1, 0), (1, 1, 0), (1, 1, 0))), Objective.FAIR).plan(
        {"s0": 0.1, "s1": 1.0, "s2": 1.0}
    )
    assert plan.throughput == pytest.approx({"q0": 0.1, "q1": 0.45, "q2": 0.45})


def test_fair_shares_by_weight_and_leaves_weight_0_out() -> None:
    network = chains((1, 3, 0), (1, 1, 0), (1, 0, 0))
    plan = ObjectivePlanner(Program(network), Objective.FAIR).plan({"s0": 1.0, "s1": 1.0, "s2": 1.0})
    assert plan.throughput["q0"] == pytest.approx(0.75) and plan.throughput["q1"] == pytest.approx(0.25)


def test_fair_with_a_dry_stream_still_serves_the_others() -> None:
    plan = ObjectivePlanner(Program(chains((1, 1, 0), (2, 1, 0))), Objective.FAIR).plan({"s0": 0.0, "s1": 2.0})
    assert plan.throughput == pytest.approx({"q0": 0.0, "q1": 0.5})


def test_tiers_serve_the_first_tier_first() -> None:
    # Tier 0 is dear and of little weight, and still first: it takes 0.8 of the node, tier 1 what is left.
    network = chains((4, 0.1, 0), (1, 10, 1), (1, 5, 2))
    plan = ObjectivePlanner(Program(network), Objective.TIERS).plan({"s0": 0.2, "s1": 0.1, "s2": 1.0})
    assert plan.throughput == pytest.approx({"q0": 0.2, "q1": 0.1, "q2": 0.1})


def test_within_a_tier_weights_count() -> None:
    network = chains((1, 1, 0), (1, 2, 0))
    plan = ObjectivePlanner(Program(network), Objective.TIERS).plan({"s0": 1.0, "s1": 0.7})
    assert plan.throughput == pytest.approx({"q0": 0.3, "q1": 0.7})


@pytest.mark.parametrize("objective", [Objective.FAIR, Objective.TIERS])
def test_look_ups_do_not_depend_on_the_ones_before(objective: Objective) -> None:
    network = example("priorities")
    used, fresh = ObjectivePlanner(Program(network), objective), ObjectivePlanner(Program(network), objective)
    names = list(network.streams)
    for factor in (5.0, 0.3, 2.0):
        used.plan(dict.fromkeys(names, factor))
    rates = dict.fromkeys(names, 1.5)
    plan = used.plan(rates)
    check_plan(network, rates, plan)
    assert plan.throughput == pytest.approx(dict(fresh.plan(rates).throughput), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("objective", [Objective.FAIR, Objective.TIERS])
def test_scaled_capacity_scales_the_plan(objective: Objective) -> None:
    planner = ObjectivePlanner(Program(example("figure1")), objective)
    one = planner.plan({"s1": 1.0, "s2": 1.0})
    three = planner.plan({"s1": 3.0, "s2": 3.0}, scale=3.0)
    assert three.keeps == pytest.approx(dict(one.keeps))


def test_all_weights_zero_is_answered() -> None:
    network = chains((1, 0, 0), (1, 0, 0))
    plan = ObjectivePlanner(Program(network), Objective.FAIR).plan({"s0": 1.0, "s1": 1.0})
    assert plan.score == 0.0 and plan.load["A"] <= 1.0


@pytest.mark.parametrize("name", ["solver", "solver-w", "fit", "dfit"])
def test_other_planners_refuse_and_name_the_exact_one(name: str) -> None:
    with pytest.raises(PlanningError, match=r"'fair'.*exact planner"):
        make_planner(example("figure1"), name, objective=Objective.FAIR)


def test_throughput_is_not_its_business() -> None:
    with pytest.raises(PlanningError, match="fair and tiers"):
        ObjectivePlanner(Program(replace(example("figure1"))), Objective.THROUGHPUT)
