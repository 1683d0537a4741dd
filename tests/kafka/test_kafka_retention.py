"""A topic whose broker deletes records before they are read: `--on-loss skip` counts them to the record."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from floodway.agent.loop.runner import RunError, RunOptions, run_network
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.options import OnLoss
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.spark.audit.run import audit
from floodway.spark.log import PositionError
from floodway.spark.query.layout import RunLayout
from floodway.spark.source.backend import open_backend
from floodway.spark.source.notes import PassingOver
from floodway.spark.source.options import parse_options
from scripts.kafka_broker import Broker
from tests.kafka.test_kafka_buffer import produce
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

NETWORK = """
version: 1
name: kafka-retention
streams:
  clicks: {{max_rate: 5000, log: "kafka://{address}/{topic}", schema: "id bigint"}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{pass: {{node: A, from: clicks, cost: 0.00001}}}}
outputs: {{q: {{from: pass}}}}
"""


pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(timeout=PATIENCE_SECONDS)


def test_records_deleted_under_a_batch_are_passed_over_and_told(broker: Broker) -> None:
    topic = broker.create_topic("deleted-under", 1)
    produce(broker.address, topic, range(1_000), 0.0)
    given = {"kafka.bootstrap.servers": broker.address, "topic": topic, "valueFormat": "raw"}
    delete_before(broker, topic, 700)
    with pytest.raises(PositionError, match=r"200 record\(s\) from offset 500 on were deleted") as caught:
        list(open_backend(parse_options(given)).read(0, [(500, 900)]))
    assert (caught.value.first, caught.value.lost) == (700, 200)
    holes: list[tuple[int, int, int]] = []
    backend = PassingOver(open_backend(parse_options(given)), lambda *hole: holes.append(hole))
    found = [int(i) for sequence, _ in backend.read(0, [(100, 600), (650, 900)]) for i in sequence]
    assert found == list(range(700, 900))
    assert holes == [(0, 100, 600), (0, 650, 700)]


@pytest.mark.spark
def test_records_that_the_broker_deleted_are_counted(spark: Session, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic("retention", 1)
    network = parse_network(NETWORK.format(address=broker.address, topic=topic))

    def run(settled: int, on_loss: OnLoss = "fail") -> dict[str, Any]:
        """Run until so many tuples are in the ledger."""
        ended = threading.Event()

        def look(_: Status) -> None:
            if Ledger(RunLayout(tmp_path).store).fold().total.offered.total() >= settled:
                ended.set()

        options = RunOptions(
            seconds=PATIENCE_SECONDS, root=tmp_path, settle_seconds=0.0, on_loss=on_loss, progress=look, ended=ended
        )
        return run_network(network, options, spark).to_dict()

    produce(broker.address, topic, range(1_000), 0.0)
    assert run(1_000)["kept"] == {"clicks": 1_000}
    produce(broker.address, topic, range(1_000, 2_000), 0.0)
    delete_before(broker, topic, 1_700)
    with pytest.raises(RunError, match=r"position 1000 is retired or missing, 700 tuple\(s\) lost"):
        run(2_000)
    body = run(2_000, "skip")
    assert (body["offered"], body["kept"]) == ({"clicks": 2_000}, {"clicks": 1_300})
    assert body["dropped"] == {"clicks": {"retention": 700}}
    found = audit(network, RunLayout(tmp_path))
    assert (found.differences, found.tuples_delivered) == ((), 1_300)
