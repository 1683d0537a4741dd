"""The exact planner and the other objectives on random networks of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.lp import LinearProgram
from floodway.planning.objectives import ObjectivePlanner
from floodway.planning.plan import Objective
from floodway.planning.program import Program
from tests.oracles.path_lp import fair_levels, optimum, tier_scores
from tests.oracles.plan_checks import check_plan, hard_rates
from tests.strategies import networks, rates_for

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
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
            flows, _ = LinearProgram(program).solve(vector(network, rates))
            best = program.score(flows)
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
def test_scaling_the_capacity_scales_the_optimum(network: Network, seed: int, scale: float) -> None:
    planner = ExactPlanner(Program(network))
    for rates in hard_rates(network, seed, count=6):
        scaled = {name: rate * scale for name, rate in rates.items()}
        plan = planner.plan(scaled, scale)
        check_plan(network, scaled, plan, capacity=scale)
        assert plan.score == pytest.approx(scale * planner.plan(rates).score, rel=1e-9, abs=1e-12)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.data(), networks(max_operators=5, links=False, memory=False))
def test_fair_levels_equal_the_oracle(data: st.DataObject, network: Network) -> None:
    rates = data.draw(rates_for(network))
    plan = ObjectivePlanner(Program(network), Objective.FAIR).plan(rates)
    check_plan(network, rates, plan)
    for name, level in fair_levels(network, rates).items():
        reached = plan.throughput[name] / network.outputs[name].weight
        assert reached == pytest.approx(level, rel=1e-4, abs=1e-6), name


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data(), networks())
def test_tiers_come_in_order(data: st.DataObject, network: Network) -> None:
    rates = data.draw(rates_for(network))
    plan = ObjectivePlanner(Program(network), Objective.TIERS).plan(rates)
    check_plan(network, rates, plan)
    tiers = sorted({out.tier for out in network.outputs.values()})
    for tier, best in zip(tiers, tier_scores(network, rates), strict=True):
        reached = sum(out.weight * plan.throughput[name] for name, out in network.outputs.items() if out.tier == tier)
        assert reached == pytest.approx(best, rel=1e-4, abs=1e-6), tier
