"""The Floodway source and `floodway feed` on a real Kafka broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery

from floodway.agent.wire.ports import free_ports
from floodway.job.decision import DecisionFile, JobDecision, StreamDecision, write_decision
from floodway.spark.session.session import explain
from floodway.spark.source import count_kept, register
from floodway.spark.source.backend import open_backend
from floodway.spark.source.drops import BLOCK, kept_runs, sought_block
from floodway.spark.source.kafka import KafkaBackend, asked_again
from floodway.spark.source.offsets import BatchOffset
from floodway.spark.source.options import parse_options
from floodway.spark.source.readers import FloodwayStreamReader, source_schema
from floodway.units import PPM
from scripts.kafka_broker import Broker
from tests.kafka.producers import ordered
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.kafka


def produce(broker: Broker, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer(ordered(broker.address))
    for value in values:
        producer.produce(topic, value=value, partition=partition)
    assert producer.flush(PATIENCE_SECONDS) == 0


def numbers(start: int, end: int) -> list[bytes]:
    return [b'{"id": %d, "at": "2024-05-01T00:00:00Z"}' % n for n in range(start, end)]


def raw(broker: Broker, topic: str) -> dict[str, str]:
    """Options of a topic's bytes, from a broker that may be slow to answer."""
    where = {"kafka.bootstrap.servers": broker.address, "topic": topic, "valueFormat": "raw"}
    return {**where, "timeoutSeconds": str(PATIENCE_SECONDS)}


