"""The program on HiGHS: the model stays, only bounds change, whatever the units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from floodway.network.model import Network, Stream
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
