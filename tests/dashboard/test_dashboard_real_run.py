"""A real run on real Spark: page, metrics and report say what the run itself reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from floodway.agent.loop.feeding import Feed
from floodway.agent.loop.run_files import saved_report
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.dashboard.report import make_report
from floodway.dashboard.serve import page_server
from floodway.job.fold import Counts
from floodway.job.ledger import Ledger
from floodway.network.file import parse_network

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.timing]

SPLIT = """
version: 1
name: page-run
streams: {s: {max_rate: 800}}
nodes: {A: {cpu: 1.0}}
operators:
  shared: {node: A, from: s, kind: delay, cost: 0.0005}
  cheap: {node: A, from: shared, kind: delay, cost: 0.0002}
  dear: {node: A, from: shared, kind: delay, cost: 0.004}
outputs: {q1: {from: cheap}, q2: {from: dear}}
"""


def test_page_metrics_and_report_agree_with_the_run(spark: Session, tmp_path: Path) -> None:
    network = parse_network(SPLIT, source="page-run")
    root = tmp_path / "state"
    root.mkdir()
    seen: list[dict[str, Any]] = []
    with page_server([root]) as server:
        # A generous target: the run then drains for as long as a first batch takes on a busy machine.
        options = RunOptions(
            seconds=6.0, root=root, target_seconds=25.0, feeds={"s": Feed(rate=200.0)}, settle_seconds=0.0
        )
        result = run_network(network, options, spark)
        snapshot = httpx.get(f"{server.url}/v1/page/snapshot", trust_env=False).json()
        metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
        seen += snapshot["jobs"]
    (job,) = seen
    lines = Ledger(root / "ledger.jsonl").read()
    counted = Counts.of(lines).to_dict()
    assert result.counts.to_dict() == counted
    shown = {key: {at: one[key] for at, one in job["places"].items()} for key in ("offered", "kept", "dropped")}
    assert {**shown, "dropped": {at: one for at, one in shown["dropped"].items() if one}} == counted
    assert job["ledger"]["differences"] == []
    assert job["has_picture"]
    assert job["latency"]["target"] == 25.0
    assert f'floodway_offered_tuples_total{{job_name="page-run",place="s"}} {result.counts.offered["s"]:.1f}' in metrics
    report = make_report(root)
    assert report.to_dict()["offered"] == counted["offered"]
    assert report.status.latency.to_dict() == saved_report(root)["latency"] == result.latency.to_dict()
    delivered = sum(line.kept for line in lines if line.reason == "delivered" and line.at in network.outputs)
    assert sum(batch.latencies.count for batch in report.batches) == delivered
