"""The page as somebody sees it who has never seen it: every figure explained, silence told, nothing hard to read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from floodway.dashboard.routes import page_server
from floodway.job.status.status import write_status
from floodway.job.store.store import LocalStore
from tests.browser import new_tab
from tests.dashboard.conftest import Served
from tests.dashboard.made_state import CLICKS, MadeJob
from tests.dashboard.test_dashboard_agents import counting_agent, made_status
from tests.dashboard.test_dashboard_browser_cases import DRAWN
from tests.patience import PATIENCE_SECONDS

UNEXPLAINED = """() => {
  const shown = (e) => e.offsetParent !== null, text = (e) => (e?.textContent ?? "").trim();
  const tiles = [...document.querySelectorAll(".tile")].filter(shown)
    .filter((e) => !text(e.querySelector("dt")) || !text(e.querySelector("b")))
    .concat([...document.querySelectorAll(".tile .why")].filter((e) => text(e).length < 30));
  const charts = [...document.querySelectorAll("main section:has(.chart), main section:has(table)")].filter(shown)
    .filter((e) => !text(e.querySelector("h2")) || text(e.querySelector(".hint")).length < 30);
  const mute = [...document.querySelectorAll(".why, .hint")].filter((e) => e.closest("[aria-hidden]"));
  return [...tiles, ...charts, ...mute].map((e) => e.outerHTML);
}"""
FAINT = """() => {
  const parse = (c) => c.match(/[0-9.]+/g).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (e) => {
    const box = e.closest("svg g")?.querySelector("rect");
    if (box) return parse(getComputedStyle(box).fill);
    for (let at = e; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
  };
  const own = (e) => [...e.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    if (!own(e) || !e.getClientRects().length || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName)) continue;
    const ink = light(parse(getComputedStyle(e)[e.closest("svg") ? "fill" : "color"])), paper = light(behind(e));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) found.push(`${e.tagName} ${e.className} ${ratio.toFixed(2)}: ${e.textContent.slice(0, 40)}`);
  }
  return found;
}"""


@pytest.fixture(params=["light", "dark"])
def phone(request: pytest.FixtureRequest, chromium: Browser, patient_board: None) -> Iterator[Page]:
    """A tab of a phone's width, in both schemes."""
    tab = new_tab(chromium, viewport={"width": 360, "height": 740}, color_scheme=request.param)
    yield tab
    tab.context.close()


def snapshot(url: str) -> dict[str, Any]:
    body: dict[str, Any] = httpx.get(f"{url}/v1/page/snapshot", trust_env=False, timeout=PATIENCE_SECONDS).json()[
        "jobs"
    ][0]
    return body


def test_every_tile_chart_and_table_says_what_it_is(page: Page, served: Served) -> None:
    page.goto(served.url)
    page.wait_for_selector("#chart-score svg")
    assert page.evaluate(UNEXPLAINED) == []
    for chart, unit in (("latency", "seconds"), ("tuples", "tuples/s"), ("score", "weighted tuples/s")):
        assert unit in (page.locator(f"#chart-{chart} svg").get_attribute("aria-label") or "")
    expect(page.locator("#why")).to_contain_text("tuples that did not fit into the capacity")
    page.locator("#about summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#about p").first).to_be_visible()


