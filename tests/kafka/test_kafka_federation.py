"""A fragment that reads a Kafka topic moves with its state: windows go on, every record counts once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from floodway.agent.wire.ports import free_ports
from floodway.contracts.federation_file import parse_federation
from floodway.job.ledger.ledger import Ledger
from floodway.job.store.store import LocalStore
from floodway.spark.audit.run import audit_federation
from floodway.spark.log import LogReader
from scripts.kafka_broker import Broker
from tests.agent.federation_on_spark import Running, participant_on, wait
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FEDERATION = """
version: 1
participants:
  A: {{url: "http://127.0.0.1:{a}", cpu: 1.0}}
  B: {{url: "http://127.0.0.1:{b}", cpu: 4.0}}
contracts:
  A->B: {{price: 2.0}}
fragments:
  tens: {{owner: A, run: tens, logs: {{input: "kafka://{broker}/{topic}"}}, cost: 0.01}}
"""
LAST = 1505
"""The last window is only half full, and stays open."""


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_fragment_that_reads_a_topic_moves(
    spark: SparkSession, broker: Broker, tmp_path: Path, opened: ExitStack
) -> None:
    topic = broker.create_topic("federation-tens")
    a, b = free_ports(2)
    federation = parse_federation(FEDERATION.format(a=a, b=b, broker=broker.address, topic=topic))
    producer = Producer(ordered(broker.address))

    def produce(start: int, end: int) -> None:
        for number in range(start, end):
            producer.produce(topic, value=b'{"id": %d}' % number)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def found() -> list[tuple[int, int, int]]:
        path = tmp_path / "shared" / "outputs" / "tens"
        if not (path / "meta.json").exists():
            return []
        reader = LogReader(path)
        rows = [row for batch in reader.read(0, 0, reader.end_positions()[0]) for row in batch.to_pylist()]
        return sorted((row["first"], row["count"], row["total"]) for row in rows)

    produce(0, 205)
    producer.produce(topic, value=b"{broken")  # left out, not in the way
    agents = {
        name: participant_on(spark, federation, name, tmp_path, "tests.agent.federation_catalogue") for name in "AB"
    }
    running = Running(*agents.values())
    opened.callback(running.close)
    told = agents["A"].status
    wait("a first result", lambda: bool(found()), told)

    # 80 records a second are 0.8 CPUs at the cost that the file declares: A gives the fragment away.
    at = 205
    while not agents["B"].machine.holdings and at < LAST - 100:
        produce(at, at + 20)
        at += 20
        time.sleep(0.25)
    wait("the move", lambda: "tens" in agents["B"].machine.holdings, told)
    before = len(found())
    produce(at, LAST)
    wanted = [(first, 10, 10 * first + 45) for first in range(0, LAST - 10, 10)]
    wait("all results", lambda: len(found()) >= len(wanted), agents["B"].status)
    assert before < len(wanted), "everything was found before the move: it shows nothing"
    assert found() == wanted
    audit = audit_federation(federation, tmp_path / "shared")["tens"]
    assert audit.differences == () and audit.tuples_offered == LAST + 1
    folder = tmp_path / "shared" / "fragments" / "tens"
    letters = LogReader(folder / "dead-letters" / "input")
    (letter,) = [row for batch in letters.read(0, 0, letters.end_positions()[0]) for row in batch.to_pylist()]
    assert letter["raw"] == b"{broken" and letter["reason"]
    assert Ledger(LocalStore(folder)).fold().total.dropped["tens.input", "dead-letter"] == 1
    assert not list((folder / "malformed").iterdir()), "a note is gone when its records are accounted for"
    (move,) = agents["A"].journal.moves()
    assert move.state == "done" and agents["A"].machine.holdings == {}
    print("move took", {phase: round(taken, 3) for phase, taken in move.seconds.items()})
