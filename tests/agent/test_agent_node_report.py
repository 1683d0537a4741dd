"""The report over several nodes, from files as nodes leave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.agent.node.nodes_report import NodesReport, report_nodes
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.status.batches import Batch, BatchLog, Sketch
from floodway.network.file import parse_network
from floodway.spark.query.layout import NodeLayout
from tests.agent.nodes import FIGURE1


def batch_of(node: str, batch: int, ended: float, work: float, delivered: dict[str, int]) -> Batch:
    """A batch of two seconds."""
    return Batch(
        query=f"{node}.main",
        batch=batch,
        cut_seconds=ended - 2.0,
        ended_seconds=ended,
        latencies=Sketch.of([(5.0, sum(delivered.values()))] if node == "B" else []),
        delivered=delivered,
        work_seconds=work,
        busy_seconds=2.0,
        scale=0.8,
    )


def report(tmp_path: Path) -> NodesReport:
    """Plan 4 at 80% of both CPUs: batches of 2 s that end at 100, 102, …; those from 104 on are measured.

    The load has just ended: of the tuples that the batches are offered, a tenth arrives meanwhile.
    """
    layout = NodeLayout(tmp_path)
    logs = {node: BatchLog(layout.own(node).store) for node in "AB"}
    for batch in range(6):
        ended = 100.0 + 2.0 * batch
        logs["A"].append(batch_of("A", batch, ended, 1.6, {"a1->b1": 32, "a2->b2": 64}))
        logs["B"].append(batch_of("B", batch, ended, 1.6, {"q1": 32, "q2": 64}))
        Ledger(layout.own("A").store).append(
            [
                LedgerLine("A.main", batch, "s1", Reason.SHEDDER, 200, 32, 168),
                LedgerLine("A.main", batch, "s2", Reason.SHEDDER, 200, 64, 136),
            ]
        )
    Ledger(layout.own("B").store).append([LedgerLine("B.main", 0, "a1->b1", Reason.SHEDDER, 32, 30, 2)])
    return report_nodes(
        parse_network(FIGURE1),
        layout,
        control="dfit",
        target_seconds=6.0,
        rates={"s1": 10.0, "s2": 10.0},
        window=(103.0, 111.0),
        restarts={"A": 0, "B": 2},
    )


def test_capacity_and_optimum_are_those_of_the_batches(tmp_path: Path) -> None:
    found = report(tmp_path)
    assert {name: node.capacity for name, node in found.nodes.items()} == pytest.approx({"A": 0.8, "B": 0.8})
    assert found.optimum == pytest.approx(0.8 * 60.0)
    assert found.nominal_optimum == pytest.approx(60.0)
    assert found.throughput == pytest.approx({"q1": 16.0, "q2": 32.0})
    assert found.score == pytest.approx(found.optimum)
    assert found.latency.mean == pytest.approx(5.0)


def test_accounts_are_told_by_node_and_together(tmp_path: Path) -> None:
    body = report(tmp_path).to_dict()
    assert body["nodes"]["A"]["dropped"] == {"s1": {"shedder": 6 * 168}, "s2": {"shedder": 6 * 136}}
    assert body["nodes"]["B"]["restarts"] == 2
    assert body["offered"] == {"s1": 1200, "s2": 1200, "a1->b1": 32}
    assert body["dropped"] == {**body["nodes"]["A"]["dropped"], "a1->b1": {"shedder": 2}}
    required = {"offered", "kept", "dropped", "reconciled", "latency", "score", "optimum", "load"}
    assert required <= body.keys()


def test_a_node_without_batches_counts_with_its_nominal_capacity(tmp_path: Path) -> None:
    layout = NodeLayout(tmp_path)
    Ledger(layout.own("A").store).append([LedgerLine("A.main", 0, "s1", Reason.SHEDDER, 0, 0, 0)])
    found = report_nodes(
        parse_network(FIGURE1),
        layout,
        control="alone",
        target_seconds=6.0,
        rates={"s1": 100.0, "s2": 100.0},
        window=(0.0, 1.0),
        restarts={},
    )
    assert found.score == 0.0
    assert found.optimum == pytest.approx(60.0)
    assert found.latency.mean is None
