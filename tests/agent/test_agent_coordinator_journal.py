"""A coordinator that is restarted goes on with its plans: on a simulated clock, and as a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from floodway.agent.planes.agent import Agent
from floodway.agent.planes.coordinator import Coordinator
from floodway.agent.planes.coordinator_state import WHOLE, CoordinatorState
from floodway.agent.planes.dfit.own import NodeMeasures
from floodway.agent.planes.plane import ControlPlane, make_control_plane
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.messages import COORDINATOR, PlanUpload
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.job.status.status import Status, read_status
from floodway.planning.plan import Objective
from floodway.spark.query.layout import NodeLayout
from tests.agent.test_agent_coordinator import RATES, SimulatedCoordinator
from tests.oracles.plan_checks import example
from tests.patience import wait_until

NETWORK = example("figure1")
FIGURE1 = Path("examples/networks/figure1.yaml")


def restarted(simulated: SimulatedCoordinator) -> Agent[CoordinatorState]:
    """The coordinator as its journal gives it back."""
    before = simulated.coordinator
    state = before.machine.from_journal(before.machine.to_journal(before.state), simulated.now)
    assert state is not None
    return Agent(before.machine, state)


@pytest.mark.parametrize("objective", [Objective.FAIR, Objective.TIERS])
def test_a_journal_of_another_objective_is_left_alone(objective: Objective) -> None:
    """Its plans and its numbers are for another goal: all is planned anew."""
    simulated = SimulatedCoordinator(NETWORK)
    simulated.turn(RATES, {})
    text = Coordinator(NETWORK).to_journal(simulated.coordinator.state)
    other = replace(Coordinator(NETWORK), objective=objective)
    assert other.journal.from_text(text) is None


def test_it_goes_on_with_the_same_plan_and_uploads_nothing_again() -> None:
    simulated = SimulatedCoordinator(NETWORK)
    measured = {"B": NodeMeasures({"b1": 4.0}, {})}
    simulated.turn({"s1": 2.0, "s2": 0.5}, measured)
    score = simulated.turn(RATES, measured)
    before = simulated.coordinator.state
    held = {name: node.state.rows for name, node in simulated.nodes.items()}
    simulated.coordinator = restarted(simulated)
    simulated.now += 5.0
    assert simulated.turn(RATES, measured) == pytest.approx(score)
    after = simulated.coordinator.state
    assert (after.generation, after.plan, after.rows) == (before.generation, before.plan, before.rows)
    assert {name: node.state.rows for name, node in simulated.nodes.items()} == held
    assert not any(isinstance(message, PlanUpload) for message in simulated.sent)
    assert simulated.coordinator.status(simulated.now)["acknowledged"] == ["A", "B"]
    assert simulated.coordinator.status(simulated.now)["resumed"] is True
    # Both plans are known by name, also to the nodes: going back needs no row.
    assert simulated.turn({"s1": 2.0, "s2": 0.5}, measured) > 0
    assert simulated.coordinator.state.rows.keys() == before.rows.keys()
    assert {name: node.state.rows for name, node in simulated.nodes.items()} == held


def test_a_node_that_has_not_reported_yet_counts_with_the_rates_of_the_plan() -> None:
    simulated = SimulatedCoordinator(NETWORK)
    simulated.turn({"s1": 2.0, "s2": 2.0})
    plan = simulated.coordinator.state.plan
    simulated.coordinator = restarted(simulated)
    assert simulated.coordinator.tick(simulated.now) == ()  # nobody has said that it is there
    simulated.cut = {"A"}
    simulated.turn({"s1": 2.0, "s2": 2.0})
    assert simulated.coordinator.state.plan == plan
    simulated.cut = set()
    simulated.turn({"s1": 0.1, "s2": 0.1})
    assert simulated.coordinator.state.plan == WHOLE


def test_plans_made_after_the_journal_was_written_are_made_up_for() -> None:
    simulated = SimulatedCoordinator(NETWORK)
    simulated.turn(RATES)
    old = restarted(simulated)
    measured = {"B": NodeMeasures({"b1": 1.0}, {})}
    score = simulated.turn(RATES, measured)  # another generation, which the journal does not know
    newer = simulated.coordinator.state.generation
    simulated.coordinator = old
    simulated.turn(RATES, measured)
    assert simulated.turn(RATES, measured) == pytest.approx(score, rel=0.05)
    assert simulated.coordinator.state.generation > newer
    assert simulated.coordinator.status(simulated.now)["acknowledged"] == ["A", "B"]


def test_a_journal_that_is_torn_or_of_another_coordinator_is_left_alone() -> None:
    simulated = SimulatedCoordinator(NETWORK)
    simulated.turn(RATES)
    journal = Coordinator(NETWORK).journal
    text = journal.to_text(simulated.coordinator.state)
    assert all(journal.from_text(text[:cut]) is None for cut in range(0, len(text), 7))
    other = Coordinator(NETWORK, "fit")
    dearer = replace(NETWORK, operators={**NETWORK.operators, "b1": replace(NETWORK.operators["b1"], cost=9.0)})
    assert other.journal.from_text(text) is None
    assert Coordinator(dearer).journal.from_text(text) is None
    unknown = text.replace(f'"plan":"{simulated.coordinator.state.plan}"', '"plan":"0123"', 1)
    assert unknown != text and journal.from_text(unknown) is None
    # One that has heard nobody yet has nothing to go on with.
    assert journal.from_text(journal.to_text(Coordinator(NETWORK).first())) is None


def test_the_plan_table_is_written_out_once() -> None:
    simulated = SimulatedCoordinator(NETWORK)
    simulated.turn(RATES)
    journal = Coordinator(NETWORK).journal
    state = simulated.coordinator.state
    assert journal.to_text(state) == journal.to_text(replace(state, number=state.number + 1))
    more = replace(state, rows={**state.rows, "another": next(iter(state.rows.values()))})
    found = journal.from_text(journal.to_text(more))
    assert found is not None and found.rows.keys() == more.rows.keys()


class Process:
    """`floodway node --coordinator`, and two nodes of the test's own that report to it."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self._arguments = arguments
        self.said = root / "said.txt"
        names = ["A", "B", COORDINATOR]
        self.urls = dict(zip(names, map("http://127.0.0.1:{}".format, free_ports(3)), strict=True))
        self.layout = NodeLayout(root / "state")
        self.nodes: dict[str, ControlPlane[Any]] = {}
        for name in "AB":
            plane = make_control_plane("coordinator", NETWORK, name, Security(), self.urls, root / name)
            self.nodes[name] = plane
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "floodway.cli.main", "node", str(FIGURE1), "--coordinator"]
        command += ["--state", str(self.layout.root), "--listen", self.urls[COORDINATOR].removeprefix("http://")]
        command += ["--urls", ",".join(f"{name}={url}" for name, url in self.urls.items())]
        with self.said.open("wb") as said:
            self._process = subprocess.Popen([*command, "--parent", str(os.getpid()), *self._arguments], stderr=said)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def status(self) -> Mapping[str, Any]:
        """What the running process says of itself; nothing of one before it."""
        told = self._told()
        return {} if told is None or told.control is None else told.control.details

    def refused(self) -> Mapping[str, int]:
        told = self._told()
        return {} if told is None or told.process is None else told.process.refused

    def _told(self) -> Status | None:
        status = read_status(self.layout.own(COORDINATOR).store)
        assert self._process is not None
        return status if status and status.process and status.process.pid == self._process.pid else None

    def until(self, holds: Callable[[], bool], rates: dict[str, float]) -> None:
        def observe() -> None:
            for plane in self.nodes.values():
                plane.observe(rates, {}, time.time())

        wait_until(holds, meanwhile=observe, told=self.status)


