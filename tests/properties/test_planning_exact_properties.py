"""The exact planner and the other objectives on random networks of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner, best_score
from floodway.planning.lp import LinearProgram
from floodway.planning.objectives import ObjectivePlanner
from floodway.planning.plan import Objective
from floodway.planning.program import Program
from tests.effort import tries
from tests.oracles.path_lp import fair_levels, optimum, tier_scores
from tests.oracles.plan_checks import check_plan, hard_rates
from tests.strategies import networks, rates_for

SETTINGS = settings(max_examples=tries(60), deadline=None, derandomize=True)
ANY = networks(stream_outputs=True, node_cycles=True)


def vector(network: Network, rates: dict[str, float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([rates[name] for name in network.streams])


@SETTINGS
@given(ANY, st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.95, 0.5]))
def test_exact_scores_equal_the_path_formulation(network: Network, seed: int, headroom: float) -> None:
    planner = ExactPlanner(Program(network, headroom))
    for rates in hard_rates(network, seed):
        plan = planner.plan(rates)
        check_plan(network, rates, plan)
        assert plan.score == pytest.approx(optimum(network, rates, headroom), rel=1e-6, abs=1e-9)


@SETTINGS
@given(ANY, st.integers(0, 2**32 - 1))
def test_map_answers_as_a_fresh_solve_does_to_1e9(network: Network, seed: int) -> None:
    program = Program(network)
    planner = ExactPlanner(program)
    for _ in range(2):  # the second time round every answer comes from the map
        for rates in hard_rates(network, seed, count=20):
            found, _ = LinearProgram(program).solve(vector(network, rates))
            best = program.score(found)
            assert planner.optimum(vector(network, rates)) == pytest.approx(best, rel=1e-9, abs=1e-12)


@SETTINGS
@given(ANY, st.integers(0, 2**32 - 1))
def test_more_rate_never_lowers_the_score(network: Network, seed: int) -> None:
    planner = ExactPlanner(Program(network))
    generator = np.random.default_rng(seed)
    for rates in hard_rates(network, seed, count=6):
        more = {name: rate * float(generator.uniform(1, 3)) + 1e-3 for name, rate in rates.items()}
        assert planner.plan(more).score >= planner.plan(rates).score * (1 - 1e-9)


@SETTINGS
@given(ANY, st.integers(0, 2**32 - 1), st.floats(0.05, 20.0))
def test_scaling_the_cpu_leaves_links_and_memory_as_they_are(network: Network, seed: int, scale: float) -> None:
    planner = ExactPlanner(Program(network))
    exact = ExactPlanner(planner.program.scaled(fixed=1.0, cpu=scale))
    for rates in hard_rates(network, seed, count=6):
        plan, best = planner.plan(rates, scale), exact.plan(rates).score
        check_plan(network, rates, plan, cpu=scale)
        assert 0.98 * best - 1e-12 <= plan.score <= best * (1 + 1e-6) + 1e-12
        if not planner.program.has_fixed_resources:
            assert plan.score == pytest.approx(best, rel=1e-9, abs=1e-12)


@SETTINGS
@given(ANY, st.integers(0, 2**32 - 1))
def test_what_was_kept_is_no_better_than_the_best_for_the_capacity_it_used(network: Network, seed: int) -> None:
    planner, generator = ExactPlanner(Program(network)), np.random.default_rng(seed)
    for rates in hard_rates(network, seed, count=4):
        kept = flows(network, rates, {at: float(generator.random()) for at in network.drop_locations})
        delivered = {name: rate * float(generator.uniform(0, 2)) for name, rate in kept.throughput.items()}
        assert kept.score <= best_score(planner, rates, kept, kept.throughput)
        assert network.score(delivered) <= best_score(planner, rates, kept, delivered)


@settings(max_examples=tries(30), deadline=None, derandomize=True)
@given(st.data(), networks(max_operators=5, links=False, memory=False))
def test_fair_levels_equal_the_oracle(data: st.DataObject, network: Network) -> None:
    rates = data.draw(rates_for(network))
    plan = ObjectivePlanner(Program(network), Objective.FAIR).plan(rates)
    check_plan(network, rates, plan)
    for name, level in fair_levels(network, rates).items():
        reached = plan.throughput[name] / network.outputs[name].weight
        assert reached == pytest.approx(level, rel=1e-4, abs=1e-6), name


@settings(max_examples=tries(40), deadline=None, derandomize=True)
@given(st.data(), networks())
def test_tiers_come_in_order(data: st.DataObject, network: Network) -> None:
    rates = data.draw(rates_for(network))
    plan = ObjectivePlanner(Program(network), Objective.TIERS).plan(rates)
    check_plan(network, rates, plan)
    tiers = sorted({out.tier for out in network.outputs.values()})
    for tier, best in zip(tiers, tier_scores(network, rates), strict=True):
        reached = sum(out.weight * plan.throughput[name] for name, out in network.outputs.items() if out.tier == tier)
        assert reached == pytest.approx(best, rel=1e-4, abs=1e-6), tier