class KafkaJob:
    """A query over a topic and the rows that it showed."""

    def __init__(self, spark: SparkSession, address: str, topic: str, folder: Path) -> None:
        register(spark)
        self.spark, self.folder = spark, folder
        self.options = {
            "kafka.bootstrap.servers": address,
            "topic": topic,
            "schema": "id bigint, at timestamp",
            "decision": str(folder / "decision.json"),
            "timeoutSeconds": str(PATIENCE_SECONDS),
        }
        self._batches: dict[int, list[dict[str, Any]]] = {}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Of all batches; one that was repeated counts once."""
        return [row for rows in self._batches.values() for row in rows]

    def forget(self) -> None:
        self._batches.clear()

    def start(self, **options: str) -> StreamingQuery:
        frame = self.spark.readStream.format("floodway").options(**{**self.options, **options}).load()
        writer = frame.writeStream.foreachBatch(self._see)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def _see(self, batch: DataFrame, number: int) -> None:
        self._batches[number] = [row.asDict() for row in batch.collect()]

    def drain(self, query: StreamingQuery) -> None:
        query.processAllAvailable()


@pytest.mark.parametrize(
    ("errors", "seconds", "asked"),
    [
        ([KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE], 10.0, 3),
        ([KafkaError.NOT_LEADER_FOR_PARTITION] * 99, 3.0, 4),
        ([KafkaError.TOPIC_AUTHORIZATION_FAILED], 10.0, 1),
    ],
    ids=["a new leader", "no new leader", "no leader's fault"],
)
def test_a_broker_is_asked_again_while_a_partition_changes_its_leader(
    errors: list[int], seconds: float, asked: int
) -> None:
    left, times, now = list(errors), list[float](), [0.0]

    def ask() -> str:
        times.append(now[0])
        if left:
            raise KafkaException(KafkaError(left.pop(0)))
        return "here"

    def sleep(_: float) -> None:
        now[0] += 1.0

    if asked > len(errors):
        assert asked_again(ask, seconds, clock=lambda: now[0], sleep=sleep) == "here"
    else:
        with pytest.raises(KafkaException):
            asked_again(ask, seconds, clock=lambda: now[0], sleep=sleep)
    assert len(times) == asked


def test_a_topic_says_where_an_age_begins(broker: Broker) -> None:
    topic = broker.create_topic("source-ages", 1)
    now_ms = time.time_ns() // 1_000_000 - 3_600_000  # a broker may delete at any moment what is older than a week
    producer = Producer(ordered(broker.address))
    for number in range(50):
        producer.produce(topic, value=b"x", timestamp=now_ms + 10 * number)
    assert producer.flush(PATIENCE_SECONDS) == 0
    backend = open_backend(parse_options(raw(broker, topic)))
    span = backend.spans({0: 5})[0]
    times = [(now_ms + ms) * 1000 for ms in (0, 200, 201, 490, 491)]
    assert [backend.first_since(0, span, at) for at in times] == [5, 20, 21, 49, 50]


def test_json_is_decoded_malformed_records_are_marked_and_counts_agree(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.create_topic("source-json", 2)
    job = KafkaJob(spark, broker.address, topic, tmp_path)
    produce(broker, topic, [*numbers(0, 3000), b"{broken", b'{"id": "text"}'])
    produce(broker, topic, numbers(3000, 5000), partition=1)
    query = job.start()
    job.drain(query)
    good = [row for row in job.rows if row["_error"] is None]
    bad = [row for row in job.rows if row["_error"] is not None]
    assert sorted(row["id"] for row in good) == list(range(5000))
    assert sorted(row["_raw"] for row in bad) == [b'{"id": "text"}', b"{broken"]
    assert all(row["_arrival"] is not None and row["_weight"] == 1.0 for row in job.rows)
    write_decision(tmp_path / "decision.json", JobDecision(mode="enforce", streams={topic: StreamDecision(300_000)}))
    job.forget()
    produce(broker, topic, numbers(5000, 15_000), partition=1)
    job.drain(query)

    def counted() -> tuple[int, int]:
        sources = [one.sources[0] for one in query.recentProgress if one.numInputRows]
        ranges = [(one.startOffset, one.endOffset) for one in sources if '"enforce"' in one.endOffset]
        counts = [pair for start, end in ranges for pair in count_kept(start, end).values()]
        return sum(offered for offered, _ in counts), sum(kept for _, kept in counts)

    wait_until(lambda: counted()[0] >= 10_000, "the progress of the last batch", told=counted)
    query.stop()
    assert counted() == (10_000, len(job.rows)) and 2_700 < len(job.rows) < 3_300


def test_runs_near_and_far_are_read_exactly(broker: Broker) -> None:
    topic = broker.create_topic("source-runs")
    produce(broker, topic, numbers(0, 50_000))
    backend = open_backend(parse_options({**raw(broker, topic), "valueFormat": "json", "schema": "id bigint"}))
    near = kept_runs(0, 0, 10_000, salt=3, keep_ppm=300_000)
    assert len(near) > 5
    for runs in (near, [*near, (45_000, 45_001)], [(49_999, 50_000)], [(0, 50_000)], []):
        offsets = [int(offset) for ids, _ in backend.read(0, runs) for offset in ids]
        assert offsets == [offset for start, end in runs for offset in range(start, end)]


def test_what_range_drops_is_not_fetched(broker: Broker) -> None:
    records, record_bytes = 40_000, 1000
    topic = broker.create_topic("source-sought")
    producer = Producer({**ordered(broker.address), "batch.size": 16_384})
    for _ in range(records):
        producer.produce(topic, value=b"x" * record_bytes, partition=0)
        producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0

    def fetched(keep_ppm: int) -> int:
        """Bytes that the broker has sent for a batch of all records at this keep, by the consumers' statistics."""
        sent: dict[str, int] = {}

        def note(text: str) -> None:
            told = json.loads(text)
            sent[told["name"]] = told["rx_bytes"]

        options = parse_options(raw(broker, topic))
        backend = KafkaBackend(options, {"statistics.interval.ms": 20, "stats_cb": note})
        runs = kept_runs(0, 0, records, salt=3, keep_ppm=keep_ppm, block=sought_block(records))
        offsets = [int(offset) for ids, _ in backend.read(0, runs) for offset in ids]
        assert offsets == [offset for start, end in runs for offset in range(start, end)]
        assert len(offsets) == pytest.approx(records * keep_ppm / PPM, abs=2 * sought_block(records))
        consumers = [consumer for consumer in (backend._open, backend._open_sparse) if consumer is not None]
        sent.clear()

        def serve() -> None:
            for consumer in consumers:
                consumer.poll(0)

        wait_until(lambda: len(sent) == len(consumers), "statistics of after the read", meanwhile=serve)
        return sum(sent.values())

    whole = fetched(PPM)
    assert whole > records * record_bytes
    assert fetched(500_000) < 0.8 * whole
    assert fetched(100_000) < 0.35 * whole


