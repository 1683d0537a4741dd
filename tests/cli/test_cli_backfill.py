"""What `floodway backfill` refuses before it starts Spark, each in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.job.ledger.facts import BatchFacts, FactsLog
from floodway.job.store.lease import take
from floodway.job.store.store import LocalStore, write_atomically
from tests.command import floodway

RUN = ("--run", "json:dumps")
KAFKA = ("--kafka", "kafka.bootstrap.servers=localhost:9092")
NETWORK = """
version: 1
name: shop
streams: {clicks: {max_rate: 10}, orders: {max_rate: 10}}
nodes: {A: {cpu: 1.0}}
operators: {a: {node: A, from: clicks, cost: 1.0}, b: {node: A, from: orders, cost: 1.0}}
outputs: {q: {from: a}, r: {from: b}}
"""


def shop(folder: Path, *dropped: str) -> Path:
    """The state of a network that dropped tuples of these streams."""
    write_atomically(folder / "network.json", NETWORK)
    for stream in dropped:
        FactsLog(LocalStore(folder), stream).add(BatchFacts("A.main@1", 0, 0, "enforce", 10, 4, 400_000, 1))
    write_atomically(folder / "status.json", "{}")
    return folder


def refused(*arguments: object) -> str:
    done = floodway("backfill", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    return done.stderr


@pytest.fixture
def shed(tmp_path: Path) -> Path:
    write_atomically(tmp_path / "clicks" / "status.json", "{}")
    return tmp_path


def test_a_job_that_never_ran(tmp_path: Path) -> None:
    assert "no job 'nobody'" in refused("nobody", "--state", tmp_path, *RUN, *KAFKA)


def test_a_second_one_at_the_same_time(shed: Path) -> None:
    with take(shed / "clicks" / "backfill" / "clicks" / "writer.lock", ""):
        assert "another backfill of clicks is running" in refused("clicks", "--state", shed, *RUN, *KAFKA)


def test_a_shed_whose_source_is_not_named(shed: Path) -> None:
    message = "neither --kafka nor --source says where the tuples of clicks are read again"
    assert message in refused("clicks", "--state", shed, *RUN)
    assert "has no streams" in refused("clicks", "--state", shed, *RUN, *KAFKA, "--stream", "x")


def test_a_function_that_is_not_there(shed: Path) -> None:
    assert "--run" in refused("clicks", "--state", shed, "--run", "json:nothing", *KAFKA)


def test_a_network_whose_stream_is_not_clear(tmp_path: Path) -> None:
    assert "has dropped tuples of 0 streams. There is nothing to process" in refused(shop(tmp_path / "a"), *RUN)
    assert "Name one by --stream: clicks, orders" in refused(shop(tmp_path / "b", "clicks", "orders"), *RUN)
    assert "has no stream 'taps'" in refused(tmp_path / "b", *RUN, "--stream", "taps")


def test_a_stream_that_several_nodes_read(tmp_path: Path) -> None:
    for node in "AB":
        shop(tmp_path / "shop" / "nodes" / node, "clicks")
    write_atomically(tmp_path / "shop" / "network.json", NETWORK)
    assert "'clicks' of shop is read by several nodes" in refused(tmp_path / "shop", *RUN)
