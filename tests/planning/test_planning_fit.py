"""The checked FIT values of the two Borealis papers, and the planner on the example networks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from floodway.errors import InputError, PlanningError
from floodway.experiments.staying_fit.networks import fan_out
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.exact import ExactPlanner
from floodway.planning.fit.lattice import feasible_codes
from floodway.planning.fit.leaf import greedy_order, leaf_table
from floodway.planning.fit.planner import FitPlanner, SpreadRule
from floodway.planning.fit.spread import absolute_spreads, fixed_size_spreads, percent_points, steps, uniform_spreads
from floodway.planning.fit.table import FitTable, outside_triangle, without_dominated, without_similar
from floodway.planning.program import Program
from tests.oracles.plan_checks import EXAMPLES, check_plan, example, hard_rates


def node_b() -> Program:
    """Node B of Figure 1 as the short paper's FIT examples need it: selectivity 0.5 on the first chain."""
    operators = {
        "b1": Operator("b1", "B", ("s1",), cost=3.0, selectivity=0.5),
        "b2": Operator("b2", "B", ("s2",), cost=1.0),
    }
    streams = {"s1": Stream("s1", 1.0), "s2": Stream("s2", 1.0)}
    outputs = {"q1": Output("q1", "b1"), "q2": Output("q2", "b2")}
    return Program(Network("node-b", streams, {"B": Node("B")}, operators, outputs))


def table_of(program: Program, spreads: list[float]) -> FitTable:
    tops = program.max_feasible_rates
    return leaf_table(program, [steps(s, float(top)) for s, top in zip(spreads, tops, strict=True)])


def servers(inputs: int, cost: float = 0.1) -> Network:
    names = [f"s{i}" for i in range(inputs)]
    operators = {f"o{i}": Operator(f"o{i}", "N", (name,), cost=cost) for i, name in enumerate(names)}
    outputs = {f"q{i}": Output(f"q{i}", f"o{i}") for i in range(inputs)}
    return Network("flat", {name: Stream(name, 20.0) for name in names}, {"N": Node("N")}, operators, outputs)


class TestShortPaper:
    def test_maximum_rates_and_spreads(self) -> None:
        program = node_b()
        assert program.max_feasible_rates.tolist() == pytest.approx([1 / 3, 1.0])
        assert absolute_spreads(0.1, program.objective).tolist() == pytest.approx([0.1, 0.05])

    def test_48_feasible_points_in_exact_arithmetic(self) -> None:
        # The paper prints 46: two points on the boundary are lost to floating point.
        table = table_of(node_b(), [0.1, 0.05])
        assert len(table) == 48
        assert np.isclose(table.loads, 1.0).sum() == 4

    def test_best_entry(self) -> None:
        table = table_of(node_b(), [0.1, 0.05])
        best = int(table.scores.argmax())
        assert table.rates[best].tolist() == pytest.approx([0.0, 1.0])
        assert table.scores[best] == pytest.approx(1.0)

    def test_not_overloaded(self) -> None:
        table = table_of(node_b(), [0.1, 0.05])
        assert table.covers(np.array([0.2, 0.35]))
        assert not table.covers(np.array([0.5, 0.5]))

    def test_row_for_half_and_half(self) -> None:
        program = node_b()
        table = table_of(program, [0.05, 0.1])
        observed = np.array([0.5, 0.5])
        row, score = table.best(observed, program.objective)
        assert table.rates[row].tolist() == pytest.approx([0.15, 0.5])
        assert table.loads[row] == pytest.approx(0.95)
        assert score == pytest.approx(0.575)
        assert 1 - table.rates[row][0] / observed[0] == pytest.approx(0.7)

    def test_feasibility_triangle_of_b_seen_from_a(self) -> None:
        table = table_of(node_b(), [0.1, 0.05])
        rest = outside_triangle(table, np.array([1 / 3, 1 / 2]))
        assert 0 < len(rest) < len(table)
        gone = {tuple(row) for row in table.rates.tolist()} - {tuple(row) for row in rest.rates.tolist()}
        assert all(3 * x + 2 * y < 1 for x, y in gone)

    def test_without_dominated_rows_the_papers_rule_finds_no_row_but_min_does(self) -> None:
        program = node_b()
        rest = without_dominated(table_of(program, [0.1, 0.05]))
        observed = np.array([0.09, 0.79])
        assert not np.any(np.all(rest.rates <= observed, axis=1))
        assert rest.best(observed, program.objective)[1] > 0.78