@contextmanager
def running(root: Path, *arguments: str) -> Iterator[Process]:
    process = Process(root, *arguments)
    servers = {
        name: HttpServer(plane.routes(), port=int(process.urls[name].rsplit(":", 1)[1]))
        for name, plane in process.nodes.items()
    }
    try:
        for name, plane in process.nodes.items():
            servers[name].start()
            plane.start()
        process.start()
        yield process
    finally:
        process.kill()
        for name, plane in process.nodes.items():
            plane.stop()
            servers[name].stop()


def test_a_process_says_once_why_it_does_not_plan_in_advance(tmp_path: Path) -> None:
    with running(tmp_path, "--objective", "fair") as process:
        process.until(lambda: process.status().get("acknowledged") == ["A", "B"], RATES)
        reason = process.status()["not_prepared"]
        assert "not for the objective 'fair'" in reason and process.status()["prepared"] == 0
        wait_until(lambda: process.said.read_text().count(reason) == 1)


def test_a_process_that_is_killed_resumes(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        journal = process.layout.control(COORDINATOR) / "coordinator.json"
        process.until(lambda: process.status().get("acknowledged") == ["A", "B"] and journal.exists(), RATES)
        # Of both nodes: the journal is written once a second, and may have missed what came between.
        process.until(lambda: journal.read_text().count('"acked":true') == 2, RATES)
        before = process.status()
        held = {name: plane.agent.state.rows for name, plane in process.nodes.items()}
        assert before["resumed"] is False and all(held.values())
        with pytest.raises(PeerError):
            Client(process.urls[COORDINATOR]).post_bytes("/v1/plan", b"{}")
        process.until(lambda: process.refused().get("malformed") == 1, RATES)
        process.kill()
        process.start()
        process.until(lambda: process.status().get("acknowledged") == ["A", "B"], RATES)
        process.until(lambda: process.status().get("cut_off") == [], RATES)
        after = process.status()
        assert after["resumed"] is True
        assert (after["generation"], after["plan"]) == (before["generation"], before["plan"])
        # An upload would have put another table in its place.
        assert all(plane.agent.state.rows is held[name] for name, plane in process.nodes.items())


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_journal_that_can_be_read(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        file = process.layout.control(COORDINATOR) / "coordinator.json"
        process.until(lambda: file.exists() and '"acked":true' in file.read_text(), RATES)
        for number in range(12):
            # Rates that never come to rest make it plan, and write, all the time.
            end = time.monotonic() + 0.3 + 0.17 * number
            while time.monotonic() < end:
                for plane in process.nodes.values():
                    plane.observe({"s1": 1.0 + time.monotonic() % 7, "s2": 1.0 + number}, {}, time.time())
                time.sleep(0.05)
            process.kill()
            assert Coordinator(NETWORK).journal.from_text(file.read_text()) is not None
            process.start()
            process.until(lambda: process.status().get("resumed") is True, RATES)
