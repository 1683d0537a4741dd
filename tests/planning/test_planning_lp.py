"""The program on HiGHS: the model stays, only bounds change, whatever the units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.exact import ExactPlanner
from floodway.planning.lp import LinearProgram
from floodway.planning.program import Program
from tests.oracles.path_lp import optimum
from tests.oracles.plan_checks import example


def in_other_units(network: Network, factor: float) -> Network:
    """The same network with rates `factor` times as high and tuples that much cheaper."""
    operators = {n: replace(op, cost=(op.cost or 0.0) / factor) for n, op in network.operators.items()}
    streams = {n: Stream(n, (s.max_rate or 1.0) * factor) for n, s in network.streams.items()}
    return replace(network, operators=operators, streams=streams)


def test_a_kept_model_solves_as_a_fresh_one_does() -> None:
    program = Program(example("diamond"))
    kept = LinearProgram(program)
    for rates in np.random.default_rng(4).uniform(0, 4, (40, 2)):
        fresh, _ = LinearProgram(program).solve(rates)
        assert program.score(kept.solve(rates)[0]) == pytest.approx(program.score(fresh), rel=1e-9)


@pytest.mark.parametrize("factor", [1e-9, 1e-4, 1e3, 1e9])
def test_units_do_not_matter(factor: float) -> None:
    network = example("diamond")
    scaled = in_other_units(network, factor)
    planner = ExactPlanner(Program(scaled))
    for rates in np.random.default_rng(5).uniform(0, 4, (10, 2)):
        given = dict(zip(network.streams, rates.tolist(), strict=True))
        there = {name: rate * factor for name, rate in given.items()}
        assert planner.plan(there).score == pytest.approx(factor * optimum(network, given), rel=1e-6)


def test_basis_at_zero_rate_says_where_the_column_would_stay() -> None:
    program = Program(example("figure9-64-32"))
    _, basis = LinearProgram(program).solve(np.array([100.0, 0.0]))
    # The second stream is worth keeping, were there any of it.
    assert basis.at_upper.tolist() == [False, True]


def test_many_warm_solves_among_identical_streams_all_end_at_the_optimum() -> None:
    # Warm starts on these rates, in this order, once ended in "Unknown": a cold start has to follow.
    names = [f"s{i}" for i in range(8)]
    costs = [(0.016, 0.008), (0.008, 0.016)] * 4
    operators: dict[str, Operator] = {}
    for name, (on_a, on_b) in zip(names, costs, strict=True):
        operators[f"a{name}"] = Operator(f"a{name}", "A", (name,), cost=on_a)
        operators[f"b{name}"] = Operator(f"b{name}", "B", (f"a{name}",), cost=on_b)
    network = Network(
        "identical",
        {name: Stream(name, 25.0) for name in names},
        {"A": Node("A"), "B": Node("B")},
        operators,
        {f"q{name}": Output(f"q{name}", f"b{name}") for name in names},
    )
    program = Program(network)
    warm = LinearProgram(program)
    generator = np.random.default_rng(11)
    for _ in range(3000):
        rates = generator.choice([0.0, 12.5, 18.75, 25.0], 8)
        flows, _ = warm.solve(rates)
        # Both servers' rows, added: 24 ms a tuple of any stream, so no more than 2 / 0.024 tuples/s in all.
        assert program.score(flows) <= min(2 / 0.024, rates.sum()) * (1 + 1e-9)
        assert program.score(flows) >= min(1 / 0.016, rates.sum()) * (1 - 1e-9)
