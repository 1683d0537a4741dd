"""`--page` of `floodway run` and `floodway up`: there before the first batch, with the whole network on it."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from floodway.agent.loop.run_files import save_network
from floodway.cli.node import node
from floodway.cli.participant import participant
from floodway.cli.view.page import watched
from floodway.dashboard.board import LEAST_SECONDS
from floodway.job.options.options import JobOptions
from tests.command import floodway
from tests.dashboard.made_state import CLICKS, MadeJob, demo_network
from tests.patience import PATIENCE_SECONDS

NO_RATE = """
version: 1
name: shop
streams: {clicks: {}}
nodes: {A: {cpu: 1.0}}
operators: {work: {node: A, from: clicks, cost: 0.001}}
outputs: {q: {from: work}}
"""


def snapshot(url: str) -> dict[str, Any]:
    time.sleep(LEAST_SECONDS)  # the page looks at the files no more often
    with urllib.request.urlopen(f"{url}/v1/page/snapshot", timeout=PATIENCE_SECONDS) as answer:
        body: dict[str, Any] = json.load(answer)
    return body


def test_the_page_of_nodes_that_are_processes_shows_them_as_one_network(tmp_path: Path) -> None:
    with watched(tmp_path / "net", JobOptions(page="127.0.0.1:0")) as url:
        assert url is not None
        assert snapshot(url)["jobs"][0]["problem"] == "nothing written yet"
        save_network(tmp_path / "net", demo_network())
        for node in ("A", "B"):
            job = MadeJob(tmp_path / "net" / "nodes" / node, int(time.time()) - 5, name="shop", node=node)
            job.start(network=False)
            job.run(3)
        (shown,) = snapshot(url)["jobs"]
        assert (shown["name"], shown["has_picture"]) == (demo_network().name, True)
        assert shown["places"]["clicks"]["offered"] == 2 * 3 * CLICKS


def test_no_page_unless_asked_for(tmp_path: Path) -> None:
    with watched(tmp_path / "net", JobOptions()) as url:
        assert url is None
    assert not (tmp_path / "net").exists()


def test_up_serves_the_page_before_it_starts_anything(tmp_path: Path) -> None:
    network = tmp_path / "net.yaml"
    network.write_text(NO_RATE, encoding="utf-8")
    done = floodway("up", str(network), "--state", str(tmp_path / "state"), "--page", "127.0.0.1:0")
    assert done.returncode == 2
    page, error = done.stderr.split("\n", 1)
    assert page.startswith("page: http://127.0.0.1:")
    assert "--rates clicks=100" in error


@pytest.mark.parametrize("command", ["run", "up"])
def test_a_port_that_is_taken_is_told_before_spark_starts(tmp_path: Path, command: str) -> None:
    network = tmp_path / "net.yaml"
    network.write_text(NO_RATE, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = floodway(command, str(network), "--state", str(tmp_path / "state"), "--page", address)
    assert done.returncode != 0
    assert f"cannot listen on {address}" in done.stderr
    assert "Choose another port" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["node", "participant"])
def test_agents_serve_the_page_too_before_spark_starts(tmp_path: Path, command: str) -> None:
    """A port that is taken stops them, with nothing started; the page would be the one of `--state`."""
    examples = Path(__file__).parents[2] / "examples"
    federation = ("--name", "A", "--shared", str(tmp_path / "shared"), "--catalogue", "examples.intrusion_catalogue")
    cases: dict[str, tuple[Path, Callable[..., None], tuple[str, ...]]] = {
        "node": (examples / "networks" / "figure1.yaml", node, ("--node", "A")),
        "participant": (examples / "federation" / "three.yaml", participant, (*federation, "--listen", "127.0.0.1:0")),
    }
    given, function, arguments = cases[command]
    app = typer.Typer()
    app.command()(function)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ("--state", str(tmp_path / "state"), "--page", address, *arguments)
        answer = CliRunner().invoke(app, [str(given), *options])
    assert f"cannot listen on {address}" in str(answer.exception)
    assert not (tmp_path / "shared").exists() and not (tmp_path / "state" / "nodes").exists()
