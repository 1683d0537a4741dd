"""The page in a real Chromium where things are not as usual: participants, mixed modes, silence, keys, many agents."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from floodway.agent.federation.journal_rows import MoveRow
from floodway.agent.federation.participant_figures import MemberRecord
from floodway.agent.loop.run_files import save_network
from floodway.agent.planes.alone import Alone
from floodway.agent.planes.plane import ControlPlane
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.signing import Security
from floodway.contracts.federation_file import parse_federation
from floodway.dashboard.routes import page_server
from floodway.job.decision import write_mode
from floodway.job.places import ShedFiles
from floodway.job.status.parts import FragmentPart
from floodway.job.status.status import LedgerPart, Place, ProcessPart, write_status
from floodway.job.store.store import LocalStore
from tests.agent.federation_world import FILE, agent
from tests.dashboard.conftest import Served
from tests.dashboard.made_state import KEEPS, MadeJob, demo_network
from tests.dashboard.test_dashboard_agents import FIGURE1
from tests.dashboard.test_dashboard_agents import agent as node_agent
from tests.patience import PATIENCE_SECONDS

DRAWN = """(chart) => {
  const svg = document.querySelector(chart + " svg"), number = (e, name) => Number(e.getAttribute(name));
  const levels = [...svg.querySelectorAll("line.axis")].map((e) => number(e, "y1"));
  const labels = [...svg.querySelectorAll("text[text-anchor=end]")].slice(0, levels.length).map((e) => e.textContent);
  const steps = svg.querySelector("path.line").getAttribute("d").split(/[ML]/).slice(1);
  return { levels, labels: labels.map(Number), points: steps.map((step) => step.split(" ").map(Number)) };
}"""
KEY = "0123456789abcdef-for-this-test"


def snapshot(url: str) -> dict[str, Any]:
    body: dict[str, Any] = httpx.get(f"{url}/v1/page/snapshot", trust_env=False, timeout=PATIENCE_SECONDS).json()[
        "jobs"
    ][0]
    return body


def test_the_points_of_a_chart_are_the_samples_of_the_api(page: Page, served: Served) -> None:
    served.job.run(12, latency=3.25)
    page.goto(served.url)
    page.wait_for_selector("#chart-latency path.line", state="attached")  # a level line has no height
    drawn = page.evaluate(DRAWN, "#chart-latency")
    samples = [sample for sample in snapshot(served.url)["history"] if sample["latency"] is not None]
    zero, one = drawn["levels"][:2]
    value = (drawn["labels"][1] - drawn["labels"][0]) / (zero - one)
    shown = [(zero - y) * value for _, y in drawn["points"]]
    known = [sample["latency"] for sample in samples][: len(shown)]
    assert len(shown) >= 30 and shown == pytest.approx(known, abs=0.02)
    assert shown[-1] == pytest.approx(3.25, abs=0.02)
    across = [x for x, _ in drawn["points"]]
    assert across == sorted(across)


def test_a_participant_shows_what_it_keeps_its_contracts_and_its_moves(page: Page, tmp_path: Path) -> None:
    a, b = free_ports(2)
    member = agent(parse_federation(FILE.format(a=a, b=b)), "A", tmp_path, lambda step: None)
    member.journal.begin(MoveRow("A/0", "giver", "A", "B", 4.0, {"f1": 0.6}, {"f1": 1}, "intended", time.time()))
    member.journal.reach("A/0", "failed", note="the partner did not answer")
    part = member.status().participant
    assert part is not None
    member.journal.close()
    kept = replace(part, load=1.5, fragments={"f0": FragmentPart("A", cpu=1.5, rate=100.0, keep=0.4)})
    record = MemberRecord("A", tmp_path / "A", target_seconds=10.0)
    told = record.status(kept, now=time.time(), process=ProcessPart(1), mode="enforce")
    write_status(LocalStore(tmp_path / "A"), told)
    with page_server([tmp_path / "A"]) as server:
        page.goto(server.url)
        expect(page.locator("#sentence")).to_have_text("Overloaded: it keeps 40.0% of f0.")
        expect(page.locator("#contracts tbody tr")).to_have_count(len(part.contracts))
        expect(page.locator("#moves")).to_contain_text("the partner did not answer")
        expect(page.locator("#connection")).to_have_text("live")


def test_mixed_modes_and_a_silent_node_are_told(page: Page, tmp_path: Path) -> None:
    save_network(tmp_path, demo_network())
    for name, ago, mode in (("A", 0, "enforce"), ("B", 1800, "observe")):
        job = MadeJob(tmp_path / "nodes" / name, int(time.time()) - ago - 3, name="shop", node=name)
        job.start(network=False)
        write_mode(ShedFiles(job.root).store, mode)
        job.run(3)
    with page_server([tmp_path]) as server:
        page.goto(server.url)
        expect(page.locator("#sentence")).to_contain_text(
            "Floodway drops 8.9% of what arrives (the nodes' modes differ"
        )
        expect(page.locator("#connection")).to_have_text(re.compile(r"^node B was last heard \d+ (s|min) ago$"))
        for mode, pressed in (("enforce", "mixed"), ("observe", "mixed"), ("off", "false")):
            expect(page.locator(f'[data-mode="{mode}"]')).to_have_attribute("aria-pressed", pressed)


def test_in_observe_the_page_says_what_enforcing_would_drop(page: Page, made: MadeJob) -> None:
    write_mode(ShedFiles(made.root).store, "observe")
    made.run(12, keeps=dict.fromkeys(KEEPS, 1.0), planned=KEEPS)
    (made.root / "network.json").write_text("{", encoding="utf-8")
    with page_server([made.root]) as server:
        page.goto(server.url)
        expect(page.locator("#sentence")).to_contain_text("the mode is observe; enforcing would keep 91.1%")
        expect(page.locator('[data-field="would"]')).to_have_text("8.9% if enforced")
        needed = "1.80 × the present one: 4 executors more, measured efficiency 0.83"
        expect(page.locator("#tile-capacity")).to_contain_text(needed)
        expect(page.locator('[data-field="plan"]')).to_have_text(
            "Plan in force: 8f3a01bc, planner exact, objective throughput."
        )
        expect(page.locator("#notes")).to_contain_text("network.json cannot be read")


def test_a_lost_connection_is_told_and_comes_back(page: Page, made: MadeJob) -> None:
    (port,) = free_ports(1)
    with page_server([made.root], port=port) as server:
        page.goto(server.url)
        expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#connection")).to_have_text(re.compile("^not connected"))
    expect(page.locator("#connection")).to_have_class("lost")
    with page_server([made.root], port=port):
        expect(page.locator("#connection")).not_to_have_class("lost")


@pytest.mark.usefixtures("patient_page")
def test_a_network_by_the_addresses_of_its_nodes_is_one_picture(page: Page, tmp_path: Path) -> None:
    with ExitStack() as stack:
        rates = {"A": {"s1": Place(arriving=70.0)}, "B": {"s2": Place(arriving=30.0)}}
        nodes = [
            stack.enter_context(node_agent(ControlPlane(Alone(FIGURE1, name)), places=one, ledger=LedgerPart(9)))
            for name, one in rates.items()
        ]
        server = stack.enter_context(page_server([], [node.url for node in nodes]))
        page.goto(server.url)
        expect(page.locator("#job-name")).to_have_text("figure1")
        page.wait_for_selector("#picture [data-value]")
        assert page.locator('[data-rate="s1"]').text_content() == "70/s"
        assert page.locator('[data-rate="s2"]').text_content() == "30/s"
        expect(page.locator('[data-field="ledger"]')).to_have_text("reconciled")
        expect(page.locator("#jobs")).to_be_hidden()


def test_a_refused_key_says_why_and_who_gives_none_is_not_asked_for_ever(page: Page, made: MadeJob) -> None:
    with page_server([made.root], security=Security(KEY.encode())) as server:
        page.goto(server.url)
        expect(page.locator("#ask-key")).to_be_visible()
        expect(page.locator("#key-problem")).to_be_hidden()
        page.keyboard.press("Escape")
        expect(page.locator("#ask-key")).to_be_hidden()
        expect(page.locator("#connection")).to_have_text("no key was given: nothing is shown")
        page.locator("#give-key").click()
        page.locator("#key").fill("a wrong key, long enough")
        page.keyboard.press("Enter")
        expect(page.locator("#key-problem")).to_contain_text("signature does not fit")
        page.evaluate("window.real = Date.now; Date.now = () => real() - 3600e3")  # whatever clock the browser has
        page.locator("#key").fill(KEY)
        page.keyboard.press("Enter")
        page.wait_for_selector("#picture [data-value]")
        expect(page.locator("#ask-key")).to_be_hidden()


def test_a_picture_of_runs_appears_when_it_is_drawn_and_changes_with_it(made: MadeJob, page: Page) -> None:
    drawn, hidden = made.root / "runs.svg", made.root / ".runs.svg"

    def draw(width: int) -> None:
        hidden.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="10"><style>*{{fill: red}}</style></svg>'
        )
        hidden.replace(drawn)

    shown = page.locator("#comparison-section")
    with page_server([made.root], comparison=drawn) as server:
        page.goto(server.url)
        expect(page.locator("#tile-latency")).to_be_visible()
        expect(shown).to_be_hidden()
        for width in (300, 400):
            draw(width)
            expect(page.locator("#comparison")).to_have_js_property("naturalWidth", width)
            expect(shown).to_be_visible()
