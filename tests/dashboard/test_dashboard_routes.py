"""The page over HTTP: its files, its events, and a mode switch that nobody flips by accident."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from floodway.agent.wire.client import Client
from floodway.agent.wire.signing import Security
from floodway.dashboard.routes import page_server, to_json
from floodway.job.places import ShedFiles
from tests.dashboard.conftest import Served
from tests.dashboard.made_state import MadeJob
from tests.patience import PATIENCE_SECONDS


def test_files_are_served_under_a_strict_policy(served: Served) -> None:
    answer = httpx.get(served.url, trust_env=False, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY" and answer.headers["x-content-type-options"] == "nosniff"
    assert "http" not in answer.text.replace("http-equiv", ""), "the page names no other site"
    for name in ("page.js", "charts.js", "sign.js", "key.js", "tiles.js", "words.js", "page.css", "icon.svg"):
        assert httpx.get(f"{served.url}/static/{name}", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 200
    for name in ("nothing.js", "..%2Froutes.py", "%2e%2e/%2e%2e/routes.py"):
        assert httpx.get(f"{served.url}/static/{name}", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 404


def test_a_picture_of_runs_is_served_once_it_is_there(tmp_path: Path) -> None:
    drawn = tmp_path / "runs.svg"
    with page_server([tmp_path], comparison=drawn) as server:

        def get(path: str) -> httpx.Response:
            return httpx.get(f"{server.url}/v1/page/{path}", trust_env=False, timeout=PATIENCE_SECONDS)

        assert get("snapshot").json()["comparison"] is None
        assert get("comparison").status_code == 404
        drawn.write_text("<svg/>", encoding="utf-8")
        assert get("snapshot").json()["comparison"] == drawn.stat().st_mtime_ns // 1_000_000
        answer = get("comparison")
        assert (answer.status_code, answer.text) == (200, "<svg/>")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script" not in policy and "frame-ancestors 'none'" in policy


def test_events_come_one_after_the_other(served: Served) -> None:
    times = []
    with httpx.stream("GET", f"{served.url}/v1/page/events", trust_env=False, timeout=PATIENCE_SECONDS) as answer:
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
    answer = httpx.post(f"{served.url}/v1/page/mode", json=body, trust_env=False, timeout=PATIENCE_SECONDS)
    assert answer.status_code == status
    assert answer.json()["message"]
    assert ShedFiles(served.job.root).read_mode() is None


def test_a_page_of_another_site_cannot_switch(served: Served) -> None:
    body = {"job": "demo", "mode": "off", "confirmed": True}
    answer = httpx.post(
        f"{served.url}/v1/page/mode",
        json=body,
        headers={"origin": "http://evil.example"},
        trust_env=False,
        timeout=PATIENCE_SECONDS,
    )
    assert answer.status_code == 403
    assert ShedFiles(served.job.root).read_mode() is None


@pytest.mark.parametrize(
    "path", ["/v1/page/snapshot", "/v1/page/picture?job=demo", "/metrics", "/nowhere", "/static/x"]
)
def test_nothing_that_is_answered_can_be_framed_or_read_by_another_site(served: Served, path: str) -> None:
    headers = httpx.get(served.url + path, trust_env=False, timeout=PATIENCE_SECONDS).headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"] and headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin" and "access-control-allow-origin" not in headers


def test_beyond_this_machine_there_is_no_page_over_plain_http(made: MadeJob) -> None:
    key = Security(b"0123456789abcdef-for-this-test")
    with page_server([made.root], host="0.0.0.0", security=key) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        answer = httpx.get(url, trust_env=False, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 403 and "ssh -L" in answer.text and "<" not in answer.text
        assert httpx.get(f"{url}/static/key.js", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 404
        assert Client(url, key, PATIENCE_SECONDS).get_json("/v1/page/snapshot")["jobs"]


def test_the_picture_names_every_figure(served: Served) -> None:
    drawn = httpx.get(
        f"{served.url}/v1/page/picture", params={"job": "demo"}, trust_env=False, timeout=PATIENCE_SECONDS
    )
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    for mark in ('data-rate="clicks"', 'data-arc="enrich-&gt;billing"', 'data-load="shop"', 'data-out="revenue"'):
        assert mark in drawn.text
    assert (
        httpx.get(f"{served.url}/v1/page/picture?job=x", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 404
    )


def test_the_whole_past_of_a_job_is_told_and_of_no_other(served: Served) -> None:
    told = httpx.get(
        f"{served.url}/v1/page/history", params={"job": "demo"}, trust_env=False, timeout=PATIENCE_SECONDS
    ).json()
    assert told["job"] == "demo" and len(told["samples"]) == 31
    assert (
        httpx.get(f"{served.url}/v1/page/history?job=x", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 404
    )


def test_json_has_no_infinities() -> None:
    assert json.loads(to_json({"a": [float("nan"), float("inf"), 1.5], "b": (1,)})) == {
        "a": [None, None, 1.5],
        "b": [1],
    }
