"""The keys that send most: in the terminal, the metrics, the report, and on the page in a real Chromium."""

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
from floodway.dashboard.job_report import make_report, to_html
from floodway.dashboard.job_sources import StateSource
from floodway.dashboard.routes import page_server
from floodway.job.ledger.ledger import LedgerLine
from floodway.job.status.parts import would_words
from floodway.job.status.status import KeyPart, ShedPart, Status, read_status, write_status
from floodway.job.store.store import LocalStore
from tests.dashboard.made_state import MadeJob

WOULD = {"stale": 4999, "share": 1234}
KEYS = (KeyPart("[b]noisy <1>", 0.9, 0.259), KeyPart("small", 0.01, 1.0))


@pytest.fixture
def job(tmp_path: Path) -> MadeJob:
    """A job whose shed has shares by key."""
    made = MadeJob(tmp_path / "demo", int(time.time()) - 3)
    made.start()
    made.run(3)
    made.ledger.append([LedgerLine("q", 3, "clicks", "share", 400, 300, 100, time_us=made.now * 1_000_000)])
    told = replace(status(made), shed=ShedPart("q", 3, 1.0, first=56), keys=KEYS, mode="observe")
    told = replace(told, would_drop_tuples=WOULD, reason=f"keeping 60%{would_words(WOULD)}")
    write_status(LocalStore(made.root), told)
    return made


def status(job: MadeJob) -> Status:
    found = read_status(LocalStore(job.root))
    assert found is not None
    return found


def test_top_names_them_and_what_enforcing_would_drop(job: MadeJob) -> None:
    written = StringIO()
    Console(width=120, file=written).print(table_of(status(job), time.time()))
    text = written.getvalue()
    assert "key [b]noisy <1>" in text and "90.0% of the input, keep 25.9%" in text
    assert all(word in text for word in ("would drop by share", "1,234 tuples", "would drop by stale", "4,999 tuples"))


def test_metrics_have_a_sample_for_each(job: MadeJob) -> None:
    text = metrics_text(Board(StateSource([job.root])).watched()).decode()
    assert 'floodway_key_input_ratio{job_name="demo",key="[b]noisy <1>"} 0.9' in text
    assert 'floodway_key_keep_ratio{job_name="demo",key="small"} 1.0' in text
    assert 'floodway_would_drop_tuples{job_name="demo",reason="stale"} 4999.0' in text
    assert 'floodway_first_of_key_tuples{job_name="demo"} 56.0' in text


def test_the_report_lists_them_and_says_why_tuples_went(job: MadeJob) -> None:
    text = to_html(make_report(job.root))
    assert "<td>[b]noisy &lt;1&gt;</td><td>90.0%</td><td>25.9%</td>" in text
    assert "100 did not fit, and their keys sent more than their shares (share)" in text


def test_the_page_lists_them(page: Page, job: MadeJob) -> None:
    with page_server([job.root]) as server:
        page.goto(server.url)
        expect(page.get_by_text("enforcing would skip 4,999 tuples of the last batch")).to_be_visible()
        expect(page.locator("#keys tbody tr").first).to_have_text("[b]noisy <1>90.0%25.9%")
        write_status(LocalStore(job.root), replace(status(job), keys=()))
        expect(page.locator("#keys-section")).to_be_hidden()
