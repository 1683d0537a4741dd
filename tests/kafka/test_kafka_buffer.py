"""A buffer over a Kafka topic: deadlines count from the record's own time, whoever sees it when."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from floodway.agent.loop.runner import RunOptions, run_network
from floodway.job.options.values import Target
from floodway.network.file import parse_network
from floodway.spark.audit.run import audit
from floodway.spark.log import LogReader
from floodway.spark.query.layout import RunLayout
from floodway.spark.source.kafka import RecordTimes
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NETWORK = """
version: 1
name: kafka-buffer
streams:
  alarms: {{max_rate: 2000, deadline: 10s, log: "kafka://{address}/{topic}", schema: "id bigint"}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{check: {{node: A, from: alarms, kind: delay, cost: 0.0005}}}}
outputs: {{raised: {{from: check}}}}
"""
STALE, STALE_SECONDS = 4_000, 120.0


def produce(address: str, topic: str, ids: range, age_seconds: float) -> None:
    """Records that say they were created `age_seconds` ago."""
    producer = Producer(ordered(address))
    created = round(1000 * (time.time() - age_seconds))
    for number in ids:
        producer.produce(topic, b'{"id": %d}' % number, partition=0, timestamp=created)
    assert producer.flush(PATIENCE_SECONDS) == 0


def test_a_records_own_time_is_found_by_position(broker: Broker) -> None:
    topic = broker.create_topic("times", 2)
    begun = time.time()
    for first, age in ((0, 300.0), (1, 200.0), (2, 0.0)):
        produce(broker.address, topic, range(first, first + 1), age)
    times = RecordTimes({"bootstrap.servers": broker.address}, topic)
    found = [times.at(0, position) for position in (2, 0, 1)]
    assert found == [pytest.approx(begun - age, abs=60.0) for age in (0.0, 300.0, 200.0)]
    assert times.at(0, 3) is None and times.at(1, 0) is None  # nothing there yet
    taken = time.monotonic()
    for _ in range(50):
        times.at(0, 2)
    print(f"{(time.monotonic() - taken) / 50 * 1e3:.1f} ms a look-up")


@pytest.mark.spark
def test_records_past_their_deadline_are_dropped_by_the_cleaner(spark: Session, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("buffer", 1)
    network = parse_network(NETWORK.format(address=broker.address, topic=topic))
    produce(broker.address, topic, range(STALE), STALE_SECONDS)
    stop = threading.Event()

    def keep_producing() -> None:
        first = STALE
        while not stop.wait(0.2):
            produce(broker.address, topic, range(first, first + 20), 0.0)
            first += 20

    load = threading.Thread(target=keep_producing)
    load.start()
    try:
        for seconds in (15.0, 40.0, 80.0):  # on a busy machine a run may end before its first batches do
            options = RunOptions(seconds=seconds, root=tmp_path, target=Target(2.0), buffer="cwb")
            body = run_network(network, options, spark).to_dict()
            if body["deadlines"]["alarms"]["in_time"]:
                break
    finally:
        stop.set()
        load.join()
    assert audit(network, RunLayout(tmp_path)).differences == ()
    dropped = body["dropped"]["alarms"]
    assert body["offered"]["alarms"] == body["kept"]["alarms"] + sum(dropped.values())
    # Seen for the first time by this run, and late all the same: only where old and new meet is the age a guess.
    sink = LogReader(RunLayout(tmp_path).root / "outputs" / "raised")
    ends = sink.end_positions().items()
    ids = [row["id"] for partition, end in ends for b in sink.read(partition, 0, end) for row in b.to_pylist()]
    assert sum(number < STALE for number in ids) < STALE / 8
    assert dropped["cleaner"] > STALE * 3 / 4
    assert body["deadlines"]["alarms"]["purged"] == dropped["cleaner"]
    assert body["deadlines"]["alarms"]["in_time"] > 0
