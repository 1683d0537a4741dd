"""FIT on random networks, at any rates: capacity respected, keeps in [0, 1], the error within ε."""

from __future__ import annotations

import numpy as np
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from floodway.errors import PlanningError
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.fit.cluster import cluster_forest
from floodway.planning.fit.dfit import DFitPlanner
from floodway.planning.fit.planner import FitPlanner, SpreadRule
from floodway.planning.fit.reduce import reduce_program
from floodway.planning.program import Program
from tests.effort import tries
from tests.oracles.plan_checks import check_plan, hard_rates
from tests.strategies import networks

ANY = networks(max_streams=4, max_operators=8, max_nodes=4, stream_outputs=True, node_cycles=True)
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=tries(60), deadline=None, derandomize=True)
@given(ANY, SEEDS, st.sampled_from([0.02, 0.05, 0.2]))
def test_fit_stays_within_epsilon_at_any_rates(network: Network, seed: int, epsilon: float) -> None:
    program = Program(network)
    planner, exact = FitPlanner(program, epsilon), ExactPlanner(program)
    for rates in hard_rates(network, seed, count=20):
        plan = planner.plan(rates)
        check_plan(network, rates, plan)
        assert plan.score >= exact.plan(rates).score * (1 - epsilon) * (1 - 1e-9), rates
    assert planner.achieved_epsilon <= epsilon


@settings(max_examples=tries(25), deadline=None, derandomize=True)
@given(
    networks(max_streams=3, max_operators=5, splits=False),
    SEEDS,
    st.sampled_from([SpreadRule.ABSOLUTE, SpreadRule.FIXED, SpreadRule.PERCENT, SpreadRule.UNIFORM]),
)
def test_every_spread_rule_keeps_epsilon(network: Network, seed: int, spread: SpreadRule) -> None:
    program = Program(network)
    try:
        planner = FitPlanner(program, 0.1, spread=spread)
    except PlanningError:
        reject()  # a rule may ask for more rows than allowed; that is said at once and in words
    exact = ExactPlanner(program)
    for rates in hard_rates(network, seed, count=10):
        plan = planner.plan(rates)
        check_plan(network, rates, plan)
        assert plan.score >= exact.plan(rates).score * 0.9 * (1 - 1e-9), rates


@settings(max_examples=tries(60), deadline=None, derandomize=True)
@given(ANY, SEEDS)
def test_dfit_stays_within_epsilon(network: Network, seed: int) -> None:
    program = Program(network)
    planner, exact = DFitPlanner(program, 0.1), ExactPlanner(program)
    for rates in hard_rates(network, seed, count=12):
        plan = planner.plan(rates)
        check_plan(network, rates, plan)
        assert plan.score >= exact.plan(rates).score * 0.9 * (1 - 1e-9), (rates, planner.clusters)


@settings(max_examples=tries(40), deadline=None, derandomize=True)
@given(networks(max_streams=3, max_operators=8, max_nodes=5, node_cycles=True))
def test_clusters_form_a_forest_of_all_nodes_in_use(network: Network) -> None:
    clusters = cluster_forest(network)
    placed = [name for cluster in clusters for name in cluster.operators]
    assert sorted(placed) == sorted(network.operators)
    children = [child for cluster in clusters for child in cluster.children]
    assert len(children) == len(set(children))
    for index, cluster in enumerate(clusters):
        assert all(child > index for child in cluster.children)
        read = {p for child in cluster.children for p in clusters[child].inputs}
        assert read <= set(cluster.operators)
        if index not in children:
            assert set(cluster.inputs) <= set(network.streams)


@settings(max_examples=tries(40), deadline=None, derandomize=True)
@given(ANY, SEEDS)
def test_blocks_share_nothing_and_lose_nothing(network: Network, seed: int) -> None:
    program = Program(network)
    reduced, exact = reduce_program(program), ExactPlanner(program)
    arcs = np.concatenate([block.arcs for block in reduced.blocks] or [np.zeros(0, dtype=np.int64)])
    assert sorted(arcs.tolist()) == list(range(len(reduced.costly)))
    for rates in hard_rates(network, seed, count=5):
        vector = np.array(list(rates.values()))
        whole = exact.optimum(vector)
        flow = np.zeros(len(reduced.costly))
        for block in reduced.blocks:
            alone = np.zeros(len(vector))
            alone[block.streams] = vector[block.streams]
            best = exact.flows(alone)[reduced.costly[block.arcs]][None]
            flow[block.arcs] = block.clip(np.maximum(best, 0.0), vector[block.streams][None])[0]
        assert np.isclose(program.score(reduced.arcs(flow, vector)), whole, rtol=1e-7)
