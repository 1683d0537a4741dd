"""A page with a job that goes on, and a real browser to look at it with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from floodway.agent.wire.server import HttpServer
from floodway.dashboard.serve import page_server
from tests.dashboard.made_state import MadeJob


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
def page(chromium: Browser) -> Iterator[Page]:
    """A fresh tab; a script error on the page fails the test."""
    context = chromium.new_context(viewport={"width": 1120, "height": 900})
    tab = context.new_page()
    tab.set_default_timeout(20_000)
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    yield tab
    context.close()
    assert errors == []
