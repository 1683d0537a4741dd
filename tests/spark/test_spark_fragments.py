from __future__ import annotations

from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.spark.query.fragments import fragments


def network(
    operators: dict[str, tuple[str, tuple[str, ...], OperatorKind]], outputs: dict[str, str], streams: str = "s1 s2"
) -> Network:
    nodes = sorted({node for node, _, _ in operators.values()})
    return Network(
        "n",
        {name: Stream(name, 10.0) for name in streams.split()},
        {name: Node(name) for name in nodes},
        {name: Operator(name, node, inputs, kind, cost=0.1) for name, (node, inputs, kind) in operators.items()},
        {name: Output(name, source) for name, source in outputs.items()},
    )


MAP, AGG, UNION, JOIN = OperatorKind.MAP, OperatorKind.AGGREGATE, OperatorKind.UNION, OperatorKind.JOIN


def test_stateless_chains_of_a_node_share_one_query() -> None:
    net = network(
        {"a1": ("A", ("s1",), MAP), "a2": ("A", ("s2",), MAP), "b1": ("B", ("a1",), MAP), "b2": ("B", ("a2",), MAP)},
        {"q1": "b1", "q2": "b2"},
    )
    (main,) = fragments(net, "A")
    assert [spec.name for spec in main.sources] == ["s1", "s2"]
    assert main.tail == ("a1", "a2") and main.streaming == ()
    assert [str(arc) for arc in main.cut] == ["a1->b1", "a2->b2"]
    (below,) = fragments(net, "B")
    assert [(spec.name, spec.location) for spec in below.sources] == [("a1->b1", None), ("a2->b2", None)]
    assert below.outputs == ("q1", "q2")


def test_a_window_and_what_feeds_only_it_form_a_zone() -> None:
    net = network(
        {"parse": ("A", ("s1",), MAP), "count": ("A", ("parse",), AGG), "top": ("A", ("count",), MAP)},
        {"q": "top"},
        streams="s1",
    )
    (zone,) = fragments(net, "A")
    assert zone.name == "count"
    assert zone.streaming == ("parse", "count") and zone.tail == ("top",)
    assert zone.outputs == ("q",) and zone.cut == ()


def test_a_split_into_a_zone_is_cut_by_a_log() -> None:
    net = network(
        {"parse": ("A", ("s1",), MAP), "raw": ("A", ("parse",), MAP), "count": ("A", ("parse",), AGG)},
        {"q1": "raw", "q2": "count"},
        streams="s1",
    )
    by_name = {fragment.name: fragment for fragment in fragments(net, "A")}
    assert by_name["main"].tail == ("parse", "raw")
    assert [str(arc) for arc in by_name["main"].cut] == ["parse->count"]
    assert [spec.name for spec in by_name["count"].sources] == ["parse->count"]
    assert by_name["count"].outputs == ("q2",)


def test_a_split_stream_is_read_once_more_for_a_zone() -> None:
    net = network(
        {"raw": ("A", ("s1",), MAP), "count": ("A", ("s1",), AGG)}, {"q1": "raw", "q2": "count"}, streams="s1"
    )
    by_name = {fragment.name: fragment for fragment in fragments(net, "A")}
    assert by_name["count"].sources[0].location == "s1->count"
    assert by_name["main"].sources[0].location == "s1"


def test_aggregates_in_a_row_are_queries_of_their_own() -> None:
    net = network(
        {"o": ("A", ("s1",), MAP), "c1": ("A", ("o",), AGG), "m": ("A", ("c1",), MAP), "c2": ("A", ("m",), AGG)},
        {"q": "c2"},
        streams="s1",
    )
    first, second = fragments(net, "A")
    assert (first.name, first.streaming, [str(arc) for arc in first.cut]) == ("c1", ("o", "c1"), ["c1->m"])
    assert (second.name, second.streaming, second.outputs) == ("c2", ("m", "c2"), ("q",))
    assert [spec.name for spec in second.sources] == ["c1->m"]


def test_merging_after_state_belongs_to_the_zone() -> None:
    net = network(
        {"c1": ("A", ("s1",), AGG), "c2": ("A", ("s2",), AGG), "both": ("A", ("c1", "c2"), UNION)},
        {"q": "both"},
    )
    (zone,) = fragments(net, "A")
    assert zone.streaming == ("c1", "c2", "both")
    assert [spec.name for spec in zone.sources] == ["s1", "s2"]


def test_every_operator_runs_in_exactly_one_fragment() -> None:
    net = network(
        {
            "a": ("A", ("s1",), MAP),
            "b": ("A", ("a", "s2"), JOIN),
            "c": ("A", ("b",), MAP),
            "d": ("A", ("c",), AGG),
            "e": ("A", ("c",), MAP),
            "f": ("B", ("e",), MAP),
        },
        {"q1": "d", "q2": "f"},
    )
    seen = [name for node in net.nodes for fragment in fragments(net, node) for name in fragment.operators]
    assert sorted(seen) == sorted(net.operators)
