"""Kill every process of a network in turn, and cut the link between agents: shedding goes on, accounts stay whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from floodway.network.file import parse_network
from floodway.spark.audit.nodes import audit_nodes
from tests.agent.nodes import FIGURE1, Relay, Up
from tests.patience import wait_until

pytestmark = pytest.mark.spark


def begin(up: Up) -> None:
    wait_until(lambda: up.check() and all(up.warm(node) for node in "AB"), "all nodes up")
    for node in "AB":
        up.await_more(node, f"batches of {node}")


def end(up: Up) -> None:
    """The end is clean, every tuple is accounted for, and nothing is left running."""
    report = up.finish()
    assert report["reconciled"], report["differences"]
    assert report["restarts"]["A"] >= 1 and report["restarts"]["B"] >= 1
    audited = audit_nodes(parse_network(FIGURE1), up.layout)
    assert audited.differences == ()
    assert {link.link for link in audited.links} == {"a1->b1", "a2->b2"}
    assert all(link.delivered == link.in_log and link.offered > 0 for link in audited.links)
    assert any(line.dropped for line in up.lines("A"))
    assert up.left() == []


def table_of_b(up: Up) -> int | None:
    """The version of B's table that A plans with; None while it plans B as the file says."""
    version: int | None = up.control("A")["children"]["B"]["version"]
    return version


def kill_and_resume(up: Up, *nodes: str) -> None:
    """One after the other; each comes back as another process and goes on with the batch after its last."""
    before = {node: up.lines(node)[-1].batch for node in nodes}
    for node in nodes:
        up.kill_and_restart(node)
    for node in nodes:
        up.await_more(node, f"{node} resumed")
        assert up.lines(node)[-1].batch > before[node]


@pytest.mark.slow
def test_a_cut_link_and_a_kill_of_each_node(tmp_path: Path) -> None:
    state = tmp_path / "state"
    relay = Relay(lambda: str(json.loads((state / "nodes" / "A" / "agent.json").read_text())["url"]))
    relay.open()
    try:
        with Up(tmp_path, FIGURE1, "--seconds", "600", "--target", "6", "--peers", f"A={relay.url}") as up:
            begin(up)
            wait_until(lambda: table_of_b(up) is not None, "B's table has come to A")
            relay.close()
            wait_until(lambda: up.control("A")["cut_off"] == ["B"], "A says that B is silent")
            assert table_of_b(up) is not None  # planned as its last table
            up.await_more("A", "A sheds on with the last good plan")
            kill_and_resume(up, "B", "A")
            relay.open()
            wait_until(lambda: up.check() and up.control("A")["cut_off"] == [], "A hears B again")
            end(up)
    finally:
        relay.close()


@pytest.mark.slow
def test_a_coordinator_that_dies_leaves_every_node_shedding(tmp_path: Path) -> None:
    with Up(tmp_path, FIGURE1, "--seconds", "600", "--target", "6", "--control", "coordinator") as up:
        begin(up)
        wait_until(lambda: up.control("A").get("plan") is not None, "A has a plan of the coordinator's")
        up.kill_and_restart("coordinator")
        for node in "AB":
            up.await_more(node, f"{node} sheds without the coordinator")
        kill_and_resume(up, "A", "B")
        end(up)
