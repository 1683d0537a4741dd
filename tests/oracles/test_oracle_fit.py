"""FIT against plain scans and brute force: the index, dominance, merges, boxes and the greedy local plan."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.experiments.staying_fit.propagation import merge_tables, through_pair, within_load
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.exact import ExactPlanner
from floodway.planning.fit.box import axis, box
from floodway.planning.fit.index import RowIndex, scan
from floodway.planning.fit.lattice import feasible_codes, rates_of
from floodway.planning.fit.leaf import leaf_table
from floodway.planning.fit.table import FitTable, without_dominated
from floodway.planning.program import Program
from tests.effort import tries

NUMBERS = st.integers(0, 2**32 - 1)


@settings(max_examples=tries(40), deadline=None, derandomize=True)
@given(NUMBERS, st.integers(1, 7), st.integers(1, 3), st.integers(2, 9))
def test_lattice_has_all_feasible_points_and_no_other(seed: int, inputs: int, resources: int, steps: int) -> None:
    steps = min(steps, 3) if inputs > 4 else steps
    share = np.random.default_rng(seed).integers(0, 9, (resources, inputs)) / 10
    points = [np.arange(steps + 1) / steps] * inputs
    codes = feasible_codes(points, share, 10**6)
    assert codes is not None
    every = np.array(list(itertools.product(range(steps + 1), repeat=inputs)))
    inside = np.all(every / steps @ share.T <= 1 + 1e-9, axis=1)
    assert codes.tolist() == every[inside].tolist()


@settings(max_examples=tries(60), deadline=None, derandomize=True)
@given(NUMBERS, st.integers(4, 7), st.integers(1, 4))
def test_index_finds_what_a_scan_finds(seed: int, inputs: int, resources: int) -> None:
    generator = np.random.default_rng(seed)
    share = generator.choice([0.0, 0.25, 0.5, 1.0], (resources, inputs))
    share[0] = np.maximum(share[0], 0.25)
    top = 1.0 / share.max(axis=0)
    points = [np.arange(7) * (t / 6) for t in top]
    codes = feasible_codes(points, share, 10**6)
    assert codes is not None
    value = generator.choice([0.5, 1.0, 2.0, 7.0], inputs)
    index = RowIndex(points, codes, value, share)
    rates = rates_of(points, codes)
    for _ in range(20):
        observed = top * generator.uniform(0, 1.5, inputs) * generator.choice([0.01, 1.0], inputs)
        best = float(np.minimum(rates[scan(rates, value, observed)], observed) @ value)
        found = index.best(observed)
        assert np.all(share @ found <= 1 + 1e-8)
        assert float(np.minimum(found, observed) @ value) == pytest.approx(best, rel=1e-12)


def test_index_of_the_full_table_looks_at_few_halves() -> None:
    points = [np.arange(11) / 10] * 8
    share = np.ones((1, 8))
    codes = feasible_codes(points, share, 10**6)
    assert codes is not None
    index = RowIndex(points, codes, np.arange(1.0, 9.0), share)
    assert (index.rows, index.work) == (43758, 3003)


@settings(max_examples=tries(60), deadline=None, derandomize=True)
@given(NUMBERS, st.integers(1, 4), st.integers(1, 300))
def test_dominance_equals_brute_force(seed: int, inputs: int, rows: int) -> None:
    generator = np.random.default_rng(seed)
    rates = generator.integers(0, 6, (rows, inputs)) / 2
    scores = generator.integers(0, 9, rows) / 4
    table = FitTable(tuple("abcd"[:inputs]), rates, scores, np.zeros(rows))
    kept = without_dominated(table)
    full = np.column_stack([rates, scores])
    beaten = [any(np.all(other >= row) and np.any(other > row) for other in full) for row in full]
    expected = {tuple(row) for row, bad in zip(full.tolist(), beaten, strict=True) if not bad}
    found = np.column_stack([kept.rates, kept.scores]).tolist()
    assert {tuple(row) for row in found} == expected
    assert len(found) == len(expected)


def _leaf(name: str, costs: tuple[float, ...], selectivity: float = 1.0) -> FitTable:
    streams = {f"{name}{i}": Stream(f"{name}{i}") for i in range(len(costs))}
    operators = {
        f"o{i}": Operator(f"o{i}", "N", (f"{name}{i}",), cost=cost, selectivity=selectivity)
        for i, cost in enumerate(costs)
    }
    outputs = {f"q{i}": Output(f"q{i}", f"o{i}") for i in range(len(costs))}
    program = Program(Network(name, streams, {"N": Node("N")}, operators, outputs))
    return leaf_table(program, [np.arange(5) / (4 * cost) for cost in costs])


def test_merge_equals_brute_force() -> None:
    left, right = _leaf("a", (1.0, 2.0)), _leaf("b", (4.0,), 0.5)
    cost = np.array([1.0, 0.5, 2.0])
    merged = within_load(merge_tables([left, right]), cost)
    expected = []
    for (one, score), (two, other) in itertools.product(
        zip(left.rates, left.scores, strict=True), zip(right.rates, right.scores, strict=True)
    ):
        row = [*one, *two]
        if np.dot(row, cost) <= 1 + 1e-9:
            expected.append((*row, score + other))
    found = np.column_stack([merged.rates, merged.scores])
    assert sorted(map(tuple, found.tolist())) == sorted(expected)
    assert np.all(merged.loads <= 1 + 1e-9)


@settings(max_examples=tries(40), deadline=None, derandomize=True)
@given(NUMBERS)
def test_pairs_of_a_join_or_union_make_the_rate(seed: int) -> None:
    generator = np.random.default_rng(seed)
    table = _leaf("a", (float(generator.uniform(0.5, 2)), 1.0))
    first, second = generator.uniform(0.2, 3, 2).tolist()
    points = np.arange(9) / 8 * float(table.rates[:, 0].max()) / first
    pairs = through_pair(table, 0, ("x", "y"), (first, second), points)
    assert pairs.inputs == ("x", "y", "a1")
    made = np.column_stack([pairs.rates[:, :2] @ [first, second], pairs.rates[:, 2], pairs.scores])
    known = np.column_stack([table.rates, table.scores])
    for row in made:
        assert np.abs(known - row).max(axis=1).min() < 1e-12
    # Both ends of every line are there: all from the first input, all from the second.
    for rate in np.unique(table.rates[:, 0]):
        ends = pairs.rates[np.isclose(pairs.rates[:, :2] @ [first, second], rate)]
        assert np.isclose(ends[:, 0].max(), rate / first) and np.isclose(ends[:, 1].max(), rate / second)


def _split(branches: list[tuple[float, float, float]], shared: float, streams: int) -> Network:
    operators: dict[str, Operator] = {}
    outputs: dict[str, Output] = {}
    for s in range(streams):
        operators[f"a{s}"] = Operator(f"a{s}", "N", (f"s{s}",), cost=shared * (s + 1))
        for i, (cost, selectivity, weight) in enumerate(branches):
            name = f"b{s}{i}"
            operators[name] = Operator(name, "N", (f"a{s}",), cost=cost / (s + 1), selectivity=selectivity)
            outputs[f"q{s}{i}"] = Output(f"q{s}{i}", name, weight=weight)
    names = {f"s{s}": Stream(f"s{s}") for s in range(streams)}
    return Network("split", names, {"N": Node("N")}, operators, outputs)


@settings(max_examples=tries(40), deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(1, 5)), min_size=2, max_size=4),
    st.integers(1, 8),
    st.integers(1, 2),
)
def test_greedy_local_plans_are_optimal(branches: list[tuple[int, int, int]], shared: int, streams: int) -> None:
    scaled = [(cost / 4, selectivity / 2, float(weight)) for cost, selectivity, weight in branches]
    program = Program(_split(scaled, shared / 4, streams))
    exact = ExactPlanner(program)
    tops = [min(1.0 / program.use[0][program.stream_of == s].min(), 4.0) for s in range(streams)]
    table = leaf_table(program, [np.arange(7) / 6 * top for top in tops])
    assert np.all(table.loads <= 1 + 1e-9)
    for rates, score in zip(table.rates, table.scores, strict=True):
        assert score == pytest.approx(exact.optimum(rates), rel=1e-7, abs=1e-9)


@settings(max_examples=tries(30), deadline=None, derandomize=True)
@given(NUMBERS, st.integers(1, 3))
def test_box_is_the_best_response_on_a_fine_grid(seed: int, resources: int) -> None:
    generator = np.random.default_rng(seed)
    share = generator.uniform(0.1, 1.5, (resources, 2))
    axes = (axis(2.0, 8), axis(2.0, 8))
    value = generator.uniform(0.2, 3, 2)
    cap = float(generator.uniform(0.5, 4))
    x, y = axes[0][:, None], axes[1][None, :]
    earned = np.minimum(value[0] * x + value[1] * y, cap)
    found = box(axes, share, earned)
    assert np.all(found.first <= x + 1e-12) and np.all(found.second <= y + 1e-12)
    used = share[:, :1, None] * found.first[None] + share[:, 1:, None] * found.second[None]
    assert np.all(used <= 1 + 1e-8)
    fine = np.linspace(0, 2, 81)
    fx, fy = fine[:, None], fine[None, :]
    feasible = np.all(share[:, 0, None, None] * fx + share[:, 1, None, None] * fy <= 1, axis=0)
    for i, j in itertools.product(range(9), range(9)):
        inside = feasible & (fx <= x[i]) & (fy <= y[0, j])
        best = float(np.where(inside, np.minimum(value[0] * fx + value[1] * fy, cap), 0.0).max())
        # Interpolation between grid points may lose some of a bend, the fine grid some of the boundary.
        assert 0.9 * best - 1e-9 <= found.scores[i, j] <= best + value.max() * 0.05 + 1e-9
