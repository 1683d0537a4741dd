"""`floodway run` between Kafka topics: dead letters counted, a broker that dies and comes back, nothing unaccounted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from floodway.agent.loop.runner import RunOptions, run_network
from floodway.errors import FloodwayError
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.options.values import Target
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.spark.audit.run import audit
from floodway.spark.audit.sinks import count_log
from floodway.spark.log import LogReader
from floodway.spark.query.dead_letters import DEAD
from floodway.spark.query.journal import query_key
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.sinks import writer_of
from floodway.spark.source.backend import open_backend
from floodway.spark.source.options import parse_options
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NETWORK = """
version: 1
name: kafka
streams:
  clicks: {{max_rate: 3000, log: "kafka://{address}/{topic}", schema: "id bigint, value double"}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{work: {{node: A, from: clicks, run: 'tests.agent.waiting_service:call_1ms', cost: 0.001}}}}
outputs: {{q: {{from: work}}}}
"""


class Load:
    """Produces JSON records at a rate, one in a hundred of them malformed, until it is stopped."""

    def __init__(self, address: str, topic: str, rate: int) -> None:
        self._producer = Producer(ordered(address) | {"message.timeout.ms": 1000 * PATIENCE_SECONDS, "linger.ms": 20})
        self._topic, self._rate = topic, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._stop.wait(0.05):
            while self.sent < (time.monotonic() - begun) * self._rate:
                good = b'{"id": %d, "value": 0.5}' % self.sent
                self._producer.produce(self._topic, b"{broken" if self.sent % 100 == 0 else good)
                self.sent += 1
            self._producer.poll(0)


def options(root: Path, seconds: float) -> RunOptions:
    return RunOptions(seconds=seconds, root=root, target=Target(2.0), settle_seconds=seconds / 2)


def offered(network: Network, root: Path) -> int:
    result = audit(network, RunLayout(root))
    assert result.differences == ()
    return result.tuples_offered


def test_dead_letters_are_counted_and_kept(spark: Session, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("run-clicks", 2)
    network = parse_network(NETWORK.format(address=broker.address, topic=topic))
    ended = threading.Event()

    def look(status: Status) -> None:
        if any(
            line.reason == Reason.DEAD_LETTER and line.dropped for line in Ledger(RunLayout(tmp_path).store).lines()
        ):
            ended.set()

    chosen = replace(options(tmp_path, PATIENCE_SECONDS), settle_seconds=0.0, progress=look, ended=ended)
    with Load(broker.address, topic, 1500) as load:
        body = run_network(network, chosen, spark).to_dict()
    dropped = body["dropped"]["clicks"]
    assert body["offered"]["clicks"] == body["kept"]["clicks"] + sum(dropped.values())
    assert 0 < offered(network, tmp_path) <= load.sent
    letters = LogReader(RunLayout(tmp_path).root / "dead-letters" / "clicks")
    rows = [row for batch in letters.read(0, 0, letters.end_positions()[0]) for row in batch.to_pylist()]
    # To the record, of the batches that are in the ledger; one that could not end in time has written its own already.
    accounted = {line.batch for line in Ledger(RunLayout(tmp_path).store).read()}
    query = query_key("A.main", tmp_path / "checkpoints" / "A.main")
    counted = count_log(letters.meta.path, writer_of(query, DEAD)).batches
    assert sum(count for batch, count in counted.items() if batch in accounted) == dropped["dead-letter"] > 0
    assert len(counted.keys() - accounted) <= 1 and len(rows) == counted.total()
    assert {row["raw"] for row in rows} == {b"{broken"}
    assert all(row["reason"] for row in rows)


@pytest.mark.slow
def test_a_broker_that_dies_costs_nothing_beyond_the_ledger(
    spark: Session, fresh_broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_broker.create_topic("run-faults", 1)
    network = parse_network(NETWORK.format(address=fresh_broker.address, topic=topic))

    def die_and_come_back() -> None:
        time.sleep(6)
        fresh_broker.kill()
        time.sleep(2)
        fresh_broker.stop()
        fresh_broker.start()

    with Load(fresh_broker.address, topic, 1500) as load, Background(die_and_come_back):
        run_until_it_ends(lambda: run_network(network, options(tmp_path, 14.0), spark))
    # All that was acknowledged is in the topic, some of it twice if the answer was lost with the broker.
    there = sum(open_backend(parse_options(source(fresh_broker, topic))).latest().values())
    assert there >= load.sent
    for _ in range(6):
        if offered(network, tmp_path) == there:
            break
        run_until_it_ends(lambda: run_network(network, options(tmp_path, 15.0), spark))
    assert offered(network, tmp_path) == there


def source(broker: Broker, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.address, "topic": topic, "valueFormat": "raw"}


def run_until_it_ends(run: Callable[[], object]) -> None:
    """Run again after a failure, as a supervisor would; the checkpoint says where to go on."""
    for _ in range(8):
        try:
            run()
        except FloodwayError:
            time.sleep(1.0)
            continue
        return
    raise AssertionError("eight runs failed in a row")


class Background:
    """A function on a thread that has ended when the block is left."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=function)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
