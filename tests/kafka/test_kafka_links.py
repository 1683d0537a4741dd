"""Links over a real broker: written once however often a writer is killed, read as they were, counted by the audit."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.network.file import load_network
from floodway.network.model import Arc
from floodway.spark.audit.nodes import audit_nodes
from floodway.spark.log.kafka_links import LinkError, append_link, link_counts, link_schema, parse_kafka, prepare_link
from floodway.spark.log.kafka_target import KafkaTarget
from floodway.spark.log.schema import parse_schema
from floodway.spark.query.layout import NodeLayout
from floodway.spark.source.backend import open_backend
from floodway.spark.source.options import parse_options
from scripts.kafka_broker import Broker
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DDL = "id bigint, name string"
WRITER = "A.main:a1->b1"
WHEN = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
PROGRAM = """
import sys
import pyarrow as pa
from floodway.spark.log.kafka_links import append_link
rows = pa.table({"id": pa.array(range(200_000), pa.int64()), "name": pa.array(["x" * 50] * 200_000)})
print("ready", flush=True)
append_link(rows, sys.argv[1], 0, "A.main:a1->b1:3:0", None)
"""


def tuples(count: int, start: int = 0) -> pa.Table:
    ids = range(start, start + count)
    return pa.table([pa.array(ids, pa.int64()), pa.array([f"n{i}" for i in ids])], schema=parse_schema(DDL))


def arrivals(count: int) -> pa.Array:
    return pa.array([WHEN] * count, pa.timestamp("us", tz="UTC"))


def read(address: str) -> list[dict[str, object]]:
    servers, topic = parse_kafka(address)
    options = {"topic": topic, "kafka.bootstrap.servers": servers, "valueFormat": "arrow", "schema": DDL}
    backend = open_backend(parse_options(options))
    ends = backend.latest()
    return [row for p, end in ends.items() for _, piece in backend.read(p, [(0, end)]) for row in piece.to_pylist()]


def test_there_and_back_with_the_first_arrival(broker: Broker) -> None:
    address = f"kafka://{broker.address}/back.a--b"
    assert link_schema(address) is None
    prepare_link(address, DDL, 2)
    prepare_link(address, DDL, 2)  # a restarted writer
    assert link_schema(address) == DDL
    assert append_link(tuples(5), address, 0, f"{WRITER}:0:0", arrivals(5)).count == 5
    assert append_link(tuples(3, 5), address, 1, f"{WRITER}:0:1", arrivals(3)).count == 3
    rows = read(address)
    assert sorted(str(row["id"]) for row in rows) == list("01234567")
    assert {row["_arrival"] for row in rows} == {WHEN}
    with pytest.raises(LinkError, match="was made for 'id bigint, name string'"):
        prepare_link(address, "id bigint", 2)
    with pytest.raises(LinkError, match="has 2 partition"):
        prepare_link(address, DDL, 3)


def test_a_batch_that_is_repeated_is_there_once(broker: Broker) -> None:
    address = f"kafka://{broker.address}/once.a--b"
    prepare_link(address, DDL, 1)
    assert append_link(tuples(10), address, 0, f"{WRITER}:0:0", arrivals(10)).count == 10
    assert append_link(tuples(10), address, 0, f"{WRITER}:0:0", arrivals(10)).count == 0
    assert (
        append_link(tuples(10), address, 0, f"{WRITER}:1:0", arrivals(10)).count == 10
    )  # the same tuples, another batch
    assert append_link(tuples(10), address, 0, f"{WRITER}:1:0", arrivals(10)).count == 0
    assert link_counts(address, [WRITER]).batches == {WRITER: Counter({0: 10, 1: 10})}


def test_a_second_writer_is_seen_by_the_first(broker: Broker) -> None:
    address = f"kafka://{broker.address}/second.a--b"
    prepare_link(address, DDL, 1)
    assert append_link(tuples(10), address, 0, f"{WRITER}:0:0", arrivals(10)).count == 10
    other = [sys.executable, "-c", PROGRAM.replace("200_000", "20")]
    subprocess.run([*other, address], check=True, timeout=PATIENCE_SECONDS, capture_output=True)  # batch 3
    assert append_link(tuples(10), address, 0, f"{WRITER}:1:0", arrivals(10)).count == 10
    # Not at the end any more: told as repeated.
    assert append_link(tuples(20), address, 0, f"{WRITER}:3:0", None).count == 20
    counts = link_counts(address, [WRITER])
    assert counts.batches[WRITER] == Counter({0: 10, 1: 10, 3: 20}) and counts.repeated == 20


def _went_on(address: str, before: int, writer: subprocess.Popen[bytes]) -> bool:
    """Whether a further tuple is there, or no writer any more."""
    return link_counts(address, [WRITER]).batches[WRITER][3] != before or writer.poll() is not None


def test_a_writer_that_is_killed_anywhere_in_a_batch_loses_and_doubles_nothing(broker: Broker) -> None:
    address = f"kafka://{broker.address}/killed.a--b"
    prepare_link(address, DDL, 1)
    append_link(tuples(10), address, 0, f"{WRITER}:2:0", None)
    seen = []
    for _ in range(8):
        writer = subprocess.Popen([sys.executable, "-c", PROGRAM, address], stdout=subprocess.PIPE)
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        before = link_counts(address, [WRITER]).batches[WRITER][3]
        wait_until(partial(_went_on, address, before, writer), "a tuple", pause_seconds=0.0)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        seen.append(link_counts(address, [WRITER]).batches[WRITER][3])
        if seen[-1] == 200_000:
            break
    assert 0 < seen[0] < 200_000, seen  # it was killed in the middle
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, address], check=True, timeout=PATIENCE_SECONDS, capture_output=True
    )
    assert done.stdout == b"ready\n"
    counts = link_counts(address, [WRITER])
    assert (counts.batches[WRITER][3], counts.repeated, counts.foreign, counts.length) == (200_000, 0, 0, 200_010)


def test_the_audit_reconciles_ledgers_over_a_topic_and_finds_two_writers(broker: Broker, tmp_path: Path) -> None:
    network = load_network(Path("examples/networks/figure1.yaml"))
    layout = NodeLayout(tmp_path)
    layout.choose_links(f"kafka://{broker.address}", network)
    for arc in (Arc("a1", "b1"), Arc("a2", "b2")):
        prepare_link(layout.link(arc), DDL, 1)
    address = layout.link(Arc("a1", "b1"))
    append_link(tuples(10), address, 0, f"{WRITER}:0:0", None)
    append_link(tuples(5), address, 0, f"{WRITER}:1:0", None)
    Ledger(layout.own("A").store).append([LedgerLine("A.main", 0, "a1->b1", Reason.DELIVERED, 10, 10, 0)])
    Ledger(layout.own("B").store).append([LedgerLine("B.main", 0, "a1->b1", Reason.SHEDDER, 12, 4, 8)])
    result = audit_nodes(network, layout)
    assert result.differences == () and not any("a1->b1" in note for note in result.unchecked)
    first = result.links[0]
    assert (first.delivered, first.unfinished, first.in_log, first.waiting) == (10, 5, 15, 3)
    servers, topic = parse_kafka(address)
    zombie = KafkaTarget(servers, topic, partitions=1)
    zombie.put(b"", 0, headers=[("floodway", f"{WRITER}:1:0:4:5".encode())])
    zombie.close()
    assert any("1 record(s) are in the topic twice" in text for text in audit_nodes(network, layout).differences)


def test_a_broker_that_is_gone_is_told_and_is_no_difference(tmp_path: Path) -> None:
    network = load_network(Path("examples/networks/figure1.yaml"))
    layout = NodeLayout(tmp_path)
    layout.choose_links("kafka://127.0.0.1:1", network)
    assert link_schema(layout.link(Arc("a1", "b1"))) is None
    result = audit_nodes(network, layout)
    assert result.links == () and result.differences == ()
    assert any("a1->b1: Kafka at 127.0.0.1:1 did not answer" in note for note in result.unchecked)
