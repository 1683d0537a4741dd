"""The page "Five minutes on an existing Kafka job", done: its blocks in order, on a real broker and real Spark."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from floodway.cli import main
from floodway.job.ledger.ledger import Ledger
from floodway.job.places import ShedFiles
from floodway.job.store.store import LocalStore
from scripts.kafka_broker import Broker
from tests.docs.pages import ROOT, Block, blocks_of, command_line, commands
from tests.kafka.producers import ordered
from tests.patience import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RECORDS = 600
ENDING = {"floodway top clicks": "floodway top clicks --once", "--open": "--listen 127.0.0.1:0 --seconds 0.1"}
"""What is watched until one has seen enough, for once."""


def blocks(page: str, language: str) -> list[Block]:
    return [block for block in blocks_of(ROOT / page) if (block.language, block.note) == (language, "spark")]


def source(broker: Broker, topic: str) -> dict[str, str]:
    """Options of a job that reads the topic, which has some clicks."""
    broker.create_topic(topic, 2)
    producer = Producer(ordered(broker.address))
    for number in range(RECORDS):
        producer.produce(topic, key=b"%d" % (number % 2), value=b"page-%d" % (number % 3))
    producer.flush()
    return {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "startingOffsets": "earliest"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has set nothing: state lies below the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("FLOODWAY_STATE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(ledger: Ledger) -> None:
    """Wait until every record is in the ledger: a shed hears its counts after the commit."""
    wait_until(lambda: ledger.fold().total.offered.total() >= RECORDS, "the last report")
    assert ledger.fold().total.offered.total() == RECORDS


def shell(block: Block) -> str:
    """Do a block as a user would; what never ends by itself ends at once."""
    seen = ""
    for line in commands(block):
        for long, short in ENDING.items():
            line = line.replace(long, short)
        words = [str(Path(word).expanduser()) if word.startswith("~") else word for word in shlex.split(line)]
        done = CliRunner().invoke(main.app, words[1:], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        seen += done.output
    return seen


def test_the_page_for_an_existing_kafka_job(spark: SparkSession, broker: Broker, home: Path) -> None:
    names: dict[str, Any] = {"spark": spark, "kafka": source(broker, "start-kafka")}
    for block in blocks("docs/start-kafka.md", "python"):
        exec(compile(block.body, str(block), "exec"), names)
    files = ShedFiles(home / ".local/state/floodway/clicks")
    query = (
        names["counts"]
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("start_kafka")
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        told(Ledger(files.store))
        assert command_line().commands
        look, enforce, report = blocks("docs/start-kafka.md", "bash")
        seen = shell(look)
        assert "observe" in seen and "page: http://" in seen
        status = files.read_status()
        assert status is not None and status.would_drop == 0  # the figure that the page says to look at
        assert "enforce" in shell(enforce)
        assert files.read_mode() == "off"
    finally:
        query.stop()
    counted = {row["page"]: (row["clicks"], row["seen"]) for row in spark.table("start_kafka").collect()}
    assert counted == {f"page-{page}": (RECORDS / 3, RECORDS // 3) for page in range(3)}
    assert "reconciled" in shell(report)
    assert f"{RECORDS:,} tuples came" in (home / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_one_line_of_the_readme(spark: SparkSession, broker: Broker, home: Path) -> None:
    names: dict[str, Any] = {"spark": spark, "kafka": source(broker, "start-readme")}
    (block,) = blocks("README.md", "python")
    exec(compile(block.body, str(block), "exec"), names)
    (query,) = [query for query in spark.streams.active if query.name is None]
    try:
        query.processAllAvailable()
        told(Ledger(LocalStore(home / ".local/state/floodway/clicks")))
    finally:
        query.stop()
