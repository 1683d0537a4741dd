"""A running node finds out what its operators cost and pass on, from Spark's CPU time and its own counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodway.agent.loop.feeds import Feed
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.job.options.values import Target
from floodway.network.file import parse_network
from tests.agent.busy_operators import SECONDS_A_TUPLE

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

WRONG = """
version: 1
name: wrong
streams: {s: {max_rate: 1600}}
nodes: {A: {cpu: 1.0}}
operators:
  busy: {node: A, from: s, run: "tests.agent.busy_operators:busy", cost: 0.0004}
  quarter: {node: A, from: busy, kind: filter, run: "tests.agent.busy_operators:quarter", cost: 1e-6, selectivity: 0.9}
outputs: {q: {from: quarter}}
"""


@pytest.mark.spark
@pytest.mark.timing
@pytest.mark.slow
def test_a_wrong_file_is_corrected_while_it_runs(spark: Session, tmp_path: Path) -> None:
    rates = "12:500,12:1600,12:700,60:1400"  # batches of different sizes tell what a batch costs anyway
    feeds = {"s": Feed(options=("--profile", "steps", "--steps", rates))}
    options = RunOptions(seconds=50, root=tmp_path, target=Target(2.0), feeds=feeds, settle_seconds=25, replan=True)
    report = run_network(parse_network(WRONG), options, spark)
    print(report.costs, report.selectivities)
    assert report.selectivities["quarter"] == pytest.approx(0.25, rel=0.02)
    assert report.costs["busy"] == pytest.approx(SECONDS_A_TUPLE, rel=0.25)
    assert report.latency.mean == pytest.approx(2.0, rel=0.15)
