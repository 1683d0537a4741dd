"""The page over HTTP: its files, its events, and a mode switch that nobody flips by accident."""

from __future__ import annotations

import json

import httpx
import pytest

from floodway.dashboard.routes import to_json
from floodway.job.shed_state import ShedFiles
from tests.dashboard.conftest import Served


def test_files_are_served_under_a_strict_policy(served: Served) -> None:
    answer = httpx.get(served.url, trust_env=False)
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "http" not in answer.text.replace("http-equiv", ""), "the page names no other site"
    for name in ("page.js", "charts.js", "sign.js", "key.js", "tiles.js", "words.js", "page.css", "icon.svg"):
        assert httpx.get(f"{served.url}/static/{name}", trust_env=False).status_code == 200
    for name in ("nothing.js", "..%2Froutes.py", "%2e%2e/%2e%2e/routes.py"):
        assert httpx.get(f"{served.url}/static/{name}", trust_env=False).status_code == 404


def test_events_come_one_after_the_other(served: Served) -> None:
    times = []
    with httpx.stream("GET", f"{served.url}/v1/page/events", trust_env=False, timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                body = json.loads(line.removeprefix("data: "))
                assert "history" not in body["jobs"][0]
                times.append(body["time"])
            if len(times) == 2:
                break
    assert times[1] > times[0]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"job": "demo", "mode": "off"}, 400),
        ({"job": "demo", "mode": "off", "confirmed": False}, 400),
        ({"job": "demo", "mode": "sometimes", "confirmed": True}, 400),
        ({"job": "other", "mode": "off", "confirmed": True}, 404),
    ],
)
def test_a_switch_that_is_not_meant_changes_nothing(served: Served, body: dict[str, object], status: int) -> None:
    answer = httpx.post(f"{served.url}/v1/page/mode", json=body, trust_env=False)
    assert answer.status_code == status
    assert answer.json()["message"]
    assert ShedFiles(served.job.root).read_mode() is None


def test_a_page_of_another_site_cannot_switch(served: Served) -> None:
    body = {"job": "demo", "mode": "off", "confirmed": True}
    answer = httpx.post(
        f"{served.url}/v1/page/mode", json=body, headers={"origin": "http://evil.example"}, trust_env=False
    )
    assert answer.status_code == 403
    assert ShedFiles(served.job.root).read_mode() is None


def test_the_picture_names_every_figure(served: Served) -> None:
    drawn = httpx.get(f"{served.url}/v1/page/picture", params={"job": "demo"}, trust_env=False)
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    for mark in ('data-rate="clicks"', 'data-arc="enrich-&gt;billing"', 'data-load="shop"', 'data-out="revenue"'):
        assert mark in drawn.text
    assert httpx.get(f"{served.url}/v1/page/picture?job=x", trust_env=False).status_code == 404


def test_the_whole_past_of_a_job_is_told_and_of_no_other(served: Served) -> None:
    told = httpx.get(f"{served.url}/v1/page/history", params={"job": "demo"}, trust_env=False).json()
    assert told["job"] == "demo" and len(told["samples"]) == 31
    assert httpx.get(f"{served.url}/v1/page/history?job=x", trust_env=False).status_code == 404


def test_json_has_no_infinities() -> None:
    assert json.loads(to_json({"a": [float("nan"), float("inf"), 1.5], "b": (1,)})) == {
        "a": [None, None, 1.5],
        "b": [1],
    }
