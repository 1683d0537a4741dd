"""Which drops go by windows, and by which: read from the network alone."""

from __future__ import annotations

import pytest

from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_shapes import DropKind, common_keeps, drop_kind, location_consumers

SECOND = 1_000_000


def network(operators: str, outputs: str, streams: str = "s: {max_rate: 10}") -> Network:
    lines = "\n".join(f"  {line}" for line in operators.strip().splitlines())
    head = f"version: 1\nname: n\nstreams: {{{streams}}}\nnodes: {{A: {{}}}}\n"
    return parse_network(f"{head}operators:\n{lines}\noutputs: {{{outputs}}}\n")


def kind_at(net: Network, location: str = "s") -> DropKind:
    return drop_kind(net, location_consumers(net, location))


def seconds(size: float, slide: float) -> WindowShape:
    return WindowShape(round(size * SECOND), round(slide * SECOND))


COUNT = "count: {node: A, from: parse, kind: aggregate, window: 10s, slide: 5s, cost: 0}"
PARSE = "parse: {node: A, from: s, cost: 0.1}"


def test_a_drop_above_an_aggregate_takes_its_windows() -> None:
    net = network(f"{PARSE}\n{COUNT}", "q: {from: count}")
    assert kind_at(net) == DropKind(seconds(10, 5))


def test_a_drop_with_no_aggregate_below_is_random_and_needs_no_reason() -> None:
    assert kind_at(network(PARSE, "q: {from: parse}")) == DropKind()


def test_aggregates_side_by_side_share_a_drop_by_fan_out_and_branches_have_their_own() -> None:
    other = "sums: {node: A, from: parse, kind: aggregate, window: 6s, slide: 3s, cost: 0}"
    net = network(f"{PARSE}\n{COUNT}\n{other}", "q: {from: count}, p: {from: sums}")
    assert kind_at(net) == DropKind(seconds(15 + 5, 15))
    assert kind_at(net, "parse->count") == DropKind(seconds(10, 5))
    assert kind_at(net, "parse->sums") == DropKind(seconds(6, 3))


def test_aggregates_in_a_row_are_one_pipeline() -> None:
    other = "most: {node: A, from: count, kind: aggregate, window: 60s, cost: 0}"
    net = network(f"{PARSE}\n{COUNT}\n{other}", "q: {from: most}")
    assert kind_at(net) == DropKind(seconds(10 + 60 - 5, 60))


def test_windows_that_leave_and_go_on_are_both_covered() -> None:
    other = "most: {node: A, from: count, kind: aggregate, window: 60s, cost: 0}"
    net = network(f"{PARSE}\n{COUNT}\n{other}", "q: {from: count}, p: {from: most}")
    assert kind_at(net) == DropKind(seconds(60 + 5, 60))


@pytest.mark.parametrize(
    ("operators", "outputs", "reason"),
    [
        (f"{PARSE}\ncount: {{node: A, from: parse, kind: aggregate, cost: 0}}", "q: {from: count}", "names no window"),
        (
            f"{PARSE}\n{COUNT}\nboth: {{node: A, from: [count, parse], kind: union, cost: 0}}",
            "q: {from: both}",
            "merges windows with single tuples",
        ),
        (
            f"{PARSE}\n{COUNT}\nj: {{node: A, from: [count, parse], kind: join, windows: [5, 5], cost: 0}}",
            "q: {from: j}",
            "joins",
        ),
        (
            f"{PARSE}\n{COUNT}\nnames: {{node: A, from: count, cost: 0}}\n"
            "most: {node: A, from: names, kind: aggregate, window: 60s, cost: 0}",
            "q: {from: names}, p: {from: most}",
            "both leave and continue",
        ),
        (
            f"{PARSE}\ncount: {{node: A, from: parse, kind: aggregate, window: 1h, slide: 1s, cost: 0}}",
            "q: {from: count}",
            "more than 1000",
        ),
    ],
)
def test_where_windows_cannot_be_dropped_whole_the_reason_is_told(operators: str, outputs: str, reason: str) -> None:
    kind = kind_at(network(operators, outputs))
    assert kind.shape is None
    assert reason in kind.reason


def test_streams_that_meet_in_an_aggregate_keep_the_same_windows() -> None:
    net = network(
        "u: {node: A, from: [s, t], kind: union, cost: 0}\n"
        "count: {node: A, from: u, kind: aggregate, window: 10s, cost: 0}\n"
        "alone: {node: A, from: v, kind: aggregate, window: 10s, cost: 0}",
        "q: {from: count}, p: {from: alone}",
        streams="s: {max_rate: 1}, t: {max_rate: 1}, v: {max_rate: 1}",
    )
    assert common_keeps(net, {"s": 0.5, "t": 0.2, "v": 0.9}) == {"s": 0.2, "t": 0.2, "v": 0.9}
