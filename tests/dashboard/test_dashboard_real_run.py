"""A real run on real Spark: page, metrics and report say what the run itself reports."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest

from floodway.agent.loop.run_files import saved_report
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.dashboard.job_report import make_report
from floodway.dashboard.routes import page_server
from floodway.job.ledger.fold import Counts
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.values import Target
from floodway.job.status.batches import Sketch
from floodway.job.status.status import Status
from floodway.job.store.store import LocalStore
from floodway.network.file import parse_network
from floodway.spark.log import LogWriter, create_log
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark

SPLIT = """
version: 1
name: page-run
streams: {{s: {{max_rate: 800, log: {log}}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators:
  shared: {{node: A, from: s, run: 'tests.agent.waiting_service:call_half_ms', cost: 0.0005}}
  cheap: {{node: A, from: shared, run: 'tests.agent.waiting_service:call_tenth_ms', cost: 0.0001}}
  dear: {{node: A, from: shared, run: 'tests.agent.waiting_service:call', cost: 0.002}}
outputs: {{q1: {{from: cheap}}, q2: {{from: dear}}}}
"""


def test_page_metrics_and_report_agree_with_the_run(spark: Session, tmp_path: Path) -> None:
    log, root = tmp_path / "log", tmp_path / "state"
    create_log(log, "id bigint", stream="s")
    with LogWriter(log) as writer:
        writer.append(pa.table({"id": list(range(600))}))
    network = parse_network(SPLIT.format(log=log), source="page-run")
    root.mkdir()
    seen: list[dict[str, Any]] = []
    ended = threading.Event()

    def look(_: Status) -> None:
        if any(line.reason == "delivered" for line in Ledger(LocalStore(root)).lines()):
            ended.set()

    with page_server([root]) as server:
        options = RunOptions(
            seconds=PATIENCE_SECONDS, root=root, target=Target(40.0), settle_seconds=0.0, progress=look, ended=ended
        )
        result = run_network(network, options, spark)
        snapshot = httpx.get(f"{server.url}/v1/page/snapshot", trust_env=False, timeout=PATIENCE_SECONDS).json()
        metrics = httpx.get(f"{server.url}/metrics", trust_env=False, timeout=PATIENCE_SECONDS).text
        seen += snapshot["jobs"]
    (job,) = seen
    lines = Ledger(LocalStore(root)).read()
    counted = Counts.of(lines).to_dict()
    assert result.counts.to_dict() == counted
    shown = {at: one for at, one in job["places"].items() if one["offered"]}
    assert {at: one["offered"] for at, one in shown.items()} == dict(+result.counts.offered)
    assert {at: one["kept"] for at, one in shown.items()} == dict(+result.counts.kept)
    assert {at: one["dropped"] for at, one in shown.items() if one["dropped"]} == counted["dropped"]
    assert job["ledger"]["differences"] == []
    assert job["has_picture"]
    assert job["latency"]["target"] == 40.0
    assert f'floodway_offered_tuples_total{{job_name="page-run",place="s"}} {result.counts.offered["s"]:.1f}' in metrics
    report = make_report(root)
    assert report.to_dict()["offered"] == counted["offered"]
    assert saved_report(root)["latency"] == result.latency.to_dict()
    whole = Sketch()
    for batch in report.batches:
        whole.merge(batch.latencies)
    # On a slow machine all batches end in the drain: the run then has measured none, and the report takes them all.
    assert report.status.latency == (whole.latency(40.0) if result.latency.mean is None else result.latency)
    delivered = sum(line.kept for line in lines if line.reason == "delivered" and line.at in network.outputs)
    assert sum(batch.latencies.count for batch in report.batches) == delivered
