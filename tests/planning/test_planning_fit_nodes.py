"""D-FIT: node tables, what travels, deltas, upkeep after a change; large trees; plan files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from floodway.errors import InputError
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning import plan_file
from floodway.planning.exact import ExactPlanner
from floodway.planning.fit.cluster import cluster_forest
from floodway.planning.fit.dfit import DFitPlanner
from floodway.planning.fit.node import NodeTable
from floodway.planning.fit.planner import FitPlanner
from floodway.planning.fit.wire import (
    WireError,
    apply_delta,
    decode_delta,
    decode_table,
    encode_delta,
    encode_table,
    table_delta,
)
from floodway.planning.lp import LinearProgram
from floodway.planning.program import Program
from tests.oracles.plan_checks import check_plan, example, hard_rates


def tree(nodes: int, branching: int, *, seed: int = 0, streams: int = 2) -> Network:
    """Every node reads all that its parent emits; each stream splits to all children; leaves have the outputs."""
    generator = np.random.default_rng(seed)
    operators: dict[str, Operator] = {}
    outputs: dict[str, Output] = {}
    for i in range(nodes):
        for j in range(streams):
            source = f"s{j}" if i == 0 else f"o{(i - 1) // branching}.{j}"
            cost, selectivity = float(generator.uniform(0.2, 2)), float(generator.choice([0.5, 1.0, 1.5]))
            operators[f"o{i}.{j}"] = Operator(f"o{i}.{j}", f"n{i}", (source,), cost=cost, selectivity=selectivity)
            if branching * i + 1 >= nodes:
                weight = float(generator.uniform(0.5, 2))
                outputs[f"q{i}.{j}"] = Output(f"q{i}.{j}", f"o{i}.{j}", weight=weight)
    names = {f"s{j}": Stream(f"s{j}", 2.0) for j in range(streams)}
    return Network("tree", names, {f"n{i}": Node(f"n{i}") for i in range(nodes)}, operators, outputs)


def with_operator(network: Network, name: str, **changes: float) -> Network:
    operator = network.operators[name]
    changed = replace(operator, cost=changes.get("cost", operator.cost))
    changed = replace(changed, selectivity=changes.get("selectivity", operator.selectivity))
    return replace(network, operators={**network.operators, name: changed})


class TestClusters:
    def test_a_tree_stays_a_tree_of_nodes(self) -> None:
        clusters = cluster_forest(tree(7, 2))
        assert [cluster.nodes for cluster in clusters] == [(f"n{i}",) for i in range(7)]
        assert clusters[0].children == (1, 2)
        assert clusters[1].inputs == ("o0.0", "o0.1")

    def test_two_parents_are_planned_as_one(self) -> None:
        operators = {
            "a": Operator("a", "A", ("s",), cost=1.0),
            "b": Operator("b", "B", ("t",), cost=1.0),
            "c": Operator("c", "C", ("a",), cost=1.0),
            "d": Operator("d", "C", ("b",), cost=1.0),
        }
        network = Network(
            "y",
            {"s": Stream("s"), "t": Stream("t")},
            {name: Node(name) for name in "ABC"},
            operators,
            {"q": Output("q", "c"), "p": Output("p", "d")},
        )
        assert [cluster.nodes for cluster in cluster_forest(network)] == [("A", "B"), ("C",)]

    def test_a_stream_that_enters_below_joins_the_node_above(self) -> None:
        operators = {
            "a": Operator("a", "A", ("s",), cost=1.0),
            "b": Operator("b", "B", ("a",), cost=1.0),
            "c": Operator("c", "B", ("t",), cost=1.0),
        }
        outputs = {"q": Output("q", "b"), "p": Output("p", "c")}
        network = Network(
            "late", {"s": Stream("s"), "t": Stream("t")}, {"A": Node("A"), "B": Node("B")}, operators, outputs
        )
        assert [cluster.nodes for cluster in cluster_forest(network)] == [("A", "B")]


class TestWire:
    def table(self, rows: int = 300, inputs: int = 3) -> NodeTable:
        generator = np.random.default_rng(1)
        rates = generator.random((rows, inputs)) * 7
        return NodeTable(tuple("abcdefgh"[:inputs]), rates, rates @ np.arange(1.0, inputs + 1))

    def test_there_and_back_on_the_safe_side(self) -> None:
        table = self.table()
        found = decode_table(encode_table(table))
        assert found.inputs == table.inputs
        assert np.all(found.rates >= table.rates * (1 - 1e-12)) and np.allclose(found.rates, table.rates, atol=1e-6)
        assert np.all(found.scores <= table.scores * (1 + 1e-12)) and np.allclose(found.scores, table.scores, atol=1e-5)

    def test_smaller_than_the_papers_rows(self) -> None:
        for inputs in (2, 4, 8):
            table = self.table(1000, inputs)
            assert len(encode_table(table)) / len(table) < 4.2 * (inputs + 1) < 22 * inputs + 8

    def test_grids_send_their_axes_only(self) -> None:
        planner = DFitPlanner(Program(example("figure1")), 0.05)
        message = planner.sent[-1]
        found = decode_table(message)
        assert found.axes is not None and len(found) == (planner.steps + 1) ** 2
        assert len(message) / len(found) < 8
        assert np.array_equal(found.rates, planner.tables[-1].rates)

    def test_garbage_is_refused(self) -> None:
        message = encode_table(self.table())
        bad = [b"", b"FT", b"nonsense" * 9, message[:-1], message[:40] + message[41:], message + b"\0"]
        flipped = bytearray(message)
        flipped[len(message) // 2] ^= 1
        for wrong in (*bad, bytes(flipped)):
            with pytest.raises(WireError):
                decode_table(wrong)

    def test_an_honest_checksum_does_not_save_a_wrong_table(self) -> None:
        from floodway.planning.fit.wire import TABLE, frame

        ones = np.ones(4, dtype=np.int64)
        header: dict[str, object] = {"inputs": ["a"], "rows": 4, "units": [1.0, 1.0], "axes": None}
        assert len(decode_table(frame(TABLE, header, [ones, ones]))) == 4
        wrong: list[tuple[dict[str, object], list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]]] = [
            ({**header, "rows": 5}, [ones, ones]),
            ({**header, "rows": -4}, [ones, ones]),
            ({**header, "units": [1.0]}, [ones, ones]),
            ({**header, "units": [1.0, -1.0]}, [ones, ones]),
            ({**header, "units": ["x", 1.0]}, [ones, ones]),
            ({**header, "inputs": 3}, [ones, ones]),
            ({**header, "axes": [[0.0, 1.0]], "units": [1.0]}, [ones]),
            ({**header, "axes": [[0.0, 2.0, 1.0, 3.0]], "units": [1.0]}, [ones]),
            (header, [ones, -ones]),
            ({"inputs": []}, []),
        ]
        for head, columns in wrong:
            with pytest.raises(WireError):
                decode_table(frame(TABLE, head, columns))

    def test_a_version_of_tomorrow_is_named(self) -> None:
        message = bytearray(encode_table(self.table()))
        message[2] = 9
        with pytest.raises(WireError, match="format 9"):
            decode_table(bytes(message))


class TestDelta:
    def test_only_changed_rows_travel(self) -> None:
        old = DFitPlanner(Program(example("figure1")), 0.05).tables[-1]
        scores = old.scores.copy()
        scores[7:11] *= 1.5
        new = NodeTable(old.inputs, old.rates, scores, old.axes)
        delta = table_delta(old, new)
        assert len(delta.fresh) == 4 and delta.share == pytest.approx(4 / len(new))
        assert len(encode_delta(delta)) < len(encode_table(new))
        found = apply_delta(old, decode_delta(encode_delta(delta)))
        assert np.allclose(found.scores, new.scores, rtol=1e-6) and np.array_equal(found.rates, new.rates)
        assert found.axes is not None

    def test_tolerance_saves_rows_and_bounds_the_difference(self) -> None:
        generator = np.random.default_rng(4)
        rates = generator.random((500, 2))
        old = NodeTable(("a", "b"), rates, rates.sum(axis=1))
        new = NodeTable(("a", "b"), rates, old.scores * generator.uniform(0.8, 1.2, 500))
        sizes = []
        for tolerance in (0.0, 0.05, 0.1, 0.3):
            delta = table_delta(old, new, tolerance)
            sizes.append(len(delta.fresh))
            found = apply_delta(old, delta)
            assert np.all(np.abs(found.scores - new.scores) <= tolerance * new.scores + 1e-9)
        assert sizes == sorted(sizes, reverse=True) and sizes[0] == 500 and sizes[-1] == 0

    def test_rows_come_and_go(self) -> None:
        old = NodeTable(("a",), np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0.0, 1.0, 2.0, 3.0]))
        new = NodeTable(("a",), np.array([[0.0], [2.0], [2.5]]), np.array([0.0, 2.0, 2.2]))
        delta = decode_delta(encode_delta(table_delta(old, new)))
        assert delta.known.tolist() == [0, 2, -1]
        assert np.allclose(apply_delta(old, delta).rates, new.rates)
        with pytest.raises(WireError, match="does not have"):
            apply_delta(NodeTable(("a",), old.rates[:1], old.scores[:1]), delta)
        with pytest.raises(WireError, match="kind"):
            decode_delta(encode_table(new))


class TestDFit:
    def test_figure_1_reaches_the_optimum(self) -> None:
        planner = DFitPlanner(Program(example("figure1")), 0.02)
        plan = planner.plan({"s1": 1.0, "s2": 1.0})
        assert plan.score == pytest.approx(0.6, rel=0.02)
        assert planner.size > 0 and planner.wire_bytes > 0 and planner.build_seconds > 0
        assert planner.achieved_epsilon <= 0.02

    @pytest.mark.parametrize(("nodes", "branching", "streams"), [(15, 2, 2), (12, 1, 2), (13, 3, 1), (7, 2, 4)])
    def test_trees_with_splits_stay_within_epsilon(self, nodes: int, branching: int, streams: int) -> None:
        network = tree(nodes, branching, seed=nodes, streams=streams)
        program = Program(network)
        planner, exact = DFitPlanner(program, 0.05), ExactPlanner(program)
        assert len(planner.clusters) == nodes
        for rates in hard_rates(network, seed=5, count=10):
            plan = planner.plan(rates)
            check_plan(network, rates, plan)
            assert plan.score >= exact.plan(rates).score * 0.95 * (1 - 1e-9), rates

    @pytest.mark.parametrize("changes", [{"selectivity": 0.3}, {"cost": 1.9}])
    def test_a_change_rebuilds_the_node_and_those_above_only(self, changes: dict[str, float]) -> None:
        network = tree(15, 2, seed=2)
        before = DFitPlanner(Program(network), 0.05)
        changed = with_operator(network, "o8.0", **changes)
        after, anew = before.updated(changed), DFitPlanner(Program(changed), 0.05)
        assert after.sent == anew.sent
        assert {8, 3, 1, 0} >= set(after.rebuilt) - {i for i in range(15) if not _same(before, after, i)}
        for rates in hard_rates(changed, seed=3, count=8):
            assert after.plan(rates).score == pytest.approx(anew.plan(rates).score, rel=1e-9)

    def test_nothing_changed_rebuilds_nothing(self) -> None:
        network = tree(7, 2)
        planner = DFitPlanner(Program(network), 0.05)
        assert planner.updated(replace(network, name="again")).rebuilt == ()

    def test_wrong_epsilon(self) -> None:
        with pytest.raises(InputError, match="epsilon"):
            DFitPlanner(Program(example("figure1")), 2.0)


def _same(one: DFitPlanner, two: DFitPlanner, index: int) -> bool:
    return np.array_equal(one.ranges[index], two.ranges[index])


@pytest.mark.parametrize("branching", [2, 4])
def test_a_large_tree_is_carried_up_node_by_node(branching: int) -> None:
    network = tree(400, branching, seed=branching)
    program = Program(network)
    planner, lp = FitPlanner(program, 0.05), LinearProgram(program)
    assert planner.achieved_epsilon <= 0.02
    generator = np.random.default_rng(1)
    for rates in generator.random((8, 2)) * 3:
        plan = planner.plan(dict(zip(program.streams, rates.tolist(), strict=True)))
        check_plan(network, plan.rates, plan)
        assert plan.score >= program.score(lp.solve(rates)[0]) * 0.98


@pytest.mark.parametrize("name", ["figure1", "split", "diamond", "merge-join", "bandwidth-memory"])
@pytest.mark.parametrize("kind", [FitPlanner, DFitPlanner])
def test_plan_files(name: str, kind: type[FitPlanner] | type[DFitPlanner], tmp_path: Path) -> None:
    network = example(name)
    program = Program(network)
    planner = kind(program, 0.05)
    plan_file.save(planner, tmp_path / "plans")
    found = plan_file.load(tmp_path / "plans", program)
    assert isinstance(found, kind) and found.size == planner.size and found.epsilon == planner.epsilon
    for rates in hard_rates(network, seed=2, count=10):
        assert found.plan(rates).score == pytest.approx(planner.plan(rates).score, rel=1e-6, abs=1e-12)


def test_a_plan_file_of_a_large_tree(tmp_path: Path) -> None:
    program = Program(tree(400, 2))
    planner = FitPlanner(program, 0.05)
    plan_file.save(planner, tmp_path / "plans")
    found = plan_file.load(tmp_path / "plans", program)
    rates = {"s0": 1.0, "s1": 0.7}
    assert found.plan(rates) == planner.plan(rates)


@pytest.mark.parametrize("kind", [FitPlanner, DFitPlanner])
def test_plan_files_with_wrong_content_are_refused(kind: type[FitPlanner] | type[DFitPlanner]) -> None:
    for name in ("figure1", "split"):
        program = Program(example(name))
        meta, arrays = kind(program, 0.05).to_arrays()
        kind.from_arrays(program, meta, arrays)
        with pytest.raises(InputError):
            kind.from_arrays(program, {**meta, "epsilon": 7}, arrays)
        for key, array in arrays.items():
            with pytest.raises(InputError):
                kind.from_arrays(program, meta, {k: v for k, v in arrays.items() if k != key})
            with pytest.raises(InputError):
                kind.from_arrays(program, meta, {**arrays, key: array[:0]})
            if array.dtype == np.float64:
                with pytest.raises(InputError):
                    kind.from_arrays(program, meta, {**arrays, key: array * 1000 + 1})
