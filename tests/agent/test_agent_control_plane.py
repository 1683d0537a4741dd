"""Control planes over real HTTP on this machine: signed, with certificates, cut off, restarted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from floodway.agent.planes.alone import Alone
from floodway.agent.planes.coordinated import CoordinatedNode
from floodway.agent.planes.dfit.agent import DFit
from floodway.agent.planes.plane import (
    ControlPlane,
    Plane,
    make_control_plane,
    make_coordinator,
)
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.messages import COORDINATOR, Mode, TablePush, decode, encode
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.errors import InputError
from floodway.job.decision import write_mode
from floodway.job.store.store import LocalStore
from tests.agent.wire.certificates import make_authority, make_files
from tests.oracles.plan_checks import example
from tests.patience import wait_until

NETWORK = example("figure1")
KEY = Security(b"0123456789abcdef0123456789abcdef")
RATES = {"s1": 1.0, "s2": 1.0}
BELOW = {"a1->b1": 0.2, "a2->b2": 0.4}


class Agent:
    """One agent of a test: its control plane and its server."""

    def __init__(self, kind: str, name: str, urls: Mapping[str, str], security: Security, root: Path) -> None:
        self.name = name
        self.url = urls[name]
        self.plane: Plane[Any]
        if name == COORDINATOR:
            self.plane = make_coordinator(NETWORK, security, urls, root / name)
        else:
            self.plane = make_control_plane(kind, NETWORK, name, security, urls, root / name)
        self.server = HttpServer(self.plane.routes(), port=int(self.url.rsplit(":", 1)[1]), security=security)
        self.server.start()
        self.plane.start()

    def keeps(self) -> Mapping[str, float]:
        assert isinstance(self.plane, ControlPlane)
        return self.plane.planner.plan(RATES if self.name == "A" else BELOW).keeps

    def stop(self) -> None:
        self.plane.stop()
        self.server.stop()


@contextmanager
def agents(
    kind: str, root: Path, security: Security | Mapping[str, Security] = KEY
) -> Iterator[tuple[dict[str, Agent], Callable[[str], Agent]]]:
    names = ["A", "B", *([COORDINATOR] if kind == "coordinator" else [])]
    secure = security if isinstance(security, Mapping) else dict.fromkeys(names, security)
    scheme = "http" if secure["A"].tls is None else "https"
    urls = {name: f"{scheme}://127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
    running: dict[str, Agent] = {}

    def launch(name: str) -> Agent:
        running[name] = Agent(kind, name, urls, secure[name], root)
        return running[name]

    try:
        for name in names:
            launch(name)
        yield running, launch
    finally:
        for agent in running.values():
            agent.stop()


def until(holds: Callable[[], bool], running: Mapping[str, Agent], costs: Mapping[str, float] | None = None) -> None:
    """Nodes observe until something holds, or too long."""

    def observe() -> None:
        for name, rates in (("A", RATES), ("B", BELOW)):
            plane = running[name].plane
            if isinstance(plane, ControlPlane):
                plane.observe(rates, costs or {} if name == "B" else {}, time.time())

    wait_until(holds, meanwhile=observe, told=lambda: {name: agent.plane.status() for name, agent in running.items()})


def sheds_for_b(running: Mapping[str, Agent]) -> bool:
    """Whether A does what is best with b1 at 30 CPU-seconds a tuple: hardly any of s1."""
    keeps = running["A"].keeps()
    return keeps["s1"] < 0.05 and 0.4 < keeps["s2"] <= 0.5 + 1e-6


@pytest.mark.parametrize("kind", ["dfit", "coordinator"])
def test_a_sheds_for_b_and_goes_on_when_cut_off_and_restarted(kind: str, tmp_path: Path) -> None:
    costs = {"b1": 30.0}
    with agents(kind, tmp_path) as (running, launch):
        until(lambda: sheds_for_b(running), running, costs)
        assert running["B"].server.refused == running["A"].server.refused == {}
        # A peer counts as silent when this process was held up for long; that is over with its next message.
        until(lambda: running["A"].plane.status()["cut_off"] == [], running, costs)
        assert running["A"].plane.status()["error"] is None
        # The other one dies: the plan stays.
        silent = running.pop("B" if kind == "dfit" else COORDINATOR)
        silent.stop()
        assert sheds_for_b(running)
        # So does A, and comes back with its journal alone.
        running.pop("A").stop()
        assert (tmp_path / "A" / "control.json").exists()
        assert sheds_for_b({"A": launch("A")})
        launch(silent.name)
        until(lambda: not running["A"].plane.status()["cut_off"], running, costs)
        until(lambda: sheds_for_b(running), running, costs)
        assert isinstance(running["A"].plane.agent.machine, DFit if kind == "dfit" else CoordinatedNode)


def test_tables_on_the_wire_are_smaller_than_the_papers_rows(tmp_path: Path) -> None:
    with agents("dfit", tmp_path) as (running, _):
        until(lambda: running["B"].plane.status().get("acknowledged") is True, running)
        plane = running["B"].plane
        sent = plane.peers.traffic.counts
        assert sent["tables"] >= 1 and sent["rows"] >= 289
        assert sent["bytes"] < sent["paper_bytes"] == sent["rows"] * (22 * 2 + 8)


def test_mutual_tls_between_agents(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    security = {name: Security(tls=make_files(tmp_path, name, authority)) for name in ("A", "B")}
    with agents("dfit", tmp_path, security) as (running, _):
        until(lambda: running["B"].plane.status().get("acknowledged") is True, running)
        assert running["A"].url.startswith("https://")


def test_a_peer_with_another_key_is_refused_counted_and_changes_nothing(tmp_path: Path) -> None:
    with agents("dfit", tmp_path, {"A": KEY, "B": Security(b"another key, another network")}) as (running, _):
        until(lambda: running["A"].server.refused["bad-signature"] > 0, running, {"b1": 30.0})
        plane = running["A"].plane
        assert plane.agent.state.children[0].version is None
        assert running["A"].keeps()["s1"] == pytest.approx(0.2, rel=0.05)
        assert plane.status()["cut_off"] == ["B"]


def test_status_and_mode(tmp_path: Path) -> None:
    alone = make_control_plane("alone", NETWORK, "A", KEY, {}, tmp_path)
    assert isinstance(alone.agent.machine, Alone)
    modes: list[str] = []
    with HttpServer(alone.routes(), security=KEY) as server:
        client = Client(server.url, KEY)
        assert client.get_json("/v1/status")["cut_off"] == []
        order = Mode(network="figure1", sender="user", receiver="A", mode="observe")
        with pytest.raises(PeerError, match="there is no mode"):  # nobody here would carry it out
            client.post_bytes("/v1/mode", encode(order))
        alone.keep_mode = partial(write_mode, LocalStore(tmp_path / "mode.json"))
        (tmp_path / "mode.json").touch()  # where a folder should be
        with pytest.raises(PeerError):  # nor is a mode promised that is not written
            client.post_bytes("/v1/mode", encode(order))
        alone.keep_mode = modes.append
        answer = decode(client.post_bytes("/v1/mode", encode(order)), network="figure1", receiver="user")
        assert answer.kind == "noted" and modes == ["observe"]
        beat = TablePush(network="figure1", sender="B", receiver="A", form="beat", version=1)
        for path, message in (("/v1/table", beat), ("/v1/plan", order), ("/v1/mode", beat)):
            with pytest.raises(PeerError) as error:
                client.post_bytes(path, encode(message))
            assert error.value.reason == "unknown"
        assert server.refused == {"unknown": 4, "failed": 1} and modes == ["observe"]


def test_alone_plans_for_itself_with_the_costs_it_measures(tmp_path: Path) -> None:
    alone = make_control_plane("alone", NETWORK, "A", Security(), {}, tmp_path)
    assert alone.planner.plan(RATES).keeps == pytest.approx({"s1": 1.0, "s2": 0.0}, abs=1e-6)
    same = alone.planner
    alone.observe(RATES, {"a1": 1.01, "a2": 2.0}, 0.0)
    alone.tick(0.0)
    assert alone.planner is same
    alone.observe(RATES, {"a1": 4.0, "a2": 2.0}, 1.0)
    assert alone.planner.plan(RATES).keeps == pytest.approx({"s1": 0.0, "s2": 0.5}, abs=1e-6)


def test_unknown_kinds_and_nodes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean"):
        make_control_plane("d-fit", NETWORK, "A", Security(), {}, tmp_path)
    for kind in ("alone", "dfit", "coordinator"):
        with pytest.raises(InputError, match="no operator runs"):
            make_control_plane(kind, NETWORK, "Z", Security(), {}, tmp_path)
