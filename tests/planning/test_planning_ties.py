"""Ties: of all optimal plans the most even one, told as such; an oracle by another road on networks full of ties."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from floodway.network.file import parse_network
from floodway.network.model import Network, Output
from floodway.planning import plan_file
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from tests.effort import tries
from tests.oracles.plan_checks import check_plan, example, hard_rates
from tests.strategies import networks

linprog: Any = import_module("scipy.optimize").linprog
Vector = NDArray[np.float64]

TWO = """
version: 1
streams: {s1: {max_rate: 10}, s2: {max_rate: 10}, s3: {max_rate: 10}}
nodes: {A: {cpu: 1}, B: {cpu: 5}}
operators:
  a: {node: A, from: s1, cost: 0.5}
  b: {node: A, from: s2, cost: 0.5}
  c: {node: A, from: s3, cost: 1}
  d: {node: B, from: b, cost: 0.1}
outputs: {q: {from: a}, p: {from: d}, r: {from: c}}
"""


def most_even(program: Program, rates: Vector) -> Vector:
    """Shares x_a / f_a of the lexicographic max-min optimum over the optimal face, by scipy and without duals."""
    full = program.full_flow @ rates
    size = program.size
    rows = np.vstack([program.use / program.capacity[:, None], program.nesting]) * full
    bounds = np.concatenate([np.ones(len(program.use)), np.zeros(len(program.nesting))])
    top = [(0.0, 1.0 if stream >= 0 else None) for stream in program.stream_of]
    objective = program.objective * full
    scale = objective.max(initial=0.0) or 1.0
    best = -float(linprog(-objective / scale, A_ub=rows, b_ub=bounds, bounds=top).fun)
    rows = np.vstack([rows, -objective / scale])
    bounds = np.append(bounds, -best + 1e-9 * max(1.0, best))
    floor = np.zeros(size)
    active = [place for place in range(size) if full[place] > 0]
    shares = np.zeros(size)
    while active:
        lifted = np.array([1.0 if place in active else 0.0 for place in range(size)])
        wide = np.hstack([np.vstack([rows, -np.eye(size)]), np.append(np.zeros(len(rows)), lifted)[:, None]])
        found = linprog(
            np.append(np.zeros(size), -1.0),
            A_ub=wide,
            b_ub=np.append(bounds, -np.where(lifted > 0, 0.0, floor)),
            bounds=[*top, (0.0, 1.0)],
        )
        least = float(found.x[-1])
        # Rounding may leave no room at all: then the shares found so far give way a little.
        for slack in (1e-7, 1e-6, 1e-5):
            low = [(max((least if p in active else floor[p]) - slack, 0.0), top[p][1]) for p in range(size)]
            tried = {p: linprog(-np.eye(size)[p], A_ub=rows, b_ub=bounds, bounds=low) for p in active}
            if all(one.success for one in tried.values()):
                break
        risen = [place for place, one in tried.items() if -one.fun > least + 1e-4]
        for place in active:
            if place not in risen:
                floor[place] = shares[place] = least
        assert len(risen) < len(active), "no variable is stuck at the least share"
        active = risen
    return shares


def test_streams_that_cost_and_earn_the_same_are_kept_alike() -> None:
    plan = ExactPlanner(Program(parse_network(TWO))).plan({"s1": 2.0, "s2": 4.0, "s3": 1.0})
    # s2 also uses B, which has room: the tie is at A, whatever the rest of the path.
    assert plan.keeps == pytest.approx({"s1": 1 / 3, "s2": 1 / 3, "s3": 0.0})
    assert plan.score == pytest.approx(2.0)
    assert plan.ties == (("s1", "s2"),)
    # Where B lets only a little of s2 through, s1 gets the rest; none of s2 would be as good.
    fuller = ExactPlanner(Program(parse_network(TWO.replace("B: {cpu: 5}", "B: {cpu: 0.05}"))))
    plan = fuller.plan({"s1": 9.0, "s2": 9.0, "s3": 0.0})
    assert plan.keeps["s2"] == pytest.approx(0.5 / 9) and plan.keeps["s1"] == pytest.approx(1.5 / 9)
    assert plan.ties == (("s1", "s2"),)


def test_without_a_tie_nothing_is_arbitrary() -> None:
    plan = ExactPlanner(Program(example("figure1"))).plan({"s1": 1.0, "s2": 1.0})
    assert plan.ties == () and plan.keeps == pytest.approx({"s1": 0.2, "s2": 0.4})
    calm = ExactPlanner(Program(parse_network(TWO))).plan({"s1": 0.1, "s2": 0.1, "s3": 0.1})
    assert calm.ties == () and calm.drops == {}


def test_what_earns_nothing_is_kept_where_there_is_room() -> None:
    network = parse_network(TWO.replace("r: {from: c}", "r: {from: c, weight: 0}"))
    planner = ExactPlanner(Program(network))
    assert planner.plan({"s1": 4.0, "s2": 0.0, "s3": 1.0}).keeps["s3"] == 0.0
    two = TWO.replace("a: {node: A", "a: {node: B").replace("q: {from: a}", "q: {from: a, weight: 0}")
    plan = ExactPlanner(Program(parse_network(two))).plan({"s1": 1.0, "s2": 4.0, "s3": 0.0})
    assert plan.keeps["s1"] == pytest.approx(1.0)


def test_the_choice_follows_the_rates_without_a_jump() -> None:
    planner = ExactPlanner(Program(parse_network(TWO)))
    keeps = [planner.plan({"s1": 2.0, "s2": rate, "s3": 0.5}).keeps for rate in np.linspace(1.8, 2.2, 41).tolist()]
    for before, after in pairwise(keeps):
        assert all(abs(before[at] - after[at]) < 0.01 for at in before)


def test_saved_regions_know_their_ties(tmp_path: Path) -> None:
    network = parse_network(TWO)
    planner = ExactPlanner(Program(network))
    plan = planner.plan({"s1": 2.0, "s2": 4.0, "s3": 1.0})
    plan_file.save(planner, tmp_path / "plans")
    again = plan_file.load(tmp_path / "plans", Program(network))
    assert again.plan({"s1": 2.0, "s2": 4.0, "s3": 1.0}) == plan
    assert isinstance(again, ExactPlanner) and again.misses == 0


def alike(network: Network) -> Network:
    """The network with ties everywhere: every operator costs the same, every output weighs the same."""
    operators = {name: replace(op, cost=0.5 if op.cost else 0.0) for name, op in network.operators.items()}
    outputs = {name: Output(name, out.source) for name, out in network.outputs.items()}
    return replace(network, operators=operators, outputs=outputs)


ALIKE = networks(stream_outputs=True, node_cycles=True).map(alike)


@settings(max_examples=tries(30), deadline=None, derandomize=True)
@given(ALIKE, st.integers(0, 2**32 - 1))
def test_even_plans_are_optimal_and_feasible_at_any_rates(network: Network, seed: int) -> None:
    planner = ExactPlanner(Program(network))
    for _ in range(2):  # the second time from the map
        for rates in hard_rates(network, seed):
            plan = planner.plan(rates)
            check_plan(network, rates, plan)
            best = planner.optimum(np.array([rates[name] for name in network.streams]))
            # Twice the tolerance: a load within 1e-9 of the capacity is not cut, nor is a row of the second step.
            assert plan.score == pytest.approx(best, rel=2e-9, abs=1e-12)


@settings(max_examples=tries(30), deadline=None, derandomize=True)
@given(ALIKE, st.integers(0, 2**32 - 1))
def test_no_optimal_plan_is_more_even(network: Network, seed: int) -> None:
    program = Program(network)
    assume(program.size <= 12)
    planner = ExactPlanner(program)
    generator = np.random.default_rng(seed)
    limits = np.where(np.isfinite(program.max_feasible_rates), program.max_feasible_rates, 1.0)
    for _ in range(4):
        rates = limits * generator.uniform(0.3, 3.0, len(limits))
        if not program.overloaded(rates):
            continue
        flows, region = planner._solve(rates)
        found = planner._even(rates, flows, region)
        full = program.full_flow @ rates
        shares = np.divide(found, full, out=np.zeros_like(full), where=full > 0)
        assert shares == pytest.approx(most_even(program, rates), abs=2e-5)


def test_a_look_up_without_a_tie_solves_nothing() -> None:
    planner = ExactPlanner(Program(example("figure1")))
    for _ in range(3):
        planner.lookup(np.array([1.0, 1.0]))
    assert planner.misses == 1 and planner.evened == 0