class TestSplit:
    def test_greedy_order_is_bottom_then_input(self) -> None:
        program = Program(example("split"))
        bottom = max(program.network.operators.values(), key=lambda op: op.cost or 0.0)
        assert greedy_order(program) == (f"{bottom.inputs[0]}->{bottom.name}", *program.streams)

    def test_limits_and_score(self) -> None:
        program = Program(example("split"))
        assert program.max_feasible_rates.tolist() == [0.125]
        points = np.array([0.0, 0.125, 0.2, 1 / 3, 0.34])
        table = leaf_table(program, [points])
        assert table.rates.ravel().tolist() == pytest.approx([0.0, 0.125, 0.2, 1 / 3])
        assert table.scores.tolist() == pytest.approx([0.0, 0.25, 0.28, 1 / 3])
        assert table.plans is not None
        assert np.isinf(table.plans[1]).all()
        kept = table.plans[2][np.isfinite(table.plans[2])]
        assert kept.tolist() == pytest.approx([0.2 * 0.4])  # 60% of the lower branch dropped

    def test_planner_sheds_the_same(self) -> None:
        planner = FitPlanner(Program(example("split")), 0.02)
        stream = planner.program.streams[0]
        plan = planner.plan({stream: 0.2})
        assert plan.score == pytest.approx(0.28, rel=0.02)
        assert plan.keeps[stream] == pytest.approx(1.0)


@pytest.mark.parametrize(("inputs", "rows"), [(2, 66), (4, 1001), (8, 43758)])
def test_uniform_grid_of_one_server(inputs: int, rows: int) -> None:
    assert rows == math.comb(10 + inputs, inputs)
    planner = FitPlanner(Program(servers(inputs)), 0.1, spread=SpreadRule.UNIFORM)
    assert planner.size == rows


def test_eight_inputs_take_the_papers_grid_by_themselves() -> None:
    planner = FitPlanner(Program(servers(8)), 0.1)
    assert planner.size == 43758
    assert planner.achieved_epsilon <= 0.1


class TestSpreads:
    def test_percent_points(self) -> None:
        points = percent_points(0.1, 2.0, 2)
        assert points[0] == 0.0 and points[-1] == 2.0
        assert np.allclose(points[1:-1] / points[2:], 0.9)
        assert points[1] >= 0.1 * 2.0 / 2 > points[1] * 0.9

    def test_fixed_size_fits_and_has_equal_errors(self) -> None:
        top, selectivity = np.array([1.0, 2.0, 5.0]), np.array([1.0, 0.5, 3.0])
        spreads = fixed_size_spreads(1000, top, selectivity)
        points = np.prod([len(steps(s, t)) for s, t in zip(spreads, top, strict=True)])
        assert 400 < points <= 1000
        assert np.allclose(spreads * selectivity, (spreads * selectivity)[0])

    def test_uniform(self) -> None:
        assert uniform_spreads(0.1, np.array([2.0])).tolist() == [0.2]

    def test_wrong_bounds_are_refused(self) -> None:
        with pytest.raises(InputError, match="positive"):
            steps(0.0, 1.0)
        with pytest.raises(InputError, match="positive"):
            uniform_spreads(-0.1, np.array([1.0]))
        with pytest.raises(InputError, match="outside"):
            percent_points(1.0, 1.0, 2)
        with pytest.raises(InputError, match="at least 8"):
            fixed_size_spreads(7, np.ones(3), np.ones(3))


def test_similar_rows_leave_the_best_and_the_lightest() -> None:
    rates = np.array([[0.1, 0.1], [0.12, 0.11], [0.14, 0.1], [0.9, 0.1]])
    table = FitTable(("x", "y"), rates, np.array([1.0, 2.0, 2.01, 0.5]), np.array([0.1, 0.9, 0.3, 0.2]))
    rest = without_similar(table, np.array([0.2, 0.2]), score_step=0.5)
    assert rest.scores.tolist() == [2.01, 0.5]


