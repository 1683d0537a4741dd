"""Solver and Solver-W stay within their error on random networks, at any rates."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from floodway.planning.solver import SolverPlanner
from floodway.planning.solver_cells import Budget, useful_rates
from floodway.planning.solver_w import SolverWPlanner
from floodway.planning.workload import Exponential
from tests.effort import tries
from tests.oracles.plan_checks import check_plan, hard_rates
from tests.strategies import networks

SMALL = Budget(lp_calls=1500, seconds=60.0)
ANY = networks(max_streams=2, stream_outputs=True, node_cycles=True)


@settings(max_examples=tries(50), deadline=None, derandomize=True)
@given(ANY, st.integers(0, 2**32 - 1), st.sampled_from([0.02, 0.1, 0.3]), st.booleans(), st.booleans())
def test_solver_stays_within_its_error(network: Network, seed: int, epsilon: float, clamp: bool, mix: bool) -> None:
    program = Program(network)
    planner = SolverPlanner(program, epsilon, clamp=clamp, mix=mix, adaptive=True, budget=SMALL)
    exact = ExactPlanner(program)
    allowed = max(planner.achieved_epsilon, epsilon if planner.achieved_epsilon <= epsilon else 0.0)
    for rates in hard_rates(network, seed, count=20):
        plan = planner.plan(rates)
        check_plan(network, rates, plan)
        assert plan.score >= exact.plan(rates).score * (1 - allowed) * (1 - 1e-9), rates


@settings(max_examples=tries(15), deadline=None, derandomize=True)
@given(networks(max_streams=3, max_operators=5), st.integers(0, 2**32 - 1))
def test_three_streams_reach_five_percent(network: Network, seed: int) -> None:
    program = Program(network)
    planner = SolverPlanner(program, 0.05)
    exact = ExactPlanner(program)
    for rates in hard_rates(network, seed, count=20):
        assert planner.plan(rates).score >= exact.plan(rates).score * (0.95 - 1e-9), rates


@settings(max_examples=tries(40), deadline=None, derandomize=True)
@given(ANY, st.integers(0, 2**32 - 1))
def test_rates_beyond_the_useful_ones_gain_nothing(network: Network, seed: int) -> None:
    program = Program(network)
    exact = ExactPlanner(program)
    useful = useful_rates(program)
    for rates in hard_rates(network, seed, count=10):
        asked = np.array(list(rates.values())) * 10
        clamped = np.minimum(asked, useful)
        assert exact.optimum(clamped) >= exact.optimum(asked) * (1 - 1e-9)


@settings(max_examples=tries(25), deadline=None, derandomize=True)
@given(networks(max_streams=2), st.integers(0, 2**32 - 1), st.sampled_from([0.01, 0.05]))
def test_solver_w_keeps_its_expected_error(network: Network, seed: int, epsilon: float) -> None:
    program = Program(network)
    workload = Exponential([stream.max_rate or 1.0 for stream in network.streams.values()])
    planner = SolverWPlanner(program, epsilon, workload=workload, adaptive=True, budget=SMALL)
    exact = ExactPlanner(program)
    errors = []
    for sample in workload.sample(300, np.random.default_rng(seed)):
        rates = dict(zip(network.streams, sample.tolist(), strict=True))
        best = exact.plan(rates).score
        errors.append(1 - planner.plan(rates).score / best if best > 0 else 0.0)
    # The bound is on the mean of the cells' worst errors: a mean over 300 points is well below it.
    assert np.mean(errors) <= planner.achieved_epsilon * 1.2 + 1e-9
