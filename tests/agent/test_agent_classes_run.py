"""Two classes of queries in one job on real Spark, under targets of two and eight seconds; and what the report says."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from floodway.agent.loop.feeds import Feed
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.values import Target
from floodway.job.status.batches import Batch, BatchReader, Sketch
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.spark.audit.run import audit
from floodway.spark.query.layout import RunLayout
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark

NETWORK = """
version: 1
name: two-classes
streams: {clicks: {max_rate: 2000}, orders: {max_rate: 2000}}
nodes: {A: {cpu: 1.0}, B: {cpu: 1.0}}
operators:
  alert: {node: A, from: clicks, run: 'tests.agent.waiting_service:call', cost: 0.002}
  sum: {node: B, from: orders, run: 'tests.agent.waiting_service:call', cost: 0.002}
outputs:
  alerts: {from: alert, latency: 2s}
  reports: {from: sum, latency: 8s}
"""
CAPACITY = 500.0


SETTLED, JUDGED = 8, 15
"""Batches of the slower class: those of the start, in which a process compiles and learns its costs, and the next."""


EVEN = Feed(rate=2 * CAPACITY)
BURSTY = Feed(rate=2 * CAPACITY, options=("--profile", "bursts", "--seconds", f"{3 * PATIENCE_SECONDS}"))


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.parametrize(("feed", "quantile"), [(EVEN, None), (BURSTY, 0.95)], ids=["means", "p95-self-similar"])
def test_both_classes_are_at_their_targets_at_twice_the_capacity(
    spark: Session, tmp_path: Path, feed: Feed, quantile: float | None
) -> None:
    """Over many batches, however long the start took: of one batch a busy machine may make anything."""
    network, ended, batches = parse_network(NETWORK), Event(), list[Batch]()
    reader = BatchReader(RunLayout(tmp_path).store)

    def slower() -> list[Batch]:
        return [batch for batch in batches if "reports" in batch.delivered and batch.latencies.count]

    def look(_: Status) -> None:
        if not ended.is_set():
            batches.extend(reader.advance() or ())
        if len(slower()) >= SETTLED + JUDGED:
            ended.set()

    targets = {"alerts": Target(2.0, quantile), "reports": Target(8.0, quantile)}
    options = RunOptions(
        seconds=2 * PATIENCE_SECONDS, settle_seconds=0.0, root=tmp_path, feeds=dict.fromkeys(network.streams, feed),
        progress=look, ended=ended, targets=targets,
    )  # fmt: skip
    report = run_network(network, options, spark)
    assert ended.is_set() and report.differences == () and audit(network, RunLayout(tmp_path)).differences == ()
    since, found = slower()[SETTLED - 1].ended_seconds, {name: Sketch() for name in network.outputs}
    for batch in batches:
        for name in batch.delivered if batch.cut_seconds >= since else ():
            found[name].merge(batch.latencies)
    reached = {name: one.mean if quantile is None else one.quantile(quantile) for name, one in found.items()}
    print(f"\n{quantile or 'mean'}: {reached}")
    assert reached == pytest.approx({name: one.seconds for name, one in targets.items()}, rel=0.1)


def test_each_class_is_steered_and_shown_by_itself(spark: Session, tmp_path: Path) -> None:
    """The first decision is made before anything is measured: of what waits, a class drops what its own target asks."""
    network, ended, told = parse_network(NETWORK), Event(), list[Status]()

    def look(status: Status) -> None:
        told.append(status)
        counts = [{one.delivered.get(name, 0) for one in told} for name in network.outputs]
        lines = [line for line in Ledger(RunLayout(tmp_path).store).lines() if line.reason == "shedder"]
        dropped = {line.at for line in lines if line.dropped} == {"clicks", "orders"}
        # The report counts batches that were cut after the first look: the second that ends after it is such a one.
        later = min(map(len, counts)) > 2
        if later and dropped and all(one.mean is not None for one in status.outputs.values()):
            ended.set()

    feeds = dict.fromkeys(network.streams, Feed(rate=3 * CAPACITY))
    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=tmp_path, settle_seconds=0.0, feeds=feeds, progress=look, ended=ended
    )
    report = run_network(network, options, spark)
    assert ended.is_set() and report.differences == () and audit(network, RunLayout(tmp_path)).differences == ()
    assert {name: one.target for name, one in told[-1].outputs.items()} == {"alerts": 2.0, "reports": 8.0}
    assert told[-1].reason.startswith("alerts: ") and "; reports: " in told[-1].reason
    assert all(one.mean is not None for one in report.latencies.values())
