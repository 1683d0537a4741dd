"""Agents by their addresses: all asked at once, none waited for that hangs, the nodes of a network as one picture."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route

from floodway.agent.node.node import node_routes
from floodway.agent.planes.alone import Alone
from floodway.agent.planes.plane import ControlPlane
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.server import HttpServer
from floodway.dashboard.agents import UrlSource
from floodway.dashboard.board import Board
from floodway.dashboard.job_sources import Reading
from floodway.dashboard.past import sample_rates
from floodway.job.status.status import Place, Rates, Status, read_status
from floodway.job.store.store import LocalStore
from floodway.network.file import load_network
from tests.dashboard.made_state import CLICKS, ORDERS, MadeJob, demo_network
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("patient_page")

FIGURE1 = load_network(Path(__file__).resolve().parents[2] / "examples" / "networks" / "figure1.yaml")


def node_status(name: str, network: str = "figure1", **more: Any) -> Status:
    """The status of a node."""
    usual: dict[str, Any] = {"mode": "enforce", "time": time.time(), "rates": Rates(10.0, 9.0)}
    return Status(name=f"{network}: {name}", kind="node", network=network, node=name, **{**usual, **more})


def agent(plane: ControlPlane[Any], **more: Any) -> HttpServer:
    """An agent of a node with this status."""
    return HttpServer([*plane.routes(), *node_routes(lambda: node_status(plane.agent.name, **more), FIGURE1)])


def counting_agent(made: MadeJob) -> HttpServer:
    """The agent of the node that a job was made for."""
    plane = ControlPlane(Alone(demo_network(), "shop"))

    def status() -> Status:
        return replace(made_status(made), time=time.time())

    return HttpServer([*plane.routes(), *node_routes(status, demo_network())])


def made_status(made: MadeJob) -> Status:
    """The status that a made job wrote last."""
    found = read_status(LocalStore(made.root))
    assert found is not None
    return found


def test_what_an_agent_counts_between_two_answers_is_what_came_and_what_was_dropped(tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "shop", int(time.time()) - 50, node="shop")
    made.start(network=False)
    made.run(2)
    now, asked = made.now, count(step=60)
    with counting_agent(made) as server:
        source = UrlSource([server.url], clock=lambda: float(next(asked)), calendar=lambda: float(now))

        def after(seconds: int, batches: int) -> Reading:
            """The reading so many seconds later, once the agent has told of so many batches."""
            nonlocal now
            now += seconds
            while True:
                (reading,) = source.read()
                counted = reading.status.counts().offered["clicks"] if reading.status else 0
                if reading.problem is None and counted == batches * CLICKS:
                    return reading
                time.sleep(0.02)

        def came(reading: Reading, length: int = 10) -> dict[str, Any]:
            assert reading.timeline is not None
            return sample_rates(reading, *reading.timeline.window(now + 1, length))

        assert after(0, batches=2).timeline is None, "what came before anybody looked came at no known time"
        made.run(4)
        assert came(after(4, batches=6)) == {
            "seconds": 4,
            "offered": CLICKS + ORDERS,
            "kept": 0.8 * CLICKS + ORDERS,
            "dropped": pytest.approx({"shedder": 0.2 * CLICKS, "shedder, inside": 0.9 * 0.8 * CLICKS}),
        }
        made.run(9)
        all_of_it = came(after(9, batches=15), length=1000)
        assert (all_of_it["seconds"], all_of_it["offered"]) == (13, CLICKS + ORDERS)
        shutil.rmtree(made.root)
        again = MadeJob(tmp_path / "shop", made.now + 5, node="shop")
        again.start(network=False)
        again.run(1)
        assert after(1, batches=1).timeline is None, "counts that start over are another run's"
        again.run(2)
        assert came(after(2, batches=3))["offered"] == CLICKS + ORDERS


def kept_modes(plane: ControlPlane[Any]) -> list[str]:
    """The modes that this agent is asked for from now on."""
    modes: list[str] = []
    plane.keep_mode = modes.append
    return modes


def test_two_agents_that_say_the_same_name_are_told_and_switched_apart() -> None:
    planes = [ControlPlane(Alone(FIGURE1, "A")), ControlPlane(Alone(FIGURE1, "A"))]
    modes = [kept_modes(plane) for plane in planes]
    with ExitStack() as stack:
        servers = [stack.enter_context(agent(plane)) for plane in planes]
        board = Board(UrlSource([server.url for server in servers]))
        names = [job["name"] for job in board.snapshot()["jobs"]]
        assert names == [f"figure1: A, {server.url}" for server in servers]
        board.set_mode(names[1], "off")
        assert modes == [[], ["off"]]
        assert len({watched.job for watched in board.watched()}) == 2


def test_the_nodes_of_one_network_are_one_job_with_picture_and_ledger(tmp_path: Path) -> None:
    planes = {name: ControlPlane(Alone(FIGURE1, name)) for name in "AB"}
    modes = [kept_modes(plane) for plane in planes.values()]
    now = time.time()
    with ExitStack() as stack:
        urls = []
        for index, (name, plane) in enumerate(planes.items()):
            made = MadeJob(tmp_path / name, int(now) - 5)
            made.start(network=False)
            made.run(2 + index)
            told = made_status(made)
            places = {**told.places, f"s{index + 1}": Place(0.5, arriving=100.0)}
            shown = agent(plane, time=now - 100 * index, places=places, ledger=told.ledger)
            urls.append(stack.enter_context(shown).url)
        board = Board(UrlSource(urls), clock=lambda: now)
        (job,) = board.snapshot()["jobs"]
        assert (job["name"], job["has_picture"], list(job["silent"])) == ("figure1", True, ["B"])
        assert job["places"]["clicks"]["offered"] == 5 * CLICKS
        assert job["ledger"] == {"lines": 5 * 7, "differences": []}
        assert job["flow"]["rates"] == {"s1": 100.0, "s2": 100.0}
        board.set_mode("figure1", "observe")
        assert modes == [["observe"], ["observe"]]


def test_all_agents_are_asked_at_once() -> None:
    together = threading.Barrier(3)

    def answering(name: str) -> Callable[[], Status]:
        def status() -> Status:
            together.wait(PATIENCE_SECONDS)
            return node_status(name, "net", mode="off")

        return status

    with ExitStack() as stack:
        servers = [stack.enter_context(HttpServer(node_routes(answering(name)))) for name in "ABC"]
        (reading,) = UrlSource([server.url for server in servers]).read()
    assert (reading.name, reading.problem) == ("net", None)


def test_an_agent_that_hangs_is_not_waited_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked once; looks go on without it, and those that answer are shown."""
    asked = []
    # As if the time of a wait were over when all but the first have answered, whatever the machine is at.
    monkeypatch.setattr("floodway.dashboard.agents.wait", lambda futures, timeout: wait(futures[-1:]))
    with socket.create_server(("127.0.0.1", 0)) as hung, agent(ControlPlane(Alone(FIGURE1, "A"))) as server:
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        source = UrlSource([url, server.url], clock=lambda: 0.0)
        looks = [{reading.place: reading for reading in source.read()} for _ in range(20)]
        hung.settimeout(PATIENCE_SECONDS)
        asked.append(hung.accept()[0])  # the thread that asks may be late, whatever the others have done
        hung.setblocking(False)
        while True:
            try:
                asked.append(hung.accept()[0])
            except BlockingIOError:
                break
        for connection in asked:
            connection.close()
    assert all(look[server.url].problem is None for look in looks)
    assert all(re.search("has not answered yet|does not answer", str(look[url].problem)) for look in looks)
    assert len(asked) == 1


def test_a_silent_agent_is_asked_less_and_less_and_is_back_when_it_answers() -> None:
    plane = ControlPlane(Alone(FIGURE1, "A"))
    (port,) = free_ports(1)
    now = 0.0
    source = UrlSource([f"http://127.0.0.1:{port}"], clock=lambda: now)
    for _ in range(4):
        (reading,) = source.read()
        assert "does not answer" in str(reading.problem) or "not answered yet" in str(reading.problem)
        now += 40.0
    with HttpServer([*plane.routes(), *node_routes(lambda: node_status("A"))], port=port):

        def is_back() -> bool:
            nonlocal now, reading
            now += 40.0
            (reading,) = source.read()
            return reading.problem is None

        wait_until(is_back, "its answer")
    assert (reading.name, reading.problem) == ("A", None)


@pytest.mark.parametrize("answer", [[], "text", 3, {"name": "A", "time_us": 5}])
def test_an_agent_that_tells_no_status_is_a_problem_and_no_crash(answer: Any) -> None:
    with HttpServer([Route("/v1/status", lambda request: JSONResponse(answer))]) as server:
        (reading,) = UrlSource([server.url]).read()
    assert "no status of this version" in str(reading.problem) and reading.name == server.url
