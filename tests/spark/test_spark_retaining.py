"""Which logs a run may let tuples go from, and how far: from real checkpoints' files, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from floodway.network.file import load_network, parse_network
from floodway.network.model import Arc, Network
from floodway.spark.log import Retention
from floodway.spark.query.layout import NodeLayout, RunLayout
from floodway.spark.query.retaining import node_retaining, run_retaining
from floodway.spark.source.offsets import BatchOffset

KEPT = Retention(max_bytes=1000, max_age_seconds=60.0)


@pytest.fixture
def network() -> Network:
    return load_network(Path("examples/networks/figure1.yaml"))


def journal(checkpoint: Path, stream: str, ends: list[int], committed: int) -> None:
    """A query that has cut a batch for each of `ends` and committed the first ones."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    start = 0
    for number, end in enumerate(ends):
        offset = json.dumps(BatchOffset(stream, {0: start}, {0: end}).to_json())
        (checkpoint / "offsets" / str(number)).write_text(f'v1\n{{"batchTimestampMs": {number}}}\n{offset}')
        if number < committed:
            (checkpoint / "commits" / str(number)).write_text("v1\n{}")
        start = end


def test_a_link_keeps_what_its_reader_has_not_committed(network: Network, tmp_path: Path) -> None:
    retaining = run_retaining(network, RunLayout(tmp_path), KEPT)
    assert retaining.of("q1") == KEPT
    link = retaining.of("a1->b1")
    assert link is not None and link.unread_from == {}, "a reader that never ran has read nothing"
    journal(tmp_path / "checkpoints" / "B.main", "a1->b1", [100, 250, 400], committed=2)
    link = retaining.of("a1->b1")
    assert link == Retention(KEPT.max_bytes, KEPT.max_age_seconds, unread_from={0: 250})
    other = retaining.of("a2->b2")
    assert other is not None and other.unread_from == {}
    (tmp_path / "checkpoints" / "B.main" / "offsets" / "1").write_text("half")
    torn = retaining.of("a1->b1")
    assert torn is not None and torn.unread_from == {}, "what cannot be told lets nothing go"


def test_a_node_asks_the_checkpoint_of_the_node_that_reads(network: Network, tmp_path: Path) -> None:
    layout = NodeLayout(tmp_path)
    retaining = node_retaining(network, layout, "A", KEPT)
    assert set(retaining.links) == {"a1->b1", "a2->b2"}
    journal(tmp_path / "nodes" / "B" / "checkpoints" / "B.main", "a1->b1", [70, 90], committed=1)
    link = retaining.of(str(Arc("a1", "b1")))
    assert link is not None and link.unread_from == {0: 70}
    assert node_retaining(network, layout, "B", KEPT).of("q1") == KEPT


def test_logs_of_others_and_topics_are_left_alone(tmp_path: Path) -> None:
    named = parse_network(
        """
        version: 1
        name: named
        streams: {s: {max_rate: 10}}
        nodes: {A: {cpu: 1.0}, B: {cpu: 1.0}}
        operators: {a: {node: A, from: s, cost: 0.1}, b: {node: B, from: a, cost: 0.1}}
        outputs: {mine: {from: b}, theirs: {from: b, sink: somewhere/else}}
        """
    )
    retaining = run_retaining(named, RunLayout(tmp_path), KEPT)
    assert retaining.of("mine") == KEPT and retaining.of("theirs") is None
    layout = NodeLayout(tmp_path / "nodes")
    layout.choose_links("kafka://127.0.0.1:9092/p", named)
    assert node_retaining(named, layout, "A", KEPT).of("a->b") is None
    assert node_retaining(named, layout, "B", KEPT).of("theirs") is None
