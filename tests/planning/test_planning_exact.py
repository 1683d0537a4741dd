"""The exact planner: the papers' checked values, the region map, what it does at its limits."""

from __future__ import annotations

import numpy as np
import pytest

from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.planning import exact
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from tests.oracles.path_lp import brute_force_optimum
from tests.oracles.plan_checks import example


def test_table_1_plan_4() -> None:
    plan = ExactPlanner(Program(example("figure1"))).plan({"s1": 1.0, "s2": 1.0})
    assert plan.keeps == pytest.approx({"s1": 1 / 5, "s2": 2 / 5}, abs=1e-12)
    assert plan.load == pytest.approx({"A": 1.0, "B": 1.0}, abs=1e-12)
    assert plan.throughput == pytest.approx({"q1": 1 / 5, "q2": 2 / 5}, abs=1e-12)
    assert plan.score == pytest.approx(0.6, abs=1e-12)


def test_split_example_sheds_the_bottom_branch() -> None:
    planner = ExactPlanner(Program(example("split")))
    plan = planner.plan({"s": 0.2})
    assert plan.score == pytest.approx(0.28, abs=1e-12)
    assert plan.drops == pytest.approx({"shared->bottom": 0.4}, abs=1e-12)
    assert planner.plan({"s": 1 / 8}).drops == {}
    # Up to 1/3 the input is kept whole; beyond, the cheap branch alone fills the node.
    assert planner.plan({"s": 1 / 3}).keeps["s"] == pytest.approx(1.0)
    assert planner.plan({"s": 0.5}).keeps == pytest.approx({"s": 2 / 3, "shared->top": 1.0, "shared->bottom": 0.0})


def test_nested_splits_recover_keeps_by_ratios() -> None:
    network = example("two-level-split")
    planner = ExactPlanner(Program(network))
    (stream,) = network.streams
    for rate in (0.05, 0.2, 1.0, 5.0):
        plan = planner.plan({stream: rate})
        assert plan.score == pytest.approx(planner.optimum(np.array([rate])), rel=1e-9)
        assert all(0.0 <= keep <= 1.0 for keep in plan.keeps.values())


def merged(kind: OperatorKind) -> Network:
    windows = (2.0, 5.0) if kind is OperatorKind.JOIN else None
    selectivity = 0.3 if kind is OperatorKind.JOIN else 1.0
    merge = Operator("m", "A", ("l", "r"), kind, cost=1.0, selectivity=selectivity, windows=windows)
    streams = {"l": Stream("l", 2.0), "r": Stream("r", 2.0)}
    return Network("merged", streams, {"A": Node("A")}, {"m": merge}, {"q": Output("q", "m")})


SMALL = {
    "figure1": example("figure1"),
    "figure1-short": example("figure1-short"),
    "split": example("split"),
    "union": merged(OperatorKind.UNION),
    "join": merged(OperatorKind.JOIN),
}


@pytest.mark.parametrize("name", SMALL)
def test_optimum_equals_the_best_vertex(name: str) -> None:
    network = SMALL[name]
    planner = ExactPlanner(Program(network))
    generator = np.random.default_rng(7)
    for _ in range(4):
        tops = [stream.max_rate or 1.0 for stream in network.streams.values()]
        rates = dict(zip(network.streams, (generator.uniform(0, 1, len(tops)) * tops).tolist(), strict=True))
        best = brute_force_optimum(network, rates)
        assert planner.plan(rates).score == pytest.approx(best, rel=1e-7, abs=1e-9)


def test_join_sheds_the_input_that_brings_less() -> None:
    # A tuple of l meets 5·0.3 of r, one of r meets 2·0.3 of l, and both cost the same: l first.
    plan = ExactPlanner(Program(merged(OperatorKind.JOIN))).plan({"l": 0.6, "r": 1.0})
    assert plan.keeps == pytest.approx({"l": 1.0, "r": 0.4})
    assert plan.score == pytest.approx(0.6 * 1.5 + 0.4 * 0.6)


def test_union_fills_its_node() -> None:
    plan = ExactPlanner(Program(merged(OperatorKind.UNION))).plan({"l": 0.6, "r": 1.0})
    assert plan.score == pytest.approx(1.0) and plan.load["A"] == pytest.approx(1.0)


def test_a_region_found_at_a_zero_rate_is_right_beyond_it() -> None:
    planner = ExactPlanner(Program(example("figure9-64-32")))
    planner.optimum(np.array([100.0, 0.0]))
    planner.optimum(np.array([0.0, 100.0]))
    assert planner.optimum(np.array([100.0, 50.0])) == pytest.approx(2000 / 96)


def test_second_look_up_comes_from_the_map() -> None:
    planner = ExactPlanner(Program(example("figure1")))
    first = planner.lookup(np.array([1.0, 1.0]))
    second = planner.lookup(np.array([1.1, 0.9]))
    assert planner.misses == 1 and planner.size == 1
    # The same corner of the constraints: flows stay, keeps follow the rates.
    assert (second * [1.1, 0.9]).tolist() == pytest.approx(first.tolist())


def test_map_is_bounded_in_memory() -> None:
    network = example("figure1")
    small = ExactPlanner(Program(network), map_bytes=2500)
    roomy = ExactPlanner(Program(network))
    generator = np.random.default_rng(3)
    for rates in 10 ** generator.uniform(-3, 1, (500, 2)):
        assert small.optimum(rates) == pytest.approx(roomy.optimum(rates), rel=1e-9)
    none = ExactPlanner(Program(network), map_bytes=0)
    assert none.optimum(np.array([1.0, 1.0])) == pytest.approx(0.6) and none.size == 0


def test_dry_streams_show_no_drop() -> None:
    plan = ExactPlanner(Program(example("figure1"))).plan({"s1": 5.0, "s2": 0.0})
    assert set(plan.drops) == {"s1"}


def test_identical_streams_do_not_multiply_regions() -> None:
    planner = ExactPlanner(Program(example("figure9-48-48")))
    for rates in np.random.default_rng(0).uniform(0, 40, (400, 2)):
        planner.flows(rates)
    assert planner.size <= 6


def test_both_searches_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    network = example("figure9-64-32")
    rates = np.random.default_rng(11).uniform(0, 60, (400, 2))
    rates[::50, 0] = 0.0  # dry streams too
    small, large = ExactPlanner(Program(network)), ExactPlanner(Program(network))
    for point in rates:
        assert small.lookup(point).tolist() == pytest.approx(small.lookup(point).tolist(), abs=1e-9)
    monkeypatch.setattr(exact, "SMALL_MAP_ROWS", 0)
    for point in rates:
        large.lookup(point)
        assert large.lookup(point).tolist() == pytest.approx(small.lookup(point).tolist(), abs=1e-9)
    assert large.misses < len(rates)
