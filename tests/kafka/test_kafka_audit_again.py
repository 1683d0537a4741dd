"""Audits of links over a real broker that go on where the last one has ended: they read what is new, and judge it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.store import line_log
from floodway.network.file import load_network
from floodway.network.model import Arc
from floodway.spark.audit.nodes import NodesAudit, audit_nodes
from floodway.spark.log.kafka_links import append_link, parse_kafka, prepare_link
from floodway.spark.log.kafka_target import KafkaTarget
from floodway.spark.query.layout import NodeLayout
from floodway.spark.source.kafka import KafkaBackend
from scripts.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LINK = "a1->b1"
WRITER = f"A.main:{LINK}"
TUPLES, TASKS = 10, 2


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of closed segments are saved: of the open one every line is read."""
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", 1 << 11)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What was read: lines of ledgers, records of topics."""
    found: Counter[str] = Counter()
    decode, messages = LedgerLine.decode, KafkaBackend.messages

    def count_line(raw: bytes) -> LedgerLine:
        found["lines"] += 1
        return decode(raw)

    def count_records(backend: KafkaBackend, partition: int, start: int, end: int) -> Iterator[Sequence[object]]:
        found["records"] += end - start
        yield from messages(backend, partition, start, end)

    monkeypatch.setattr(LedgerLine, "decode", count_line)
    monkeypatch.setattr(KafkaBackend, "messages", count_records)
    return found


class Nodes:
    """Two nodes with a topic of two partitions between them, as their sinks and ledgers leave it."""

    def __init__(self, root: Path, broker: Broker) -> None:
        self.network = load_network(Path("examples/networks/figure1.yaml"))
        self.layout = NodeLayout(root)
        self.layout.choose_links(f"kafka://{broker.address}", self.network)
        for arc in (Arc("a1", "b1"), Arc("a2", "b2")):
            prepare_link(self.layout.link(arc), "id bigint", TASKS)
        self.address = self.layout.link(Arc("a1", "b1"))
        self.batches = 0

    def live(self, batches: int) -> None:
        """So many batches more, all of which the next node has read."""
        for number in range(self.batches, self.batches + batches):
            for task in range(TASKS):
                rows = pa.table({"id": pa.array(range(TUPLES), pa.int64())})
                append_link(rows, self.address, task, f"{WRITER}:{number}:{task}", None)
            self.account(number, delivered=TASKS * TUPLES, offered=TASKS * TUPLES)
        self.batches += batches

    def account(self, number: int, *, delivered: int, offered: int) -> None:
        """The lines of both ledgers for a batch."""
        wrote = LedgerLine("A.main", number, LINK, Reason.DELIVERED, delivered, delivered, 0)
        Ledger(self.layout.own("A").store).append([wrote])
        Ledger(self.layout.own("B").store).append(
            [LedgerLine("B.main", number, LINK, Reason.SHEDDER, offered, 1, offered - 1)]
        )

    def write_again(self, batch: int) -> None:
        """One record of a batch a second time."""
        servers, topic = parse_kafka(self.address)
        second = KafkaTarget(servers, topic, partitions=TASKS)
        second.put(b"", 0, headers=[("floodway", f"{WRITER}:{batch}:0:4:{TUPLES}".encode())])
        second.close()

    def audit(self, *, full: bool = False) -> NodesAudit:
        """Both ledgers and the link."""
        return audit_nodes(self.network, self.layout, full=full)


def test_a_second_audit_reads_the_records_and_lines_that_came_since(
    broker: Broker, tmp_path: Path, read: Counter[str]
) -> None:
    nodes = Nodes(tmp_path, broker)
    needed = []
    for batches in (40, 3, 3):
        nodes.live(batches)
        read.clear()
        audited = nodes.audit()
        needed.append((read["records"], read["lines"]))
        assert audited.differences == ()
        held = nodes.batches * TASKS * TUPLES
        link = next(one for one in audited.links if one.link == LINK)
        assert (link.delivered, link.in_log, link.offered, link.waiting) == (held, held, held, 0)
    assert needed[0][0] >= 40 * TASKS * TUPLES
    # The newest batch of the audit before may have had more to come: it is read once more.
    assert needed[1][0] == needed[2][0] == (3 + 1) * TASKS * TUPLES
    assert max(needed[1][1], needed[2][1]) < needed[0][1] / 2
    read.clear()
    assert nodes.audit(full=True).differences == ()
    assert read["records"] >= nodes.batches * TASKS * TUPLES


def _too_much_delivered(nodes: Nodes) -> None:
    nodes.account(nodes.batches, delivered=7, offered=1)


def _too_much_offered(nodes: Nodes) -> None:
    nodes.account(nodes.batches, delivered=0, offered=9)


def _new_batch_twice(nodes: Nodes) -> None:
    nodes.live(1)
    nodes.write_again(nodes.batches - 1)


def _old_batch_twice(nodes: Nodes) -> None:
    nodes.write_again(2)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_too_much_delivered, "batch 5: the ledger says 7 tuples were delivered, the topic holds 0"),
        (_too_much_offered, "B's ledger was offered 149, the log holds 140"),
        (_new_batch_twice, "1 record(s) are in the topic twice"),
        (_old_batch_twice, "1 record(s) are in the topic twice"),
    ],
)
def test_a_difference_that_came_after_an_audit_is_found_by_the_next_and_stays(
    broker: Broker, tmp_path: Path, plant: Callable[[Nodes], None], words: str
) -> None:
    nodes = Nodes(tmp_path, broker)
    nodes.live(5)
    assert nodes.audit().differences == ()
    plant(nodes)
    nodes.batches += 1
    nodes.live(2)
    for full in (False, False, True):
        told = nodes.audit(full=full).differences
        assert any(words in text for text in told), (full, told)