def test_too_many_rows_are_refused_in_words() -> None:
    points = [np.arange(101) / 100] * 8
    assert feasible_codes(points, np.ones((1, 8)), 10**6) is None
    with pytest.raises(PlanningError, match="exact planner"):
        leaf_table(Program(servers(8)), [p * 10 for p in points])


def measured_examples() -> list[str]:
    """Example networks whose costs are all written down."""
    names = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
    return [n for n in names if all(op.cost is not None for op in example(n).operators.values())]


@pytest.mark.parametrize("name", measured_examples())
def test_examples_stay_within_epsilon(name: str) -> None:
    network = example(name)
    program = Program(network)
    planner, exact = FitPlanner(program, 0.05), ExactPlanner(program)
    for rates in hard_rates(network, seed=7, count=30):
        plan = planner.plan(rates)
        check_plan(network, rates, plan)
        assert plan.score >= exact.plan(rates).score * 0.95 * (1 - 1e-9)


def test_sixteen_inputs_on_two_servers_keep_epsilon() -> None:
    generator = np.random.default_rng(3)
    network = servers(16)
    operators = dict(network.operators)
    for i in range(16):
        operators[f"o{i}"] = Operator(f"o{i}", "N", (f"s{i}",), cost=float(generator.uniform(0.05, 1)))
        operators[f"p{i}"] = Operator(f"p{i}", "M", (f"o{i}",), cost=float(generator.uniform(0.05, 1)))
    outputs = {f"q{i}": Output(f"q{i}", f"p{i}", weight=float(generator.uniform(0.5, 3))) for i in range(16)}
    wide = Network("wide", network.streams, {"N": Node("N"), "M": Node("M")}, operators, outputs)
    program = Program(wide)
    planner, exact = FitPlanner(program, 0.02), ExactPlanner(program)
    assert planner.size <= 100_000
    for rates in hard_rates(wide, seed=1, count=30):
        assert planner.plan(rates).score >= exact.plan(rates).score * 0.98 * (1 - 1e-9)


def test_splits_over_too_many_streams_are_refused_with_the_exact_planner_named() -> None:
    network = servers(12)
    outputs = dict(network.outputs)
    operators = dict(network.operators)
    for i in range(12):
        operators[f"p{i}"] = Operator(f"p{i}", "N", (f"o{i}",), cost=0.2)
        outputs[f"r{i}"] = Output(f"r{i}", f"p{i}")
    with pytest.raises(PlanningError, match="exact planner"):
        FitPlanner(Program(Network("wide", network.streams, network.nodes, operators, outputs)), 0.05)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, math.nan, math.inf])
def test_wrong_epsilon(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon"):
        FitPlanner(node_b(), epsilon)


def test_free_streams_are_never_dropped() -> None:
    network = Network(
        "free",
        {"s": Stream("s", 5.0), "f": Stream("f", 5.0)},
        {"N": Node("N")},
        {"o": Operator("o", "N", ("s",), cost=1.0), "z": Operator("z", "N", ("f",), cost=0.0)},
        {"q": Output("q", "o"), "p": Output("p", "z")},
    )
    plan = FitPlanner(Program(network), 0.05).plan({"s": 4.0, "f": 1e6})
    assert plan.keeps["f"] == 1.0
    assert plan.throughput["q"] == pytest.approx(1.0)


def test_tables_of_splits_reach_rates_that_only_drops_make_useful() -> None:
    """The most a split can use is far above what it can bear whole; the table must be as good there, unaided."""
    for branches in (2, 8, 16):
        planner = FitPlanner(Program(fan_out(branches)), 0.01)
        optimum = ExactPlanner(planner.program)
        for rate in np.linspace(0.5, 10.0, 60):
            rates = np.array([rate])
            if planner.program.overloaded(rates):
                score = planner.program.score(planner.flows(rates))
                assert score >= 0.99 * optimum.optimum(rates)
        assert planner.solved == 0
