"""Planners by name, with their options and refusals."""

from __future__ import annotations

import pytest

from floodway.errors import InputError, PlanningError
from floodway.planning.factory import PLANNERS, make_planner
from floodway.planning.plan import Objective
from tests.oracles.plan_checks import check_plan, example


@pytest.mark.parametrize("name", PLANNERS)
def test_every_planner_answers_figure_1_within_its_error(name: str) -> None:
    network = example("figure1")
    planner = make_planner(network, name, epsilon=0.05)
    assert planner.name == name
    rates = {"s1": 1.0, "s2": 1.0}
    plan = planner.plan(rates)
    check_plan(network, rates, plan)
    assert plan.score >= 0.6 * 0.95 - 1e-9


def test_options_reach_the_planner() -> None:
    network = example("figure1")
    loose = make_planner(network, "solver", epsilon=0.3)
    tight = make_planner(network, "solver", epsilon=0.02, use_map=False)
    assert loose.size < tight.size
    most = make_planner(network, headroom=0.5).plan({"s1": 1.0, "s2": 1.0})
    assert most.score == pytest.approx(0.3)


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no planner is called 'solvr'.*solver"):
        make_planner(example("figure1"), "solvr")
    with pytest.raises(InputError, match="Known: exact"):
        make_planner(example("figure1"), "xyz")


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, float("nan")])
def test_epsilon_must_be_a_share(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon"):
        make_planner(example("figure1"), "solver", epsilon=epsilon)
    assert make_planner(example("figure1"), "exact", epsilon=epsilon).plan({"s1": 1.0, "s2": 1.0}).score > 0.59


def test_objectives_go_to_the_exact_planner_only() -> None:
    assert make_planner(example("figure1"), objective=Objective.TIERS).name == "exact"
    with pytest.raises(PlanningError, match="exact planner"):
        make_planner(example("figure1"), "solver-w", objective=Objective.TIERS)
