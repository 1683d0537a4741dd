"""Nodes as processes on real Spark: D-FIT and the coordinator get what the LP promises, uncoordinated nodes do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.agent.node.node_options import Control
from floodway.agent.node.nodes_report import NodesReport
from floodway.agent.node.up import UpOptions, bring_up
from floodway.experiments.on_spark.runs import uncoordinated
from floodway.job.options.values import Target
from floodway.network.file import parse_network
from tests.agent.nodes import FIGURE1, THREE_NODES

pytestmark = [pytest.mark.spark, pytest.mark.timing, pytest.mark.slow]

TARGET = 12.0
"""Half of it is one node's share, two thirds of that one batch: long against the second or more that a batch costs two
Spark applications on two cores, whatever is in it.
"""
SECONDS = 100.0


def run(folder: Path, text: str, control: Control, *, seconds: float = SECONDS, target: float = TARGET) -> NodesReport:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "net.yaml"
    file.write_text(text)
    options = UpOptions(
        network_file=file,
        root=folder / "state",
        seconds=seconds,
        control=control,
        target=Target(target),
        settle_seconds=0.5 * seconds,  # until the compilers of both Java processes have come to rest
    )
    report = bring_up(parse_network(text), options)
    assert report.differences == ()
    assert sum(report.restarts.values()) == 0
    assert all(link.unfinished == 0 and link.waiting == 0 for link in report.links)
    return report


def predicted(report: NodesReport, text: str) -> float:
    """What uncoordinated nodes with the same CPU would get."""
    capacity = {name: node.capacity for name, node in report.nodes.items()}
    return uncoordinated(parse_network(text), report.rates, capacity)


def test_dfit_reaches_the_optimum_of_two_nodes(tmp_path: Path) -> None:
    report = run(tmp_path, FIGURE1, "dfit")
    assert report.score >= 0.95 * report.optimum
    assert report.score >= 1.4 * predicted(report, FIGURE1)
    assert report.throughput["q2"] > report.throughput["q1"] > 0  # plan 4: twice as much of s2
    dropped = report.to_dict()["dropped"]
    at_links = sum(sum(reasons.values()) for at, reasons in dropped.items() if "->" in at)
    at_streams = sum(sum(reasons.values()) for at, reasons in dropped.items() if "->" not in at)
    assert at_links < 0.05 * at_streams  # shed at the source, not three queues later


def test_alone_dfit_and_coordinator_side_by_side(tmp_path: Path) -> None:
    alone = run(tmp_path / "alone", FIGURE1, "alone")
    dfit = run(tmp_path / "dfit", FIGURE1, "dfit")
    coordinated = run(tmp_path / "coordinator", FIGURE1, "coordinator")
    # Table 1, plan 2: the first node passes on all of s1 that it can and nothing of s2.
    assert alone.score == pytest.approx(predicted(alone, FIGURE1), rel=0.15)
    assert alone.throughput["q2"] < 0.1 * alone.throughput["q1"]
    for report in (dfit, coordinated):
        assert report.score >= 0.95 * report.optimum
        # Runs one after the other have different capacities on a machine that others use: each by its own optimum.
        assert report.score / report.optimum >= 1.4 * alone.score / alone.optimum


def test_three_nodes_shed_at_the_source_for_the_last(tmp_path: Path) -> None:
    report = run(tmp_path, THREE_NODES, "dfit", seconds=120.0, target=24.0)
    assert report.score >= 0.9 * report.optimum
    assert report.score >= 1.2 * predicted(report, THREE_NODES)
