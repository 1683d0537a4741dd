"""Shares by key of a Kafka topic in a network: counts are exact, and malformed records are one key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from floodway.agent.loop.runner import RunOptions, run_network
from floodway.job.ledger.backfill import Live
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.values import Target
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.spark.audit.run import audit
from floodway.spark.log import LogReader
from floodway.spark.query.layout import RunLayout
from floodway.spark.shed.recovery.backfill import Backfill
from floodway.spark.shed.recovery.streams import StreamRecovery
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]  # tests/agent/test_agent_keys_run.py on a log

NETWORK = """
version: 1
name: tenants
streams:
  clicks: {{max_rate: 20000, log: "kafka://{address}/{topic}", schema: "tenant string, id bigint"}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{work: {{node: A, from: clicks, run: 'tests.agent.waiting_service:call_1ms', cost: 0.001}}}}
outputs: {{q: {{from: work}}}}
"""
RECORDS, QUIET, BROKEN = 6000, 20, 60


def body(number: int) -> bytes:
    """One record in a hundred is malformed, one in ten of a quiet tenant."""
    if number % 100 == 99:
        return b"{broken"
    tenant = f"t{number // 10 % QUIET}" if number % 10 == 0 else "noisy"
    return b'{"tenant": "%s", "id": %d}' % (tenant.encode(), number)


def test_who_sends_most_loses_and_malformed_records_are_one_key(spark: Session, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("share-clicks", 2)
    producer = Producer(ordered(broker.address))
    for number in range(RECORDS):
        producer.produce(topic, body(number))
    assert producer.flush(PATIENCE_SECONDS) == 0
    network, ended = parse_network(NETWORK.format(address=broker.address, topic=topic)), Event()

    def look(status: Status) -> None:
        if Ledger(RunLayout(tmp_path).store).fold().total.offered["clicks"] >= RECORDS:
            ended.set()

    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=tmp_path, target=Target(2.0), settle_seconds=0.0,
        progress=look, ended=ended, share_by={"clicks": "tenant"},
    )  # fmt: skip
    report = run_network(network, options, spark)
    assert ended.is_set() and report.differences == () and audit(network, RunLayout(tmp_path)).differences == ()
    dropped = report.to_dict()["dropped"]["clicks"]
    assert dropped.keys() == {"share", "dead-letter"} and dropped["dead-letter"] == BROKEN
    reader = LogReader(Path(RunLayout(tmp_path).output(network, "q")))
    kept: Counter[str] = Counter()
    for partition, end in reader.end_positions().items():
        for batch in reader.read(partition, 0, end):
            kept.update(batch["tenant"].to_pylist())
    assert all(kept[f"t{number}"] == RECORDS // 10 // QUIET for number in range(QUIET))
    assert kept["noisy"] == RECORDS - BROKEN - RECORDS // 10 - dropped["share"] < RECORDS / 2
    # What was dropped is read again from the topic, to the tuple.
    ids: list[int] = []
    work = Backfill(
        "clicks", StreamRecovery(spark, network, RunLayout(tmp_path), "clicks", RunLayout(tmp_path).store),
        lambda df, _: ids.extend(row.id for row in df.collect()), lambda: Live(False),
    )  # fmt: skip
    *_, last = work.steps()
    assert len(set(ids)) == len(ids) == last.recovered == dropped["share"] and last.remaining == last.lost == 0
    assert work.differences() == [] and audit(network, RunLayout(tmp_path)).differences == ()
