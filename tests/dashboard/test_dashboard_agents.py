"""Agents by their addresses: all asked at once, none waited for that hangs, the nodes of a network as one picture."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from floodway.agent.nodes.api import node_routes
from floodway.agent.nodes.metrics import FolderMetrics
from floodway.agent.planes.plane import Alone
from floodway.agent.wire.server import HttpServer
from floodway.dashboard.agents import UrlSource
from floodway.dashboard.board import Board
from floodway.network.file import load_network
from tests.dashboard.made_state import CLICKS, MadeJob

FIGURE1 = load_network(Path(__file__).resolve().parents[2] / "examples" / "networks" / "figure1.yaml")


def agent(plane: Alone, **more: Any) -> HttpServer:
    """An agent of a node, which tells what it is told."""

    def status() -> dict[str, Any]:
        return {"name": f"figure1: {plane.name}", "node": plane.name, "mode": plane.mode, "loss": 0.1, **more}

    return HttpServer([*plane.routes(), *node_routes(status, FIGURE1)])


def test_two_agents_that_say_the_same_name_are_told_and_switched_apart() -> None:
    planes = [Alone(FIGURE1, "A"), Alone(FIGURE1, "A")]
    with ExitStack() as stack:
        servers = [stack.enter_context(agent(plane)) for plane in planes]
        board = Board(UrlSource([server.url for server in servers]))
        names = [job["name"] for job in board.snapshot()["jobs"]]
        assert names == [f"figure1: A, {server.url}" for server in servers]
        board.set_mode(names[1], "off")
        assert [plane.mode for plane in planes] == [None, "off"]
        assert len({watched.job for watched in board.watched()}) == 2


def test_the_nodes_of_one_network_are_one_job_with_picture_and_ledger(tmp_path: Path) -> None:
    planes = {name: Alone(FIGURE1, name) for name in "AB"}
    now = time.time()
    with ExitStack() as stack:
        urls = []
        for index, (name, plane) in enumerate(planes.items()):
            made = MadeJob(tmp_path / name, int(now) - 5)
            made.start(network=False)
            made.run(2 + index)
            told = FolderMetrics(name, made.root).told()
            rates = {"rates": {f"s{index + 1}": 100.0}, "keeps": {f"s{index + 1}": 0.5}}
            urls.append(stack.enter_context(agent(plane, time_us=int((now - 100 * index) * 1e6), **rates, **told)).url)
        board = Board(UrlSource(urls))
        (job,) = board.snapshot()["jobs"]
        assert (job["name"], job["has_picture"], list(job["silent"])) == ("figure1", True, ["B"])
        assert job["offered"]["clicks"] == 5 * CLICKS
        assert job["ledger"] == {"state": "reconciled", "lines": 5 * 7, "differences": []}
        assert job["flow"]["rates"] == {"s1": 100.0, "s2": 100.0}
        board.set_mode("figure1", "observe")
        assert [plane.mode for plane in planes.values()] == ["observe", "observe"]


def test_all_agents_are_asked_at_once() -> None:
    together = threading.Barrier(3)

    def answering(name: str) -> Callable[[], dict[str, Any]]:
        def status() -> dict[str, Any]:
            together.wait(timeout=10)
            return {"name": f"net: {name}", "node": name, "mode": "off"}

        return status

    with ExitStack() as stack:
        servers = [stack.enter_context(HttpServer(node_routes(answering(name)))) for name in "ABC"]
        (reading,) = UrlSource([server.url for server in servers]).read()
    assert (reading.name, reading.problem) == ("net", None)


def test_an_agent_that_hangs_is_not_waited_for_twice() -> None:
    """It is asked once; looks go on without it, and those that answer are shown."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as hung, agent(Alone(FIGURE1, "A")) as server:
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        source = UrlSource([url, server.url])
        looks = [{reading.place: reading for reading in source.read()} for _ in range(20)]
        hung.setblocking(False)
        while True:
            try:
                asked.append(hung.accept()[0])
            except BlockingIOError:
                break
        for connection in asked:
            connection.close()
    assert all(look[server.url].problem is None for look in looks)
    assert all("has not answered yet" in str(look[url].problem) for look in looks)
    assert len(asked) == 1


def test_a_silent_agent_is_asked_less_and_less_and_is_back_when_it_answers() -> None:
    plane = Alone(FIGURE1, "A")
    with agent(plane) as server:
        url = server.url
    now = 0.0
    source = UrlSource([url], clock=lambda: now)
    for _ in range(4):
        (reading,) = source.read()
        assert "does not answer" in str(reading.problem) or "not answered yet" in str(reading.problem)
        now += 40.0
    with HttpServer(
        [*plane.routes(), *node_routes(lambda: {"name": "figure1: A", "node": "A"})], port=int(url.rpartition(":")[2])
    ):
        for _ in range(200):
            (reading,) = source.read()
            now += 40.0
            if reading.problem is None:
                break
            time.sleep(0.02)
    assert (reading.name, reading.problem) == ("A", None)


@pytest.mark.parametrize("answer", [[], "text", 3])
def test_an_agent_that_tells_no_status_is_a_problem_and_no_crash(answer: Any) -> None:
    with HttpServer(node_routes(lambda: answer)) as server:
        (reading,) = UrlSource([server.url]).read()
    assert reading.problem is not None and reading.name == server.url
