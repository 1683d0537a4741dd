"""A page with a job that goes on, and a real browser to look at it with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from floodway.agent.wire.server import HttpServer
from floodway.dashboard.routes import page_server
from tests.browser import new_tab
from tests.dashboard.made_state import MadeJob
from tests.patience import PATIENCE_SECONDS


@dataclass
class Served:
    """A made job and the page that shows it."""

    job: MadeJob
    server: HttpServer

    @property
    def url(self) -> str:
        """Where the page is."""
        return self.server.url


@pytest.fixture
def made(tmp_path: Path) -> MadeJob:
    """A job that has run for half a minute, up to now."""
    job = MadeJob(tmp_path / "demo", int(time.time()) - 30)
    job.start()
    job.run(31)
    return job


@pytest.fixture
def served(made: MadeJob) -> Iterator[Served]:
    """That job with its page."""
    with page_server([made.root]) as server:
        yield Served(made, server)


@pytest.fixture
def patient_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page for which a job is alive as long as a browser may take, with no status but the one that it has."""
    monkeypatch.setattr("floodway.dashboard.board.STALE_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def page(chromium: Browser, patient_board: None) -> Iterator[Page]:
    """A fresh tab; a script error on the page fails the test."""
    tab = new_tab(chromium, viewport={"width": 1120, "height": 900})
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    yield tab
    tab.context.close()
    assert errors == []
