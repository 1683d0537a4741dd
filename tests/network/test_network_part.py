"""A node's part of a network: names, drop locations, and that the parts together are the whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.errors import InputError
from floodway.network.flow import flows
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.network.part import incoming, node_part, outgoing, part_keeps, whole_location
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from tests.oracles.plan_checks import example
from tests.strategies import keeps_for, networks, rates_for


def test_figure_1_is_cut_at_its_two_links() -> None:
    whole = example("figure1")
    above, below = node_part(whole, "A"), node_part(whole, "B")
    assert list(above.streams) == ["s1", "s2"] and list(above.outputs) == ["a1->b1", "a2->b2"]
    assert list(below.streams) == ["a1->b1", "a2->b2"] and list(below.outputs) == ["q1", "q2"]
    assert list(above.nodes) == ["A"] and below.operators["b1"].inputs == ("a1->b1",)
    assert below.streams["a1->b1"].max_rate == whole.streams["s1"].max_rate
    assert [str(arc) for arc in outgoing(whole, "A")] == [str(arc) for arc in incoming(whole, "B")]


def test_alone_node_a_does_what_the_papers_plan_2_does() -> None:
    plan = ExactPlanner(Program(node_part(example("figure1"), "A"))).plan({"s1": 1.0, "s2": 1.0})
    assert plan.keeps == pytest.approx({"s1": 1.0, "s2": 0.0}, abs=1e-6)


def test_a_branch_that_leaves_is_known_by_its_name_in_the_whole() -> None:
    operators = {
        "a": Operator("a", "A", ("s",), cost=1.0),
        "b": Operator("b", "A", ("a",), cost=1.0),
        "c": Operator("c", "C", ("a",), cost=1.0),
        "d": Operator("d", "C", ("a", "s"), OperatorKind.UNION, cost=1.0),
    }
    outputs = {name: Output(name, source) for name, source in (("q", "b"), ("p", "c"), ("r", "d"))}
    whole = Network("split", {"s": Stream("s")}, {"A": Node("A"), "C": Node("C")}, operators, outputs)
    part = node_part(whole, "A")
    assert part.drop_locations == ("s", "a->b", "a->a->c", "a->a->d")
    assert [whole_location(part, at) for at in part.drop_locations] == ["s", "a->b", "a->c", "a->d"]
    assert part.streams["s"].max_rate is None
    keeps = part_keeps(whole, part, {"s": 0.5, "s->a": 0.5, "a->c": 0.1})
    assert keeps == {"s": 0.25, "a->b": 1.0, "a->a->c": 0.1, "a->a->d": 1.0}
    other = node_part(whole, "C")
    assert set(other.streams) == {"s", "a->c", "a->d"} and other.streams["a->c"].max_rate is None
    assert part_keeps(whole, other, {"s": 0.5, "s->d": 0.5, "a->c": 0.1}) == {"s": 0.25, "a->c": 1.0, "a->d": 1.0}


def test_an_unknown_node_is_refused_with_a_hint() -> None:
    with pytest.raises(InputError, match="Did you mean"):
        node_part(example("figure1"), "a")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data(), networks(3, 8, 3))
def test_the_parts_together_carry_what_the_whole_carries(data: st.DataObject, network: Network) -> None:
    rates, keeps = data.draw(rates_for(network)), data.draw(keeps_for(network))
    whole = flows(network, rates, keeps)
    offered = dict(rates)
    # Nodes are numbered so that none feeds an earlier one.
    for node in sorted({op.node for op in network.operators.values()}):
        part = node_part(network, node)
        here = flows(part, {name: offered[name] for name in part.streams}, part_keeps(network, part, keeps))
        offered.update(here.throughput)
        assert here.load[node] == pytest.approx(whole.load[node])
        for name in network.outputs.keys() & part.outputs.keys():
            assert here.throughput[name] == pytest.approx(whole.throughput[name])
