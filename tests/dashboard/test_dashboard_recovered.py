"""What a backfill has recovered, beside what was dropped: in the terminal, the report, the metrics, on the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from floodway.agent.watch.metrics import metrics_text
from floodway.cli.report import report
from floodway.cli.top import top
from floodway.dashboard.board import Board
from floodway.dashboard.job_report import make_report, to_html
from floodway.dashboard.job_sources import StateSource
from floodway.dashboard.routes import page_server
from floodway.job.ledger.backfill import BackfillStep, recovered_lines
from floodway.job.ledger.facts import BatchFacts
from floodway.job.ledger.ledger import Ledger
from floodway.job.store.store import LocalStore
from tests.dashboard.made_state import CLICKS, MadeJob

DROPPED, HOUR_US = CLICKS // 5, 3_600_000_000


@pytest.fixture
def job(tmp_path: Path) -> MadeJob:
    """One that drops a fifth of its clicks and nothing else."""
    made = MadeJob(tmp_path / "demo", int(time.time()) - 3)
    made.start()
    made.run(3, keeps={"clicks": 0.8, "orders": 1.0, "enrich->dashboard": 1.0, "enrich->billing": 1.0})
    return made


def recover(job: MadeJob, batch: int) -> None:
    """What a backfill writes, an hour after the batch."""
    step = BackfillStep((BatchFacts(job.query, batch, 0, "enforce", CLICKS, CLICKS - DROPPED, 800_000, 1),))
    lines = recovered_lines("clicks", step, [DROPPED], job.now * 1_000_000 + HOUR_US)
    Ledger(LocalStore(job.root)).append(lines)


def shown(command: Callable[..., None], *arguments: str) -> str:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).output


def test_terminal_report_and_metrics_show_it_once_there_is_any(job: MadeJob) -> None:
    for text in (shown(top, str(job.root), "--once"), shown(report, str(job.root)), to_html(make_report(job.root))):
        assert "recovered" not in text
    recover(job, 0)
    assert f"{DROPPED} of {3 * DROPPED} dropped tuples" in shown(top, str(job.root), "--once")
    assert f"recovered: {DROPPED} of {3 * DROPPED} dropped tuples" in shown(report, str(job.root))
    html = to_html(make_report(job.root))
    assert f"<dt>recovered</dt><dd><b>{DROPPED} of {3 * DROPPED} dropped tuples</b>" in html
    assert f"{DROPPED} dropped ones were processed later" in html
    metrics = metrics_text(Board(StateSource([job.root])).watched()).decode()
    assert f'floodway_recovered_tuples_total{{job_name="demo"}} {DROPPED}.0' in metrics


def test_the_time_of_a_backfill_is_not_time_in_which_the_job_ran(job: MadeJob) -> None:
    before = make_report(job.root)
    recover(job, 1)
    after = make_report(job.root)
    assert (after.end, after.seconds, after.pauses) == (before.end, before.seconds, 0)
    assert after.status.rates == before.status.rates


def test_the_page_has_a_tile_once_there_is_any(page: Page, job: MadeJob) -> None:
    with page_server([job.root]) as server:
        page.goto(server.url)
        expect(page.locator("#tile-ledger")).to_be_visible()
        expect(page.locator("#tile-recovered")).to_be_hidden()
        recover(job, 2)
        expect(page.locator("#tile-recovered")).to_contain_text(f"{DROPPED} of {3 * DROPPED} dropped tuples")
