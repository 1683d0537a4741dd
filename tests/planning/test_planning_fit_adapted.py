"""Tables adapted to a workload: within ε of the linear program everywhere, small, and of use where the rates go."""

from __future__ import annotations

import numpy as np
import pytest

from floodway.errors import InputError
from floodway.network.model import Network
from floodway.planning.fit.planner import FitPlanner
from floodway.planning.lp import LinearProgram
from floodway.planning.program import Program
from floodway.planning.workload import Empirical, Uniform
from tests.oracles.plan_checks import check_plan, example, hard_rates

EPSILON = 0.02


def near(program: Program, seed: int, rows: int = 400) -> Empirical:
    """A workload in a corner of the rate space: within a tenth of one overloaded point."""
    rng = np.random.default_rng(seed)
    centre = program.max_feasible_rates * rng.uniform(0.8, 1.6, len(program.streams))
    return Empirical(centre * rng.uniform(0.9, 1.1, (rows, len(centre))))


def optimum(program: Program, rates: np.ndarray) -> float:
    return program.score(LinearProgram(program).solve(rates)[0])


def programs() -> list[Network]:
    return [example(name) for name in ("figure1", "figure9-64-32", "split", "two-level-split", "merge-union")]


@pytest.mark.parametrize("network", programs(), ids=lambda network: network.name)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_within_epsilon_of_the_linear_program_where_rates_go_and_elsewhere(network: Network, seed: int) -> None:
    program = Program(network)
    workload = near(program, seed)
    adapted = FitPlanner(program, EPSILON, workload=workload)
    assert adapted.size <= FitPlanner(program, EPSILON).size
    fresh = workload.sample(100, np.random.default_rng(seed + 100))
    for rates in fresh:
        if program.overloaded(rates):
            assert program.score(adapted.flows(rates)) >= (1 - EPSILON) * optimum(program, rates) * (1 - 1e-9)
    # There the table answers, not the solver.
    assert adapted.solved <= len(fresh) // 20
    for mapping in hard_rates(network, seed):
        rates = np.array([mapping[name] for name in program.streams])
        plan = adapted.plan(mapping)
        check_plan(network, mapping, plan)
        assert plan.score >= (1 - EPSILON) * optimum(program, rates) * (1 - 1e-9)


def test_rates_that_keep_to_a_corner_need_a_fraction_of_the_rows() -> None:
    program = Program(example("figure9-64-32"))
    whole = FitPlanner(program, EPSILON)
    assert FitPlanner(program, EPSILON, workload=near(program, 5)).size < whole.size / 20
    everywhere = Uniform((2 * program.max_feasible_rates).tolist())
    assert (
        FitPlanner(program, EPSILON, workload=everywhere).size
        > FitPlanner(program, EPSILON, workload=near(program, 5)).size
    )


def test_a_workload_of_another_network_is_refused() -> None:
    with pytest.raises(InputError, match="the workload has 3 streams, the network 2"):
        FitPlanner(Program(example("figure1")), workload=Uniform([1.0, 1.0, 1.0]))
