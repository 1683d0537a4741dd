"""`floodway up --links kafka://…`: nodes as processes with topics between them, killed in turn, accounts whole."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from floodway.network.file import parse_network
from floodway.network.model import Arc
from floodway.spark.audit.nodes import audit_nodes
from floodway.spark.log import LogReader
from floodway.spark.log.kafka_links import link_counts, link_schema, parse_kafka
from floodway.spark.query.journal import query_key
from floodway.spark.query.sinks import writer_of
from floodway.spark.source.backend import open_backend
from floodway.spark.source.options import parse_options
from scripts.kafka_broker import Broker
from tests.agent.nodes import FIGURE1, Up
from tests.agent.test_agent_node_faults import begin, kill_and_resume

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

LINKS = ("a1->b1", "a2->b2")


def test_nodes_with_topics_between_them_lose_and_double_nothing(broker: Broker, tmp_path: Path) -> None:
    arguments = ("--seconds", "600", "--target", "6", "--links", f"kafka://{broker.address}")
    with Up(tmp_path, FIGURE1, *arguments) as up:
        begin(up)
        kill_and_resume(up, "A", "B")
        report = up.finish()
        assert report["reconciled"], report["differences"]
        assert report["restarts"]["A"] >= 1 and report["restarts"]["B"] >= 1
        assert not (up.state / "links").exists()
        network = parse_network(FIGURE1)
        audited = audit_nodes(network, up.layout)
        assert audited.differences == () and audited.unchecked == ()
        assert {link.link for link in audited.links} == set(LINKS)
        for link in audited.links:
            assert link.delivered + link.unfinished == link.in_log and link.offered > 0 and link.repeated == 0
            producer, _, consumer = link.link.partition("->")
            checkpoint = up.layout.own("A").root / "checkpoints" / "A.main"
            writer = writer_of(query_key("A.main", checkpoint), link.link)
            counts = link_counts(up.layout.link(Arc(producer, consumer)), [writer])
            assert counts.foreign == 0 and counts.length == link.in_log
        passed_on = first_arrivals(up.layout.link(Arc("a1", "b1")))
        assert passed_on == stream_arrivals(up.state / "streams" / "s1", passed_on.keys())
        assert up.left() == []


def test_a_broker_that_dies_under_the_links_costs_nothing(fresh_broker: Broker, tmp_path: Path) -> None:
    arguments = ("--seconds", "600", "--target", "6", "--links", f"kafka://{fresh_broker.address}")
    with Up(tmp_path, FIGURE1, *arguments) as up:
        begin(up)
        fresh_broker.kill()
        time.sleep(5.0)
        fresh_broker.stop()
        fresh_broker.start()
        for node in "AB":
            up.await_more(node, f"{node} goes on")
        report = up.finish()
        assert report["reconciled"], report["differences"]
        audited = audit_nodes(parse_network(FIGURE1), up.layout)
        assert audited.differences == () and len(audited.links) == len(LINKS)
        assert all(link.repeated == 0 and link.offered > 0 for link in audited.links)


def first_arrivals(address: str) -> dict[int, int]:
    """When the first hundred tuples of the link first arrived anywhere, in milliseconds, by their identity."""
    servers, topic = parse_kafka(address)
    options = {"topic": topic, "kafka.bootstrap.servers": servers, "valueFormat": "arrow"}
    backend = open_backend(parse_options({**options, "schema": link_schema(address) or ""}))
    rows = [row for _, piece in backend.read(0, [(0, 100)]) for row in piece.to_pylist()]
    assert len(rows) == 100
    return {int(row["origin_id"]): int(row["_arrival"].timestamp() * 1000) for row in rows}


def stream_arrivals(log: Path, tuples: Iterable[int]) -> dict[int, int]:
    """The same, as the stream's own log has it."""
    reader = LogReader(log)
    (end,) = reader.end_positions().values()
    times = [time for batch in reader.read(0, 0, end) for time in batch.column("_arrival").to_pylist()]
    return {number: int(times[number].timestamp() * 1000) for number in tuples}
