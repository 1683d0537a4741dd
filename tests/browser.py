"""The browser of the page's tests: a real Chromium; where none can be had, a loud skip (see `tests/conftest.py`)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from floodway.errors import FloodwayError
from scripts.fetch_browser import fetch_browser
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

missing: dict[str, str] = {}
"""Why there was no browser in this run."""

PATIENCE_MS = 1000 * PATIENCE_SECONDS
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server")
"""Root may run Chromium without its sandbox only; the page is the project's own."""


def browser_or_skip() -> str:
    """The path of a Chromium; skips the test that asks if there is none."""
    found = _try()
    if found is None:
        pytest.skip(f"NO REAL BROWSER: {missing['chromium']}")
    return found


def new_tab(browser: Browser, **options: Any) -> Page:
    """A tab in a context of its own, in which everything is waited for with patience."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()


@cache
def _try() -> str | None:
    try:
        return fetch_browser(say=lambda text: None)
    except FloodwayError as error:
        missing["chromium"] = str(error)
        return None
