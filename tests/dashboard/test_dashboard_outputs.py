"""Outputs with targets of their own: in the terminal, the metrics, over nodes, and on the page in a real Chromium."""

from __future__ import annotations

import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from rich.console import Console

from floodway.agent.watch.metrics import metrics_text
from floodway.cli.top import table_of
from floodway.dashboard.board import Board
from floodway.dashboard.job_sources import StateSource
from floodway.dashboard.routes import page_server
from floodway.job.status.batches import Latency
from floodway.job.status.status import Status, merge_nodes, read_status, write_status
from floodway.job.store.store import LocalStore
from tests.dashboard.made_state import MadeJob

OUTPUTS = {"alerts": Latency(1.9, 1.8, 2.4, 2.6, 2.0), "reports": Latency(target=8.0)}


@pytest.fixture
def job(tmp_path: Path) -> MadeJob:
    """A job with two classes, one of which has delivered nothing yet."""
    made = MadeJob(tmp_path / "demo", int(time.time()) - 3)
    made.start()
    made.run(3)
    write_status(LocalStore(made.root), replace(status(made), outputs=OUTPUTS))
    return made


def status(job: MadeJob) -> Status:
    found = read_status(LocalStore(job.root))
    assert found is not None
    return found


def test_top_has_a_line_for_each_that_delivered_something(job: MadeJob) -> None:
    written = StringIO()
    Console(width=120, file=written).print(table_of(status(job), time.time()))
    text = written.getvalue()
    assert "latency alerts" in text and "1.90 s of 2 s" in text and "reports" not in text


def test_metrics_have_a_sample_for_each(job: MadeJob) -> None:
    text = metrics_text(Board(StateSource([job.root])).watched()).decode()
    assert 'floodway_output_latency_seconds{job_name="demo",output="alerts"} 1.9' in text
    assert 'floodway_output_latency_target_seconds{job_name="demo",output="reports"} 8.0' in text


def test_nodes_are_put_together() -> None:
    nodes = {name: Status(name, "node", "enforce", 1.0, outputs={out: OUTPUTS[out]}) for name, out in
             (("A", "alerts"), ("B", "reports"))}  # fmt: skip
    merged = merge_nodes(nodes)
    assert merged is not None and merged.outputs == OUTPUTS


def test_the_page_lists_them(page: Page, job: MadeJob) -> None:
    with page_server([job.root]) as server:
        page.goto(server.url)
        expect(page.locator("#outputs tbody tr")).to_have_text(["alerts1.90 s2.40 s2.00 s", "reports––8.00 s"])
        write_status(LocalStore(job.root), replace(status(job), outputs={}))
        expect(page.locator("#outputs-section")).to_be_hidden()
