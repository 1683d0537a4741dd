"""The real broker and Spark's connector to it: what the other Kafka tests stand on."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession

from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.kafka


def produce(broker: Broker, topic: str, values: range) -> None:
    producer = Producer(ordered(broker.address))
    for value in values:
        producer.produce(topic, key=str(value % 7), value=str(value))
    assert producer.flush(PATIENCE_SECONDS) == 0


def consume(broker: Broker, topic: str, count: int) -> list[int]:
    """Values from the topic's start: `count` of them if they come within a minute, and any too many."""
    group = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "enable.partition.eof": False}
    consumer = Consumer({"bootstrap.servers": broker.address, **group})
    consumer.subscribe([topic])
    values: list[int] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while len(values) < count and time.monotonic() < deadline:
            messages = consumer.consume(count + 1, timeout=1.0)
            assert not [message.error() for message in messages if message.error()]
            values += [int(value) for message in messages if (value := message.value()) is not None]
        return values
    finally:
        consumer.close()


def test_a_thousand_messages_go_in_and_come_out(broker: Broker) -> None:
    topic = broker.create_topic("thousand", partitions=3)
    produce(broker, topic, range(1000))
    assert sorted(consume(broker, topic, 1000)) == list(range(1000))


@pytest.mark.slow
def test_a_killed_broker_comes_back_with_its_messages(fresh_broker: Broker) -> None:
    topic = fresh_broker.create_topic("survives")
    produce(fresh_broker, topic, range(500))
    address = fresh_broker.address
    fresh_broker.kill()
    fresh_broker.stop()
    fresh_broker.start()
    assert fresh_broker.address == address
    produce(fresh_broker, topic, range(500, 600))
    assert consume(fresh_broker, topic, 600) == list(range(600))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("kafka_jars")
def test_spark_reads_and_writes_a_topic_in_batch(spark: SparkSession, broker: Broker) -> None:
    topic, copy = broker.create_topic("batch", partitions=2), broker.create_topic("batch-copy")
    produce(broker, topic, range(300))
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.read.format("kafka").options(**options).load()
    assert sorted(int(row.value) for row in rows.select("value").collect()) == list(range(300))
    rows.select("key", "value").write.format("kafka").options(
        **{"kafka.bootstrap.servers": broker.address, "topic": copy}
    ).save()
    assert sorted(consume(broker, copy, 300)) == list(range(300))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("kafka_jars")
def test_spark_streams_from_topic_to_topic_across_a_restart(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    source, target = broker.create_topic("stream", partitions=2), broker.create_topic("stream-copy")
    for values in (range(200), range(200, 500)):
        produce(broker, source, values)
        stream = (
            spark.readStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": broker.address, "subscribe": source})
            .options(startingOffsets="earliest", maxOffsetsPerTrigger="90")
            .load()
        )
        query = (
            stream.select("key", "value")
            .writeStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": broker.address, "topic": target})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE_SECONDS)
    assert sorted(consume(broker, target, 500)) == list(range(500))