def test_a_batch_of_a_topic_journals_its_blocks_and_old_offsets_keep_theirs(broker: Broker) -> None:
    topic = broker.create_topic("source-blocks")
    produce(broker, topic, numbers(0, 20_000))
    options = parse_options(raw(broker, topic))
    reader = FloodwayStreamReader(options, from_arrow_schema(source_schema(open_backend(options).payload, options)))
    start = BatchOffset(topic, {0: 0}, {0: 0}, keep_ppm=300_000, mode="enforce", drop="range")
    reader._decisions = DecisionFile(
        None, initial=JobDecision(mode="enforce", drop="range", streams={topic: StreamDecision(300_000)})
    )
    end = reader.latestOffset(start.to_json(), ReadAllAvailable())
    assert end["block"] == sought_block(20_000) == 1024
    old = {name: value for name, value in end.items() if name != "block"}
    for offset, block in ((end, 1024), (old, BLOCK)):
        admitted = [int(one) for part in reader.partitions(start.to_json(), offset) for one in ids_of(reader, part)]
        runs = kept_runs(0, 0, 20_000, salt=0, keep_ppm=300_000, block=block)
        assert admitted == [at for first, last in runs for at in range(first, last)]
        assert count_kept(start.to_json(), offset) == {0: (20_000, len(admitted))}


def ids_of(reader: FloodwayStreamReader, part: InputPartition) -> list[int]:
    return [one for batch in reader.read(part) for one in batch.column("_id").to_pylist()]


def test_broker_killed_and_restarted_loses_nothing(spark: SparkSession, fresh_broker: Broker, tmp_path: Path) -> None:
    topic = fresh_broker.create_topic("source-crash")
    job = KafkaJob(spark, fresh_broker.address, topic, tmp_path)
    produce(fresh_broker, topic, numbers(0, 2000))
    query = job.start(timeoutSeconds="15")

    def restart() -> None:
        """On a busy machine the broker may be that slow before it is killed: then the query starts again, too."""
        nonlocal query
        if not query.isActive:
            query = job.start(timeoutSeconds="15")

    wait_until(lambda: len(job.rows) == 2000, "all records", meanwhile=restart)
    fresh_broker.kill()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(PATIENCE_SECONDS)
    assert "did not answer within 15 s" in explain(caught.value)
    fresh_broker.stop()
    fresh_broker.start()
    produce(fresh_broker, topic, numbers(2000, 3000))
    query = job.start()
    job.drain(query)
    query.stop()
    assert sorted(row["id"] for row in job.rows) == list(range(3000))


def test_unreachable_broker_and_missing_topic_are_one_clear_message(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    job = KafkaJob(spark, f"127.0.0.1:{port}", "none", tmp_path)
    with pytest.raises(StreamingQueryException) as caught:
        job.start(timeoutSeconds="2").processAllAvailable()
    assert f"Kafka at 127.0.0.1:{port} did not answer within 2 s" in explain(caught.value)
    job = KafkaJob(spark, broker.address, "no-such-topic", tmp_path)
    with pytest.raises(StreamingQueryException) as caught:
        job.start().processAllAvailable()
    assert "topic no-such-topic is not there" in explain(caught.value)


def test_feed_fills_a_topic_and_raw_values_come_back(broker: Broker) -> None:
    target = f"kafka://{broker.address}/fed"
    command = [sys.executable, "-m", "floodway.cli.main", "feed", target]
    done = subprocess.run(
        [*command, "--rate", "2000", "--seconds", "1", "--partitions", "2", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    body = json.loads(done.stdout)
    assert body["offered"] == 2000 and body["partitions"] == [1000, 1000]
    backend = open_backend(parse_options(raw(broker, "fed")))
    assert backend.latest() == {0: 1000, 1: 1000} and backend.earliest() == {0: 0, 1: 0}
    ids = []
    for partition in (0, 1):
        for sequence, batch in backend.read(partition, [(10, 500), (700, 1000)]):
            assert len(sequence) == batch.num_rows
            ids += [json.loads(value)["id"] for value in batch.column("value").to_pylist()]
    assert len(ids) == len(set(ids)) == 2 * 790
