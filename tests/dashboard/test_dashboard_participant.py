"""The page of a participant: tiles that mean something for it, by its folder and by its address; nothing empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from floodway.dashboard.serve import page_server
from floodway.job.status.participant_status import ENDED
from tests.agent.federation_world import World

HIDDEN = ("#tile-score", "#tile-ledger", "#tuples-section", "#score-section")
ALSO_HIDDEN = ("#network-section", "#nodes-section", "#places-section", "#range-section")


def jobs(url: str) -> dict[str, dict[str, Any]]:
    body: dict[str, Any] = httpx.get(f"{url}/v1/page/snapshot", trust_env=False, timeout=60).json()
    return {job["name"]: job for job in body["jobs"]}


def field(page: Page, name: str) -> str:
    return page.locator(f'[data-field="{name}"]').get_attribute("data-value") or ""


def test_two_participants_show_load_fragments_moves_leases_and_balance(page: Page, tmp_path: Path) -> None:
    world = World(tmp_path)
    both = ("A", "B")
    try:
        for name in both:
            world.start(name)
        with world.feeding():
            world.wait("one fragment at each", world.settled, alive=both)
            world.wait("a payment in both books", world.agreed, alive=both)
        with page_server([tmp_path / "A"], [world.federation.members["B"].url]) as server:
            page.goto(server.url)
            expect(page.locator("#tile-fragments")).to_contain_text("1 own, 1 lent to B")
            expect(page.locator("#load-section svg")).to_be_visible()
            expect(page.locator("#tile-leases")).to_contain_text("1 held")
            page.get_by_role("button", name="B", exact=True).click()
            expect(page.locator("#tile-fragments")).to_contain_text("0 own, 1 run for A")
            expect(page.locator("#load-section svg")).to_be_visible()
            world.wait("a balance", lambda: world.part("A").balance < 0, alive=both)
            world.end()
            expect(page.locator("#warning")).to_contain_text("Its agent does not answer")
            for name in both:
                page.get_by_role("button", name=name, exact=True).click()
                told = jobs(server.url)[name]
                member = told["participant"]
                said = {
                    "load": member["load"] / member["cpu"],
                    "moves": sum(count for state, count in member["moves_total"].items() if state not in ENDED),
                    "balance": member["balance"],
                    "leases": len(member["leases"]),
                }
                assert {tile: float(field(page, tile)) for tile in said} == said
                assert page.locator('[data-field="load"]').inner_text() == "60.0%"
                for place in (*HIDDEN, *ALSO_HIDDEN):
                    expect(page.locator(place)).to_be_hidden()
                assert page.locator(".tiles").inner_text().count("–") == 1  # the loss: no tuple has come
            assert jobs(server.url)["A"]["participant"]["balance"] < 0
    finally:
        world.end()
