"""The page in a real Chromium: it shows what the API says, stays on this machine, and works with the keyboard alone."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.signing import Security
from floodway.dashboard.routes import page_server
from floodway.job.places import ShedFiles
from tests.browser import new_tab
from tests.dashboard.conftest import Served
from tests.dashboard.made_state import MadeJob
from tests.patience import PATIENCE_SECONDS

FIGURES = """() => [...document.querySelectorAll("#picture [data-value]")].map((e) => ({
    ...e.dataset, text: e.textContent}))"""


def opened(page: Page, served: Served) -> dict[str, Any]:
    """Open the page, wait for its figures, and ask the API for the same job."""
    page.goto(served.url)
    page.wait_for_selector("#picture [data-value]")
    body: dict[str, Any] = httpx.get(
        f"{served.url}/v1/page/snapshot", trust_env=False, timeout=PATIENCE_SECONDS
    ).json()["jobs"][0]
    return body


def test_the_page_shows_what_the_api_says(page: Page, served: Served) -> None:
    job = opened(page, served)
    figures = page.evaluate(FIGURES)
    flow = job["flow"]
    kinds = {"rate": "rates", "arc": "arcs", "keep": "keeps", "load": "load", "out": "throughput"}
    shown = {(kind, e[kind]): float(e["value"]) for e in figures for kind in kinds if kind in e}
    said = {(kind, name): value for kind, part in kinds.items() for name, value in flow[part].items()}
    assert {key: said[key] for key in shown} == pytest.approx(shown)
    assert len(shown) == 2 + 7 + 4 + 1 + 3  # streams, arcs, drop locations, node, outputs
    assert page.locator('[data-badge="enrich->billing"].dropped').text_content() == "keep 10.0%"
    told = {"latency": job["latency"]["mean"], "loss": job["loss"], "target": job["latency"]["target"]}
    for field, value in told.items():
        assert page.locator(f'[data-field="{field}"]').get_attribute("data-value") == js(value)
    assert page.locator('[data-field="ledger"]').inner_text() == "reconciled"
    assert page.locator("#reasons").inner_text() == job["reason"]
    assert page.locator('[data-field="share"]').inner_text() == f"{job['score'] / job['optimum']:.1%}"
    rows = [row.split("\t") for row in page.locator("#places tbody").inner_text().splitlines()]
    counts = {row[0]: (row[1], row[2]) for row in rows}
    assert counts == {at: (f"{one['offered']:,}", f"{one['kept']:,}") for at, one in job["places"].items()}
    dropped = job["places"]["clicks"]["dropped"]["shedder"]
    assert [row[3] for row in rows if row[0] == "clicks"] == [f"shedder {dropped:,}"]


def test_figures_follow_by_events_without_a_reload(page: Page, served: Served) -> None:
    opened(page, served)
    page.evaluate("window.notReloaded = true")
    served.job.run(12, latency=7.25)
    expect(page.locator('[data-field="latency"]')).to_have_text("7.25 s")
    expect(page.locator("#tile-latency")).to_have_class(re.compile("bad"))
    expect(page.locator("#sentence")).to_contain_text("later than the target of 2 s")
    assert page.evaluate("window.notReloaded")


def test_a_ledger_that_differs_is_told(page: Page, served: Served) -> None:
    opened(page, served)
    served.job.batch += 1
    served.job.run(1)
    expect(page.locator('[data-field="ledger"]')).to_have_text("differs")
    expect(page.locator("#differences")).to_contain_text("batch 31 is missing from the ledger")


def test_the_mode_is_switched_with_the_keyboard_and_only_when_confirmed(page: Page, served: Served) -> None:
    opened(page, served)
    off = page.locator('[data-mode="off"]')
    for _ in range(12):
        page.keyboard.press("Tab")
        if off.evaluate("e => e === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("#confirm")).to_be_visible()
    expect(page.locator("#confirm-title")).to_have_text("Switch demo to off?")
    page.keyboard.press("Escape")
    expect(page.locator("#confirm")).to_be_hidden()
    assert ShedFiles(served.job.root).read_mode() is None
    off.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#mode-note")).to_contain_text("off asked for")
    assert ShedFiles(served.job.root).read_mode() == "off"
    served.job.run(1)
    expect(off).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_all_without_scrolling_sideways(chromium: Browser, served: Served, scheme: str) -> None:
    dark = scheme == "dark"
    page = new_tab(chromium, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    opened(page, served)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    colours = page.evaluate("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
    ink, paper = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
    assert (ink > paper) is dark
    assert abs(ink - paper) > 450, "text and background must differ well"
    page.context.close()


def test_everything_has_a_name_and_nothing_leaves_this_machine(page: Page, served: Served) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    opened(page, served)
    assert asked and [url for url in asked if not url.startswith(served.url)] == []
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, svg[role=img], [role=region], [role=group], table')]
        .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim())).map((e) => e.outerHTML)"""
    )
    assert nameless == []


def test_beyond_this_machine_the_page_asks_for_the_key_and_signs_with_it(page: Page, made: MadeJob) -> None:
    key = "0123456789abcdef-for-this-test"
    with page_server([made.root], security=Security(key.encode())) as server:
        with pytest.raises(PeerError, match="not signed"):
            Client(server.url, timeout_seconds=PATIENCE_SECONDS).post_json(
                "/v1/page/mode", {"job": "demo", "mode": "off", "confirmed": True}
            )
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url + json.dumps(request.headers)))
        page.goto(server.url)
        page.locator("#key").fill("a wrong key, long enough")
        page.keyboard.press("Enter")
        page.locator("#key").fill(key)
        page.keyboard.press("Enter")
        page.wait_for_selector("#picture [data-value]")
        page.locator('[data-mode="observe"]').click()
        page.locator("#confirm .strong").click()
        expect(page.locator("#mode-note")).to_contain_text("observe asked for")
        assert ShedFiles(made.root).read_mode() == "observe"
        assert server.refused["bad-signature"] >= 1
        assert [text for text in sent if key in text] == []


def test_the_pages_hash_is_sha_256(page: Page, served: Served) -> None:
    page.goto(served.url)
    texts = ["", "abc", "é" * 40, "x" * 55, "x" * 56, "x" * 64, "y" * 1000]
    script = """async (texts) => { const s = await import("/static/sign.js");
        const raw = (t) => new TextEncoder().encode(t);
        return texts.map((t) => [s.hex(s.sha256(raw(t))), s.hex(s.hmac(raw(t), raw(t)))]); }"""
    for text, (digest, code) in zip(texts, page.evaluate(script, texts), strict=True):
        raw = text.encode()
        assert digest == hashlib.sha256(raw).hexdigest()
        assert code == hmac.new(raw, raw, hashlib.sha256).hexdigest()


def test_several_jobs_are_chosen_between(page: Page, tmp_path: Path) -> None:
    for name, latency in (("one", 1.0), ("two", 3.0)):
        job = MadeJob(tmp_path / name, int(time.time()) - 2, name=name)
        job.start(network=name == "one")
        job.run(3, latency=latency)
    with page_server([tmp_path]) as server:
        page.goto(server.url)
        expect(page.locator('[data-field="latency"]')).to_have_text("1.00 s")
        page.get_by_role("button", name="two").click()
        expect(page.locator('[data-field="latency"]')).to_have_text("3.00 s")
        expect(page.locator("#network-section")).to_be_hidden()


def js(value: float) -> str:
    """A number as a browser writes it."""
    return str(int(value)) if value == int(value) else repr(value)
