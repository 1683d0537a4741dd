"""A network on a topic that was down: old records are jumped over by their offsets, and none of them is read."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from floodway.agent.loop.runner import RunOptions, run_network
from floodway.job.ledger.backfill import Live
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.values import Target
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.spark.audit.run import audit
from floodway.spark.query.layout import RunLayout
from floodway.spark.shed.recovery.backfill import Backfill
from floodway.spark.shed.recovery.streams import StreamRecovery
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodway.spark.session.session import Session

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NETWORK = """
version: 1
name: late
streams: {{clicks: {{max_rate: 20000, log: "kafka://{address}/{topic}", schema: "id bigint"}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{work: {{node: A, from: clicks, run: 'tests.agent.waiting_service:call_1ms', cost: 0.001}}}}
outputs: {{q: {{from: work}}}}
"""
OLD, FRESH, HOUR_MS = 3000, 500, 3_600_000


@pytest.mark.parametrize(("skip", "reason"), [({"max_age": 600.0}, "stale"), ({"skip_when_lag": FRESH}, "lag")])
def test_what_is_skipped_is_not_read(
    spark: Session, broker: Broker, tmp_path: Path, skip: dict[str, Any], reason: str
) -> None:
    """One in ten of the old records is malformed: who read it would report it as a dead letter."""
    topic, ended = broker.create_topic(f"skips-{reason}", 2), Event()
    producer, now_ms = Producer(ordered(broker.address)), time.time_ns() // 1_000_000
    for number in range(OLD + FRESH):
        is_old = number < OLD
        body = b"{broken" if is_old and number // 2 % 10 == 0 else b'{"id": %d}' % number
        at_ms = now_ms - (HOUR_MS if is_old and reason == "stale" else 0)
        producer.produce(topic, body, partition=number % 2, timestamp=at_ms)
    assert producer.flush(PATIENCE_SECONDS) == 0
    network = parse_network(NETWORK.format(address=broker.address, topic=topic))

    def look(status: Status) -> None:
        if Ledger(RunLayout(tmp_path).store).fold().total.offered["clicks"] >= OLD + FRESH:
            ended.set()

    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=tmp_path, target=Target(3.0), lossless=True, settle_seconds=0.0,
        progress=look, ended=ended, **skip,
    )  # fmt: skip
    report = run_network(network, options, spark)
    assert ended.is_set() and report.differences == () and audit(network, RunLayout(tmp_path)).differences == ()
    body = report.to_dict()
    assert body["dropped"] == {"clicks": {reason: OLD}} and body["kept"] == {"clicks": FRESH}
    # They can be processed later; only then are malformed ones found.
    ids: list[int] = []

    def process(df: DataFrame, _: str) -> None:
        ids.extend(row.id for row in df.collect())

    recovery = StreamRecovery(spark, network, RunLayout(tmp_path), "clicks", RunLayout(tmp_path).store)
    work = Backfill("clicks", recovery, process, lambda: Live(False))
    *_, last = work.steps()
    assert (last.recovered, last.lost, last.remaining) == (OLD, 0, 0)
    assert sorted(ids) == [number for number in range(OLD) if number // 2 % 10 != 0]
    assert work.differences() == [] and audit(network, RunLayout(tmp_path)).differences == ()
