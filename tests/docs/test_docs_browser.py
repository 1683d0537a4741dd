"""The documentation in a real browser: nothing is cut off on a phone, and search finds an option."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from tests.browser import new_tab

PHONE, DESK = ViewportSize(width=390, height=844), ViewportSize(width=1280, height=900)
TOO_WIDE = """() => [...document.querySelectorAll("article *")]
    .filter((one) => !one.closest(".md-typeset__scrollwrap, pre"))
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
    .map((one) => one.outerHTML.slice(0, 80))"""
"""What reaches beyond the window and cannot be scrolled by itself."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Where the site is served: search loads its index, which a browser refuses to do from files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_nothing_is_cut_off_on_a_phone(chromium: Browser, site: Path, address: str) -> None:
    page = new_tab(chromium, viewport=PHONE)
    cut_off = {}
    for name in sorted(path.name for path in site.glob("*.html")):
        page.goto(f"{address}/{name}")
        if page.evaluate("document.documentElement.scrollWidth > innerWidth") or page.evaluate(TOO_WIDE):
            cut_off[name] = page.evaluate(TOO_WIDE)
    assert cut_off == {}
    page.evaluate("document.querySelector('article').insertAdjacentHTML('beforeend', '<hr style=\"width: 900px\">')")
    assert len(page.evaluate(TOO_WIDE)) == 1  # it would have been found
    page.context.close()


def test_a_reader_who_wants_it_dark_gets_it_dark(chromium: Browser, address: str) -> None:
    page = new_tab(chromium, viewport=DESK, color_scheme="dark")
    page.goto(f"{address}/index.html")
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    page.context.close()


def test_search_finds_an_option(chromium: Browser, address: str) -> None:
    page = new_tab(chromium, viewport=DESK)
    page.goto(f"{address}/index.html")
    box = page.get_by_label("Search").first
    box.click()
    expect(page.locator(".md-search-result__meta")).to_have_text("Type to start searching")  # the index is read
    box.press_sequentially("target_latency")  # it listens to keys
    found = page.locator("a.md-search-result__link[href*='shed.html']")
    expect(found.first).to_be_visible()
    found.first.click()
    expect(page.locator("h1")).to_have_text(re.compile("All parameters of shed"))
    page.context.close()
