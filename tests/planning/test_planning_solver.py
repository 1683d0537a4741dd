"""Solver and Solver-W: the paper's examples, the clamp, the hard corners of the rate space, the budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from floodway.errors import InputError, PlanningError
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.exact import ExactPlanner
from floodway.planning.factory import make_planner
from floodway.planning.program import Program
from floodway.planning.solver import SolverPlanner
from floodway.planning.solver_cells import Budget, rate_space, useful_rates
from floodway.planning.solver_w import SolverWPlanner
from floodway.planning.workload import Empirical, Exponential, Uniform
from tests.oracles.plan_checks import check_plan, example


def two_queries(costs: tuple[float, float], weights: tuple[float, float], max_rate: float | None = 10.0) -> Network:
    return Network(
        "two",
        {"s1": Stream("s1", max_rate), "s2": Stream("s2", max_rate)},
        {"A": Node("A")},
        {
            "a1": Operator("a1", "A", ("s1",), cost=costs[0]),
            "a2": Operator("a2", "A", ("s2",), cost=costs[1]),
        },
        {"q1": Output("q1", "a1", weights[0]), "q2": Output("q2", "a2", weights[1])},
    )


def worst_error(planner: SolverPlanner, points: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> float:
    exact = ExactPlanner(planner.program)
    worst = 0.0
    for point in points:
        rates = dict(zip(planner.network.streams, point.tolist(), strict=True))
        plan = planner.plan(rates)
        check_plan(planner.network, rates, plan)
        best = exact.plan(rates).score
        worst = max(worst, 1 - plan.score / best if best > 0 else 0.0)
    return worst


def log_points(count: int, seed: int = 1) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Pairs of rates from 1e-12 to 1e4, some of them zero: the axes and the origin from close by."""
    generator = np.random.default_rng(seed)
    points = 10.0 ** generator.uniform(-12, 4, (count, 2))
    points[:: count // 10 or 1, 0] = 0.0
    points[1 :: count // 10 or 1, 1] = 0.0
    return points


def test_a_point_is_scaled_to_its_corner_and_uses_that_plan() -> None:
    # Clamp off, so that the corner is the paper's: bound (100, 100), corner (50, 50), point (60, 75).
    network = two_queries((0.02, 0.03), (1.0, 1.0), max_rate=100.0)
    planner = SolverPlanner(Program(network), 0.5, clamp=False, mix=False)
    plan = planner.plan({"s1": 60.0, "s2": 75.0})
    corner = ExactPlanner(planner.program).plan({"s1": 50.0, "s2": 50.0})
    assert plan.keeps["s1"] == pytest.approx(50 / 60 * corner.keeps["s1"])
    assert plan.keeps["s2"] == pytest.approx(50 / 75 * corner.keeps["s2"])


def test_scaling_to_a_feasible_corner_needs_no_plan() -> None:
    # (50, 50) asks exactly 0.5 + 0.5 of the CPU: the point is scaled to it and nothing else is dropped.
    network = two_queries((0.01, 0.01), (1.0, 1.0), max_rate=100.0)
    planner = SolverPlanner(Program(network), 0.5, clamp=False, mix=False)
    plan = planner.plan({"s1": 60.0, "s2": 75.0})
    assert plan.keeps == pytest.approx({"s1": 50 / 60, "s2": 50 / 75})


def test_figure_1_within_five_percent() -> None:
    planner = make_planner(example("figure1"), "solver", epsilon=0.05)
    assert planner.plan({"s1": 1.0, "s2": 1.0}).score >= 0.6 * 0.95
    assert planner.plan({"s1": 0.1, "s2": 0.1}).drops == {}


def test_split_keeps_the_cheap_branch() -> None:
    planner = make_planner(example("split"), "solver", epsilon=0.001)
    plan = planner.plan({"s": 0.2})
    assert plan.score == pytest.approx(0.28, rel=0.001)
    assert plan.keeps["shared->bottom"] == pytest.approx(0.4, abs=0.02)


def test_useful_rate_of_a_split_is_that_of_its_best_branch() -> None:
    # Plan-free limit 1/8; with the dear branch dropped 1/3.
    program = Program(example("split"))
    assert program.max_feasible_rates.tolist() == pytest.approx([1 / 8])
    assert useful_rates(program).tolist() == pytest.approx([1 / 3])


def test_clamping_saves_calls_and_loses_nothing() -> None:
    program = Program(example("figure9-88-8"))
    big = Program(replace(program.network, streams={n: Stream(n, 80.0) for n in program.streams}))
    clamped, whole = SolverPlanner(big, 0.05, mix=False), SolverPlanner(big, 0.05, clamp=False, mix=False)
    assert clamped.lp_calls * 20 < whole.lp_calls
    points = np.random.default_rng(0).uniform(0, 100, (200, 2))
    assert worst_error(clamped, points) <= 0.05
    assert worst_error(whole, points) <= 0.05


@pytest.mark.parametrize("mix", [True, False])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (1e-6, 1.0), (1e6, 1e-6)])
@pytest.mark.parametrize("costs", [(1.0, 1.0), (1e-4, 10.0), (0.0, 1.0)])
def test_error_holds_close_to_axes_and_origin(
    costs: tuple[float, float], weights: tuple[float, float], mix: bool
) -> None:
    # A worthless or nearly worthless neighbour makes the corner rule fail at the axis.
    planner = SolverPlanner(Program(two_queries(costs, weights)), 0.1, mix=mix)
    assert planner.achieved_epsilon <= 0.1
    assert worst_error(planner, log_points(300)) <= 0.1 + 1e-9


