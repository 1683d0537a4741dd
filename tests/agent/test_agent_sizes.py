"""Bytes of links and state as batches show them, what is planned with them, and rates that a link has to carry."""

from __future__ import annotations

import numpy as np
import pytest

from floodway.agent.loop.sizes import MeasuredSizes, NetworkSizes
from floodway.agent.planes.dfit.own import NodeMeasures, as_measured, has_moved
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.network.file import parse_network
from floodway.network.flow import flows
from floodway.network.part import node_part
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from floodway.spark.query.fragment_query import FragmentReport
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.query.sinks import Written
from floodway.spark.query.state_meter import StateSize

NETWORK = parse_network("""
version: 1
streams: {s1: {max_rate: 400}, s2: {max_rate: 400}}
nodes: {A: {cpu: 1.0}, B: {cpu: 1.0, memory: 1e5}}
operators:
  wide: {node: A, from: s1, cost: 0.0001}
  thin: {node: A, from: s2, cost: 0.0001}
  b1: {node: B, from: wide, cost: 0.0001}
  count: {node: B, from: thin, kind: aggregate, window: 10s, group_by: key, cost: 0.0001}
outputs: {q1: {from: b1}, q2: {from: count}}
links: {A->B: {bandwidth: 1.2e5}}
""")
RATES = {"s1": 400.0, "s2": 400.0}


def report(
    delivered: dict[str, tuple[int, int]], entered: dict[str, int], held: dict[tuple[str, ...], StateSize], at: float
) -> FragmentReport:
    """A batch that delivered (tuples, bytes) to sinks."""
    lines = tuple(
        LedgerLine(
            query="q",
            batch=0,
            at=place,
            offered=count,
            kept=count,
            dropped=0,
            reason=Reason.SHEDDER,
            mode="enforce",
            plan="",
            keep_ppm=1_000_000,
            time_us=0,
        )
        for place, count in entered.items()
    )
    written = {
        sink: Written(np.array([0]), np.array([tuples]), bytes=size) for sink, (tuples, size) in delivered.items()
    }
    return FragmentReport("A", JournaledBatch(0, 0, {}), at, at, lines, written, held)


def test_the_bytes_of_a_link_are_what_was_appended_to_it() -> None:
    sizes = NetworkSizes(NETWORK)
    batch = {"wide->b1": (400, 224_000), "thin->count": (400, 24_000), "q1": (400, 99_999)}
    found = sizes.observe(report(batch, {}, {}, 1.0), ["wide", "thin"])
    assert found is not None and found.tuples == {"wide": 560.0, "thin": 60.0}
    assert sizes.observe(report(batch, {}, {}, 2.0), ["wide", "thin"]) is None  # nothing new
    again = {sink: (tuples, 0) for sink, (tuples, _) in batch.items()}
    assert sizes.observe(report(again, {}, {}, 3.0), ["wide", "thin"]) is None  # a replay writes nothing
    assert sizes.sent_bytes == {"wide->b1": 448_000, "thin->count": 48_000}


def test_the_links_of_a_node_are_its_parts_outputs() -> None:
    sizes = NetworkSizes(node_part(NETWORK, "A"))
    found = sizes.observe(report({"wide->b1": (200, 112_000)}, {}, {}, 1.0), ["wide"])
    assert found is not None and found.tuples == {"wide": 560.0}


def test_state_is_counted_for_the_tuples_of_a_window() -> None:
    sizes = NetworkSizes(NETWORK)
    for second in range(30):
        held = StateSize(50_000 + 300 * 100 * min(second + 1, 11), 100 * min(second + 1, 11))  # two tuples a row
        sizes.observe(report({}, {"thin->count": 200}, {("count",): held}, float(second)), ["b1", "count"])
    measured = sizes.measured()
    assert measured.states == {"count": pytest.approx(150.0)} and measured.fixed == {"B": pytest.approx(50_000.0)}
    assert measured.applied(NETWORK).nodes["B"].memory == pytest.approx(50_000.0)
    assert sizes.state_bytes == {"B": 50_000 + 300 * 100 * 11}
    planned = MeasuredSizes({}, {"count": 300.0}).applied(NETWORK)
    assert flows(planned, {"s1": 0.0, "s2": 10.0}).memory["B"] == 300.0 * 10.0 * 10.0


def test_with_measured_sizes_the_link_is_what_limits() -> None:
    declared = ExactPlanner(Program(NETWORK)).plan({**RATES, "s2": 50.0})
    assert not declared.drops  # 100 bytes a tuple are declared
    measured = MeasuredSizes({"wide": 560.0, "thin": 60.0}, {}).applied(NETWORK)
    plan = ExactPlanner(Program(measured)).plan({**RATES, "s2": 50.0})
    assert plan.keeps["s2"] == 1.0 and plan.keeps["s1"] == pytest.approx((1.2e5 - 3e3) / 224e3)


@pytest.mark.parametrize("scale", [0.25, 4.0, 40.0])
def test_a_faster_cpu_does_not_widen_a_link(scale: float) -> None:
    measured = MeasuredSizes({"wide": 560.0, "thin": 60.0}, {}).applied(NETWORK)
    plan = ExactPlanner(Program(measured)).plan({**RATES, "s2": 50.0}, scale)
    used = flows(measured, {**RATES, "s2": 50.0}, plan.keeps).bandwidth["A", "B"]
    assert 0.98 * 1.2e5 <= used <= 1.2e5 * (1 + 1e-9)


def test_what_a_node_tells_of_sizes_is_planned_with() -> None:
    measured = NodeMeasures({}, {}, 1.0, {"wide": 560.0, "gone": 9.0}, {"count": 300.0})
    network = as_measured(NETWORK, {"B": measured})
    assert network.operators["wide"].bytes == 560.0  # its neighbour's tuples, which it reads
    assert network.operators["count"].state_bytes == 300.0
    assert has_moved((), NodeMeasures({}, {}), measured, 0.1)
    assert not has_moved((), measured, measured, 0.1)
