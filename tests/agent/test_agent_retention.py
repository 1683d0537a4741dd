"""A log that deletes what was not read yet: a run stops, or goes on with the loss in its ledger, to the tuple."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from floodway.agent.loop.runner import RunError, RunOptions, run_network
from floodway.dashboard.job_report import make_report
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.options.options import OnLoss
from floodway.job.options.values import Target
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.network.model import Arc
from floodway.spark.audit.run import audit
from floodway.spark.log import LogReader, LogWriter, Retention, create_log
from floodway.spark.query.journal import committed_offsets, last_offsets
from floodway.spark.query.layout import RunLayout
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark


def test_deleted_tuples_stop_a_run_or_are_counted_as_lost_to_retention(spark: Session, tmp_path: Path) -> None:
    log = create_log(tmp_path / "clicks", "id bigint", stream="clicks").path
    network = parse_network(
        f"""
        version: 1
        name: retention
        streams: {{clicks: {{log: {log}, max_rate: 5000}}}}
        nodes: {{A: {{cpu: 1.0}}}}
        operators: {{pass: {{node: A, from: clicks, cost: 0.00001}}}}
        outputs: {{q: {{from: pass}}}}
        """
    )
    layout = RunLayout(tmp_path / "run")

    def run(settled: int, on_loss: OnLoss = "fail") -> dict[str, Any]:
        """Run until so many tuples are in the ledger."""
        ended = Event()

        def look(status: Status) -> None:
            if Ledger(layout.store).fold().total.offered["clicks"] >= settled:
                ended.set()

        options = RunOptions(
            seconds=PATIENCE_SECONDS, root=layout.root, settle_seconds=0.0, on_loss=on_loss, progress=look, ended=ended,
            target=Target(60.0),  # so long that no machine has to drop anything
        )  # fmt: skip
        return run_network(network, options, spark).to_dict()

    with LogWriter(log, sync=False) as writer:

        def append(count: int) -> None:
            writer.append(pa.record_batch({"id": writer.end(0) + np.arange(count)}))

        append(1_000)
        assert run(1_000)["kept"] == {"clicks": 1_000}
        append(700)
        append(300)
        writer.retire(0, Retention(max_bytes=0))  # all but the newest segment
        with pytest.raises(RunError, match=r"position 1000 is retired or missing, 700 tuple\(s\) lost") as caught:
            run(2_000)
        assert "--on-loss skip" in str(caught.value)
        body = run(2_000, "skip")
    assert (body["offered"], body["kept"]) == ({"clicks": 2_000}, {"clicks": 1_300})
    assert body["dropped"] == {"clicks": {Reason.RETENTION: 700}}
    assert body["reconciled"]
    # Journaled before the batch ran, so a replay says the same; and the audit finds the same again.
    assert last_offsets(layout.root / "checkpoints" / "A.main")["clicks"].lost == {0: 700}
    found = audit(network, layout)
    assert (found.differences, found.tuples_offered, found.tuples_delivered) == ((), 2_000, 1_300)
    sink = LogReader(layout.output(network, "q"))
    assert sum(sink.end_positions().values()) == 1_300
    # What people see names the reason.
    report = make_report(layout.root)
    assert report.status.counts().by_place() == {"clicks": {"retention": 700}}
    assert any("deleted before they were read" in text for text in report.advice)


@pytest.mark.slow
def test_the_runs_own_logs_let_go_what_nobody_waits_for_and_the_audit_still_adds_up(
    spark: Session, tmp_path: Path
) -> None:
    network = parse_network(
        """
        version: 1
        name: retained
        streams: {s: {max_rate: 2000}}
        nodes: {A: {cpu: 1.0}, B: {cpu: 1.0}}
        operators: {a: {node: A, from: s, cost: 0.00001}, b: {node: B, from: a, cost: 0.00001}}
        outputs: {q: {from: b}}
        """
    )
    layout = RunLayout(tmp_path / "run")
    options = RunOptions(seconds=20.0, root=layout.root, settle_seconds=5.0, retain_bytes=200_000, side_output=5)
    body = run_network(network, options, spark).to_dict()
    assert body["reconciled"] and body["offered"]["s"] > 10_000
    for log in (layout.link(Arc("a", "b")), Path(layout.output(network, "q"))):
        assert sum(file.stat().st_size for file in (log / "p0").glob("*.arrow")) <= 300_000
        assert LogReader(log).earliest_positions()[0] > 0
    committed = committed_offsets(layout.root / "checkpoints" / "B.main")["a->b"].end
    assert LogReader(layout.link(Arc("a", "b"))).earliest_positions()[0] <= committed[0]
    found = audit(network, layout)
    assert found.differences == () and any("let" in note for note in found.unchecked)