def test_mixed_plans_need_cells_only_where_the_optimum_bends() -> None:
    program = Program(two_queries((1.0, 1.0), (2.0, 1.0), max_rate=4.0))
    mixed, paper = SolverPlanner(program, 0.01), SolverPlanner(program, 0.01, mix=False)
    assert mixed.size * 5 < paper.size
    assert worst_error(mixed, np.random.default_rng(4).uniform(0, 4, (200, 2))) <= 0.01
    # Far from any bend the mix is the optimum itself.
    flows = mixed.flows(np.array([1.7, 0.3]))
    assert mixed.program.score(flows) == pytest.approx(ExactPlanner(program).optimum(np.array([1.7, 0.3])), rel=1e-12)


@pytest.mark.parametrize("name", ["diamond", "two-level-split", "merge-join", "bandwidth-memory", "priorities"])
def test_mixed_plans_reach_half_a_percent_on_every_kind_of_network(name: str) -> None:
    planner = SolverPlanner(Program(example(name)), 0.005)
    tops = np.array([stream.max_rate or 1.0 for stream in planner.network.streams.values()])
    points = np.random.default_rng(6).uniform(0, 1.3, (200, len(tops))) * tops
    assert worst_error(planner, points) <= 0.005 + 1e-9


def test_rates_above_a_small_max_rate_are_still_within_the_error() -> None:
    planner = SolverPlanner(Program(two_queries((1.0, 0.5), (1.0, 1.0), max_rate=0.3)), 0.05)
    assert worst_error(planner, np.array([[0.25, 5.0], [1.0, 1.0], [0.0, 3.0], [0.9, 0.1]])) <= 0.05


def test_without_max_rate_the_useful_rate_bounds_the_space() -> None:
    program = Program(two_queries((1.0, 0.5), (1.0, 1.0), max_rate=None))
    assert rate_space(program).top.tolist() == [1.0, 2.0]
    assert worst_error(SolverPlanner(program, 0.05), log_points(100)) <= 0.05


def test_a_stream_with_no_bound_at_all_is_refused() -> None:
    network = two_queries((1.0, 1.0), (1.0, 1.0), max_rate=None)
    # q3 reads s1 for free, so that any rate of s1 is of use.
    outputs = {**network.outputs, "q3": Output("q3", "s1")}
    with pytest.raises(PlanningError, match=r"'s1' has no max_rate.*exact"):
        SolverPlanner(Program(replace(network, outputs=outputs)))
    with pytest.raises(PlanningError, match="max_rate"):
        SolverPlanner(Program(network), clamp=False)


def many_streams(count: int) -> Network:
    names = [f"s{i}" for i in range(count)]
    return Network(
        "many",
        {name: Stream(name, 2.0) for name in names},
        {"A": Node("A")},
        {f"o{name}": Operator(f"o{name}", "A", (name,), cost=1.0 + i) for i, name in enumerate(names)},
        {f"q{name}": Output(f"q{name}", f"o{name}") for name in names},
    )


@pytest.mark.parametrize("count", [8, 20, 64])
def test_too_many_dimensions_are_refused_naming_the_exact_planner(count: int) -> None:
    budget = Budget(lp_calls=2000, seconds=5.0)
    with pytest.raises(PlanningError, match=r"exact planner"):
        SolverPlanner(Program(many_streams(count)), 0.01, budget=budget)
    planner = SolverPlanner(Program(many_streams(count)), 0.01, budget=budget, adaptive=True)
    assert planner.lp_calls <= 2000
    assert planner.achieved_epsilon > 0.01


def test_adaptive_error_is_the_one_reported() -> None:
    program = Program(many_streams(3))
    planner = SolverPlanner(program, 0.001, budget=Budget(lp_calls=500), adaptive=True)
    assert 0.001 < planner.achieved_epsilon < 1.0
    exact = ExactPlanner(program)
    for point in np.random.default_rng(2).uniform(0, 2, (300, 3)):
        rates = dict(zip(program.streams, point.tolist(), strict=True))
        assert planner.plan(rates).score >= exact.plan(rates).score * (1 - planner.achieved_epsilon - 1e-9)


def test_time_budget_comes_from_the_clock_given() -> None:
    ticks = iter(range(10**6))
    planner = SolverPlanner(
        Program(many_streams(2)),
        1e-4,
        budget=Budget(seconds=50.0),
        adaptive=True,
        clock=lambda: float(next(ticks)),
    )
    assert planner.achieved_epsilon > 1e-4
    assert planner.lp_calls < 50


def test_error_of_the_division_falls_step_by_step() -> None:
    planner = SolverPlanner(Program(example("figure9-64-32")), 0.05, mix=False)
    errors = [step.error for step in planner.history]
    assert errors[0] == 1.0 and errors == sorted(errors, reverse=True) and errors[-1] <= 0.05


def test_solver_w_needs_fewer_calls_for_the_same_expected_error() -> None:
    program = Program(example("figure9-80-16"))
    workload = Exponential([5.0, 5.0])
    plain = SolverPlanner(program, 0.05, clamp=False, mix=False)
    expected = plain.expected_error(workload)
    aware = SolverWPlanner(program, expected, workload=workload, clamp=False, mix=False)
    assert aware.achieved_epsilon <= expected * (1 + 1e-9)
    assert aware.lp_calls < plain.lp_calls


def test_solver_w_takes_any_workload_of_the_right_size() -> None:
    program = Program(example("figure1"))
    for workload in (Uniform([2.0, 2.0]), Empirical(np.random.default_rng(0).uniform(0, 2, (500, 2))), None):
        assert SolverWPlanner(program, 0.02, workload=workload).achieved_epsilon <= 0.02 * (1 + 1e-9)
    with pytest.raises(InputError, match="3 streams"):
        SolverWPlanner(program, workload=Uniform([1.0, 1.0, 1.0]))
