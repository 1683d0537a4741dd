"""An accuracy target, and how far behind a lossless job is: in the terminal, the metrics, the report, on the page."""

from __future__ import annotations

import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import typer
from playwright.sync_api import Page, expect
from rich.console import Console
from typer.testing import CliRunner

from floodway.agent.watch.metrics import metrics_text
from floodway.cli.report import report
from floodway.cli.top import table_of
from floodway.dashboard.board import Board
from floodway.dashboard.job_report import make_report, to_html
from floodway.dashboard.job_sources import StateSource
from floodway.dashboard.routes import page_server
from floodway.job.status.parts import AccuracyPart, BehindPart
from floodway.job.status.status import Status, read_status, write_status
from floodway.job.store.store import LocalStore
from tests.dashboard.made_state import MadeJob

MISSED = AccuracyPart("sum(price) by page", 0.01, "latency", 20, 0.016, False, 0.62, 0.4)
WORDS = "sum(price) by page within 1% needs 62% of the tuples, latency allows 40%: bounds are 1.6%, wider by 0.6%"


@pytest.fixture
def job(tmp_path: Path) -> MadeJob:
    made = MadeJob(tmp_path / "demo", int(time.time()) - 3)
    made.start()
    made.run(3)
    write_status(LocalStore(made.root), replace(status(made), accuracy=MISSED))
    return made


def status(job: MadeJob) -> Status:
    found = read_status(LocalStore(job.root))
    assert found is not None
    return found


def test_everything_that_watches_shows_it(job: MadeJob) -> None:
    written = StringIO()
    Console(width=180, file=written).print(table_of(status(job), time.time()))
    assert WORDS in written.getvalue()
    text = metrics_text(Board(StateSource([job.root])).watched()).decode()
    assert 'floodway_accuracy_bound_ratio{job_name="demo"} 0.016' in text
    assert 'floodway_accuracy_target_ratio{job_name="demo"} 0.01' in text
    assert 'floodway_accuracy_needed_keep_ratio{job_name="demo"} 0.62' in text
    assert "95% bounds of sum(price) by page, at most 1.0%</dt><dd><b>1.6%</b>" in to_html(make_report(job.root))
    app = typer.Typer()
    app.command()(report)
    printed = CliRunner().invoke(app, [str(job.root)], env={"COLUMNS": "200"})
    assert f"accuracy: {WORDS}" in printed.output


def test_everything_that_watches_shows_how_far_behind_it_is(page: Page, job: MadeJob) -> None:
    board = Board(StateSource([job.root]))
    for part, words, metric, tile in (
        (BehindPart(120_000, 95.0), "120,000 tuples wait: caught up in about 95 s", "95.0", "caught up in"),
        (BehindPart(7, None), "7 tuples wait, and more arrive than can be processed", "+Inf", "falling further behind"),
    ):
        write_status(LocalStore(job.root), replace(status(job), behind=part, time=time.time()))
        written = StringIO()
        Console(width=180, file=written).print(table_of(status(job), time.time()))
        assert words in written.getvalue()
        assert f'floodway_catch_up_seconds{{job_name="demo"}} {metric}' in metrics_text(board.watched()).decode()
        app = typer.Typer()
        app.command()(report)
        assert words in CliRunner().invoke(app, [str(job.root)], env={"COLUMNS": "200"}).output
        with page_server([job.root]) as server:
            page.goto(server.url)
            expect(page.locator("#tile-behind")).to_contain_text(tile)


def test_the_page_has_a_tile(page: Page, job: MadeJob) -> None:
    with page_server([job.root]) as server:
        page.goto(server.url)
        expect(page.locator("#tile-accuracy")).to_contain_text("1.6% of sum(price) by page, target 1.0%")
        write_status(LocalStore(job.root), replace(status(job), accuracy=None))
        expect(page.locator("#tile-accuracy")).to_be_hidden()
