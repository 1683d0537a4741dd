"""A page of another site in a real Chromium, beside servers on loopback without a key: it changes and reads nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from floodway.agent.planes.plane import make_control_plane
from floodway.agent.wire.client import Client
from floodway.agent.wire.messages import Mode, encode
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.job.places import ShedFiles
from tests.browser import new_tab
from tests.dashboard.conftest import Served
from tests.oracles.plan_checks import example
from tests.patience import PATIENCE_SECONDS

TRIES = """async ([url, path, body]) => {
  const read = [];
  const target = url + path;
  const plain = {method: "POST", body, credentials: "include"};
  for (const options of [
    {...plain, mode: "no-cors", headers: {"content-type": "text/plain"}},
    {...plain, mode: "cors", headers: {"content-type": "application/json"}},
    {...plain, mode: "cors", headers: {"content-type": "text/plain"}},
  ]) {
    try { const answer = await fetch(target, options); read.push(await answer.text()); } catch (error) {}
  }
  navigator.sendBeacon(target, new Blob([body], {type: "text/plain"}));
  for (const path of READ) {
    for (const mode of ["cors", "no-cors"]) {
      try { const answer = await fetch(url + path, {mode}); read.push(await answer.text()); } catch (error) {}
    }
    await new Promise((done) => {
      const script = document.createElement("script");
      script.onload = () => { read.push("a script of " + path); done(); };
      script.onerror = done;
      script.src = url + path;
      document.head.append(script);
    });
  }
  const frame = document.createElement("iframe");
  frame.name = "inside";
  document.body.append(frame);
  const form = document.createElement("form");
  Object.assign(form, {action: target, method: "POST", enctype: "text/plain", target: "inside"});
  const field = document.createElement("input");
  const half = body.length - 1;
  Object.assign(field, {name: body.slice(0, half) + ',"x":"', value: '"}'});
  form.append(field);
  document.body.append(form);
  await new Promise((done) => { frame.onload = done; form.submit(); });
  try { read.push(frame.contentDocument.body.innerText); } catch (error) {}
  return read.filter((text) => text.length > 0);
}""".replace("READ", '["/v1/page/snapshot", "/v1/status", "/metrics", "/"]')


class Blank(BaseHTTPRequestHandler):
    """A site of its own, with an empty page."""

    def do_GET(self) -> None:
        """Answer whatever is asked for."""
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><body></body>")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def elsewhere(chromium: Browser) -> Iterator[Page]:
    """A tab with a page of another site; browsers find `*.localhost` on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Blank) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        tab = new_tab(chromium)
        tab.goto(f"http://elsewhere.localhost:{site.server_address[1]}/")
        yield tab
        tab.context.close()
        site.shutdown()
        thread.join()


def test_a_page_of_another_site_switches_and_reads_nothing(elsewhere: Page, page: Page, served: Served) -> None:
    wish = json.dumps({"job": "demo", "mode": "off", "confirmed": True})
    assert elsewhere.evaluate(TRIES, [served.url, "/v1/page/mode", wish]) == []
    assert ShedFiles(served.job.root).read_mode() is None
    assert served.server.refused["foreign"] >= 10
    # Nor where its name was made to point to this machine.
    rebound = served.url.replace("127.0.0.1", "elsewhere.localhost")
    answer = elsewhere.goto(rebound)
    assert answer is not None and answer.status == 403 and "another site" in answer.text()
    # The same from the page itself is what an operator does.
    page.goto(served.url)
    page.evaluate("body => fetch('/v1/page/mode', {method: 'POST', body})", wish)
    assert ShedFiles(served.job.root).read_mode() == "off"


def test_a_page_of_another_site_speaks_to_no_agent(elsewhere: Page, tmp_path: Path) -> None:
    plane = make_control_plane("alone", example("figure1"), "A", Security(), {}, tmp_path)
    modes: list[str] = []
    plane.keep_mode = modes.append
    wish = encode(Mode(network="figure1", receiver="A", sender="page", mode="off"))
    with HttpServer(plane.routes()) as server:
        assert elsewhere.evaluate(TRIES, [server.url, "/v1/mode", wish.decode()]) == []
        assert modes == [] and server.refused["foreign"] >= 10
        Client(server.url, timeout_seconds=PATIENCE_SECONDS).post_bytes("/v1/mode", wish)
        assert modes == ["off"]
