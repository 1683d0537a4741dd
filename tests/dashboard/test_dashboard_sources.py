"""Readings come from folders, from networks of processes, from sheds, and from agents over HTTP."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from floodway.agent.loop.run_files import save_network
from floodway.agent.node.node import node_routes
from floodway.agent.planes.alone import Alone
from floodway.agent.planes.plane import ControlPlane
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.server import HttpServer
from floodway.dashboard.agents import UrlSource
from floodway.dashboard.board import Board
from floodway.dashboard.job_sources import Sources, StateSource
from floodway.errors import InputError
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.places import ShedFiles
from floodway.job.status.status import Place, Status
from floodway.network.file import load_network
from tests.dashboard.made_state import CLICKS, ORDERS, MadeJob
from tests.dashboard.test_dashboard_agents import node_status

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "networks"


def test_nodes_that_are_processes_are_one_network(tmp_path: Path) -> None:
    for node in ("A", "B"):
        job = MadeJob(tmp_path / "net" / "nodes" / node, 1_000, name="net", node=node)
        job.start(network=False)
        job.run(2)
    source = StateSource([tmp_path / "net"])
    (reading,) = source.read()
    assert reading.figures is not None and reading.status is not None
    assert reading.figures.fold.total.offered["clicks"] == reading.status.places["clicks"].offered == 4 * CLICKS
    assert reading.figures.latencies.count > 0
    source.switch(reading, "off")
    assert [ShedFiles(tmp_path / "net" / "nodes" / node).read_mode() for node in ("A", "B")] == ["off", "off"]


def test_a_network_of_processes_has_its_name_before_any_node_speaks(tmp_path: Path) -> None:
    save_network(tmp_path, load_network(EXAMPLES / "figure1.yaml"))
    (reading,) = StateSource([tmp_path]).read()
    assert (reading.name, reading.problem) == ("figure1", "nothing written yet")
    assert reading.network is not None


def test_a_shed_needs_no_network(tmp_path: Path) -> None:
    files = ShedFiles(tmp_path / "clicks")
    now = time.time()
    places = {"clicks": Place(0.5)}
    files.write_status(Status("clicks", "shed", "observe", now, keep=0.5, reason="a batch is full", places=places))
    Ledger(files.store).append([LedgerLine("q", 0, "clicks", "shedder", 40, 30, 10, time_us=int((now - 1) * 1e6))])
    (job,) = Board(StateSource([tmp_path]), clock=lambda: now).snapshot()["jobs"]
    assert (job["name"], job["mode"], job["has_picture"], job["score"]) == ("clicks", "observe", False, None)
    assert job["places"]["clicks"]["keep"] == 0.5
    assert job["reason"] == "a batch is full"
    assert job["totals"]["dropped"] == {"shedder": 10}
    assert job["sample"]["offered"] > 0


def test_a_job_that_starts_later_appears(tmp_path: Path) -> None:
    source = StateSource([tmp_path])
    assert [reading.problem for reading in source.read()] == ["nothing written yet"]
    MadeJob(tmp_path / "late", 1_000, name="late").start()
    assert [reading.name for reading in source.read()] == ["late"]


def test_a_wrong_folder_or_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        StateSource([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="no job is called 'x'"):
        Board(Sources([StateSource([tmp_path])])).set_mode("x", "off")


@pytest.mark.usefixtures("patient_page")
def test_agents_are_asked_and_switched_over_http() -> None:
    plane = ControlPlane(Alone(load_network(EXAMPLES / "figure1.yaml"), "A"))
    modes: list[str] = []
    plane.keep_mode = modes.append

    (port,) = free_ports(1)  # nobody else gets it when the agent has gone
    with HttpServer([*plane.routes(), *node_routes(lambda: node_status("A"))], port=port) as server:
        source = UrlSource([server.url])
        (reading,) = source.read()
        assert reading.name == "A" and reading.status is not None
        assert reading.status.loss == pytest.approx(0.1)
        source.switch(reading, "observe")
        assert modes == ["observe"]
    (reading,) = source.read()
    assert reading.status is not None and reading.status.loss == pytest.approx(0.1), "what was heard last stays"
    assert reading.problem is not None
    with pytest.raises(InputError, match="not switched: A"):
        source.switch(reading, "off")


def test_figures_are_those_of_the_last_seconds(made: MadeJob) -> None:
    clock = float(made.now)
    board = Board(StateSource([made.root]), clock=lambda: clock)
    job = board.snapshot()["jobs"][0]
    assert job["flow"]["rates"] == {"clicks": CLICKS, "orders": ORDERS}
    assert job["flow"]["keeps"]["clicks"] == pytest.approx(0.8)
    assert job["score"] == pytest.approx(0.8 * CLICKS * 1.1 + 3 * ORDERS)
    assert job["optimum"] == pytest.approx(1900.0)
    assert [job["places"][at]["waiting"] for at in ("clicks", "orders")] == [120, 150]
    assert len(job["history"]) == 31
    assert [sample["latency"] for sample in job["history"][1:]] == pytest.approx([1.8] * 30)
    clock += 100.0
    ended = board.snapshot()["jobs"][0]
    assert ended["stale"]
    assert ended["flow"]["rates"] == {"clicks": CLICKS, "orders": ORDERS}