def test_on_a_phone_nothing_scrolls_sideways_and_all_is_readable(phone: Page, made: MadeJob) -> None:
    status = replace(made_status(made), reason="long" * 60)
    with page_server([made.root]) as server:
        phone.goto(server.url)
        phone.wait_for_selector("#picture [data-value]")
        write_status(LocalStore(made.root), status)
        expect(phone.locator("#reasons")).to_contain_text("longlong")
        assert phone.evaluate("document.documentElement.scrollWidth") <= 360
        assert phone.evaluate(FAINT) == []
    expect(phone.locator("#warning")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
    assert phone.evaluate(FAINT) == []


def test_a_job_that_is_gone_is_told_as_gone(page: Page, tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "demo", int(time.time()) - 7200)
    job.start()
    job.run(31)
    with page_server([job.root]) as server:
        page.goto(server.url)
        expect(page.locator("#warning")).to_contain_text("it has ended, or was killed")
        expect(page.locator("#sentence")).to_contain_text("When last heard: Floodway drops 8.9%")
        expect(page.locator("#connection")).to_have_text("last heard 2 h ago")
        job.now = int(time.time())
        job.run(1)
        expect(page.locator("#warning")).to_be_hidden()
        expect(page.locator("#sentence")).to_contain_text("Floodway drops 8.9%")
        expect(page.locator("#sentence")).not_to_contain_text("When last heard")
    expect(page.locator("#warning")).to_contain_text("This page has lost its server")


def test_an_agent_by_its_address_has_a_chart_of_drops_and_is_missed_when_it_is_gone(page: Page, tmp_path: Path) -> None:
    made = MadeJob(tmp_path, int(time.time()) - 3, node="shop")
    made.start(network=False)
    made.run(1)
    with counting_agent(made) as agent, page_server([], [agent.url]) as server:
        page.goto(server.url)
        expect(page.locator("#tile-ledger")).to_contain_text("reconciled")
        expect(page.locator("#tuples-section")).to_be_hidden()
        for _ in range(4):
            made.run(1)
            page.wait_for_timeout(1100)
        expect(page.locator("#chart-tuples .legend")).to_contain_text("dropped: shedder")
        expect(page.locator("#chart-latency svg")).to_be_visible()
        agent.stop()
        expect(page.locator("#warning")).to_contain_text("Its agent does not answer")
        expect(page.locator("#sentence")).to_contain_text("When last heard")
        last = [one for one in snapshot(server.url)["history"] if one["seconds"]][-1]
        assert last["dropped"]["shedder"] / last["offered"] == pytest.approx(0.2 * CLICKS / 900)
        label = page.locator("#chart-tuples svg").get_attribute("aria-label") or ""
        drawn = dict(part.rsplit(" ", 1) for part in label.removesuffix(" tuples/s").split(": ", 1)[1].split(", ")[:2])
        assert float(drawn["kept (tuples/s)"]) == pytest.approx(last["kept"], rel=0.01)
        assert float(drawn["dropped: shedder"]) == pytest.approx(last["dropped"]["shedder"], rel=0.01)


def test_a_run_of_many_hours_can_be_seen_whole(page: Page, tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "long", int(time.time()) - 900 * 30 - 2)
    job.start()
    job.long(450, every=30, latency=1.2)
    job.long(450, every=30, latency=1.9)
    with page_server([job.root]) as server:
        page.goto(server.url)
        page.wait_for_selector("#range-section")  # it reads the whole ledger first
        page.locator('[data-range="whole"]').focus()
        page.keyboard.press("Enter")
        expect(page.locator('[data-range="whole"]')).to_have_attribute("aria-pressed", "true")
        page.wait_for_function("document.querySelector('#chart-latency path.line')?.getAttribute('d').length > 3000")
        answer = httpx.get(
            f"{server.url}/v1/page/history", params={"job": "demo"}, trust_env=False, timeout=PATIENCE_SECONDS
        )
        told = answer.json()["samples"]
        assert told[-1]["time"] - told[0]["time"] > 7 * 3600
        drawn = page.evaluate(DRAWN, "#chart-latency")
        zero, one = drawn["levels"][:2]
        value = (drawn["labels"][1] - drawn["labels"][0]) / (zero - one)
        shown = [(zero - y) * value for _, y in drawn["points"]]
        assert shown == pytest.approx([one["latency"] for one in told if one["latency"] is not None], abs=0.02)
        assert (shown[0], shown[-1]) == (pytest.approx(1.2, abs=0.02), pytest.approx(1.9, abs=0.02))


def test_a_young_run_has_no_choice_of_charts(page: Page, served: Served) -> None:
    page.goto(served.url)
    page.wait_for_selector("#chart-latency svg")
    expect(page.locator("#range-section")).to_be_hidden()
