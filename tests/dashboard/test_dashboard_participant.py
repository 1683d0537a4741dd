"""The page of a participant: tiles that mean something for it, by its folder and by its address; nothing empty."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from floodway.contracts.federation_file import parse_federation
from floodway.dashboard.routes import page_server
from floodway.job.status.parts import ENDED
from tests.agent.federation_world import FederationWorld, agent
from tests.patience import PATIENCE_SECONDS, wait_until

HIDDEN = ("#tile-score", "#tuples-section", "#score-section")
ALSO_HIDDEN = ("#network-section", "#nodes-section", "#places-section", "#range-section")


class LastingWorld(FederationWorld):
    """Leases that outlast a process that is held up: what has settled stays as it is."""

    def body(self) -> Callable[[str, str, str, str | None], None]:
        return run_for_long


def run_for_long(text: str, name: str, root: str, kill_at: str | None) -> None:
    member = agent(parse_federation(text), name, Path(root), lambda step: None, lease_seconds=PATIENCE_SECONDS)
    member.start()
    member.run()


def jobs(url: str) -> dict[str, dict[str, Any]]:
    body: dict[str, Any] = httpx.get(f"{url}/v1/page/snapshot", trust_env=False, timeout=PATIENCE_SECONDS).json()
    return {job["name"]: job for job in body["jobs"]}


def said(url: str, name: str) -> dict[str, float]:
    """The figures of a participant as the API has them, by tile."""
    member = jobs(url)[name]["participant"]
    return {
        "load": member["load"] / member["cpu"],
        "moves": sum(count for state, count in member["moves_total"].items() if state not in ENDED),
        "balance": member["balance"],
        "leases": len(member["leases"]),
    }


def shown(page: Page, tile: str) -> float:
    return float(page.locator(f'[data-field="{tile}"]').get_attribute("data-value") or "nan")


def agree(page: Page, url: str, name: str) -> bool:
    return all(shown(page, tile) == value for tile, value in said(url, name).items())


@pytest.mark.usefixtures("patient_page")
def test_two_participants_show_load_fragments_moves_leases_and_balance(page: Page, tmp_path: Path) -> None:
    world = LastingWorld(tmp_path)
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
                # Nobody writes any more, but either may still have what was written before.
                wait_until(partial(agree, page, server.url, name), "the same figures")
                assert page.locator('[data-field="load"]').inner_text() == "60.0%"
                for place in (*HIDDEN, *ALSO_HIDDEN):
                    expect(page.locator(place)).to_be_hidden()
                assert "–" not in page.locator(".tiles").inner_text()
            assert jobs(server.url)["A"]["participant"]["balance"] < 0
    finally:
        world.end()
