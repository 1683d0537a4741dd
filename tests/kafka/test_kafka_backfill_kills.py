"""Live jobs and their backfills, killed again and again: what was kept and what was recovered is all, to the tuple."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.places import ShedFiles
from scripts.kafka_broker import Broker
from tests.kafka.backfill_job import WAYS, kafka, parsed, windows
from tests.kafka.producers import ordered
from tests.kafka_jars import connector_jars
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

RECORDS, KILLS, SEED = 8_000, 5, 20_261_118
START_MS = int(time.time()) // 3600 * 3_600_000 - 7_200_000
ROOT = Path(__file__).resolve().parents[2]


def send(broker: Broker, topic: str) -> None:
    """Records in the order of their event times, ten a second, in both partitions alike: none is late for Spark.

    The last one is far ahead and closes all windows.
    """
    producer = Producer(ordered(broker.address))
    for number in range(RECORDS + 1):
        at_ms = START_MS + number * 100 + (3_600_000 if number == RECORDS else 0)
        ts = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
        body = {"id": number, "user": number % 20, "value": number * 7919 % 100, "ts": ts}
        producer.produce(topic, value=json.dumps(body).encode(), partition=number % 2)
    assert producer.flush(PATIENCE_SECONDS) == 0


class Process:
    """A command in a group of its own, killed with all that it has started; `out` is where it writes."""

    def __init__(self, arguments: list[str], out: Path) -> None:
        self.errors = out / "errors.txt"
        with self.errors.open("ab") as file:
            self.process = subprocess.Popen(
                arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=file, text=True,
                start_new_session=True, env={**os.environ, "OUT": str(out)},
            )  # fmt: skip

    def killed(self, reached: Callable[[], bool], later_seconds: float) -> None:
        """Killed that long after a state was reached: anywhere in a batch."""
        try:
            wait_until(lambda: self.process.poll() is not None or reached(), "a moment to kill it")
            assert self.process.poll() is None, self.errors.read_text()[-3000:]
            time.sleep(later_seconds)
        finally:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()

    def result(self) -> str:
        """What it says when it has ended by itself."""
        try:
            out, _ = self.process.communicate(timeout=10 * PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        assert self.process.returncode == 0, self.errors.read_text()[-3000:]
        return out


def commits(folder: Path) -> int:
    return sum(len(list((folder / name / "checkpoint" / "commits").glob("[0-9]*"))) for name in WAYS)


def reached(folder: Path, goal: int) -> bool:
    return commits(folder) >= goal


def is_in_step(state: Path, done: int) -> bool:
    """Whether a step is under way, and as many were done before."""
    recovered = {line.plan for line in Ledger(ShedFiles(state).store).lines() if line.reason == Reason.RECOVERED}
    return (state / "backfill" / f"{state.name}.json").exists() and len(recovered) >= done


@pytest.fixture
def topic(broker: Broker) -> str:
    name = broker.create_topic("backfill-kills", 2)
    send(broker, name)
    return name


def test_kept_and_recovered_windows_are_those_of_an_unshed_run(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    moments: list[str] = []
    command = [sys.executable, "-m", "tests.kafka.backfill_job", str(tmp_path), broker.address, topic]
    unheard = Process([*command, "--unheard"], tmp_path)
    wait_until(lambda: unheard.process.poll() is not None)
    unheard.process.communicate()
    moments.append("live jobs between a commit and its report")
    for _ in range(KILLS - 1):
        goal = commits(tmp_path) + rng.randint(3, 10)
        later = rng.uniform(0.0, 1.5)
        Process(command, tmp_path).killed(partial(reached, tmp_path, goal), later)
        moments.append(f"live jobs {later:.3f} s after commit {goal}")
    gaps = [name for name in WAYS if Ledger(ShedFiles(tmp_path / "state" / name).store).fold().lost_batches]
    assert gaps  # a batch whose report was lost with its driver
    for _ in range(2):  # what the first leaves unreported the second hears of
        Process([*command, "--drain"], tmp_path).result()

    found: dict[str, Any] = {}
    for name in WAYS:
        command = [
            sys.executable, "-m", "floodway.cli.main", "backfill", name, "--run", "tests.kafka.backfill_job:fill",
            "--through", "tests.kafka.backfill_job:parsed", "--state", str(tmp_path / "state"), "--step", "400",
            "--conf", f"spark.jars={','.join(map(str, connector_jars()))}", "--now", "--json",
            "--kafka", f"kafka.bootstrap.servers={broker.address}",
        ]  # fmt: skip
        steps, later = rng.randint(0, 2), rng.uniform(0.0, 1.5)
        Process(command, tmp_path / name).killed(partial(is_in_step, tmp_path / "state" / name, steps), later)
        moments.append(f"backfill of {name} {later:.3f} s after step {steps}")
        found[name] = json.loads(Process(command, tmp_path / name).result())
    print(f"seed {SEED}, killed:", *moments, sep="\n  ")

    offered = parsed(spark.read.format("kafka").options(**kafka(broker.address, topic)).load())
    for name in WAYS:
        told, total = found[name], Ledger(ShedFiles(tmp_path / "state" / name).store).fold().total
        assert (told["remaining"], told["lost"], told["reconciled"]) == (0, {}, True), (name, told)
        assert total.kept.total() + total.recovered.total() == total.offered.total() == RECORDS + 1
        assert told["dropped"] == told["recovered"] == total.dropped.total() > 0
        unshed = counted(windows(name, offered).filter(f"window.end <= timestamp_millis({START_MS + RECORDS * 100})"))
        live, recovered = (spark.read.parquet(f"{tmp_path}/{name}/{part}") for part in ("live", "recovered"))
        both = (
            live.unionByName(recovered.drop("step"))
            .groupBy("window")
            .agg(fn.sum("n").alias("n"), fn.sum("ids").alias("ids"))
        )
        assert counted(live) != unshed
        assert {window: counts for window, counts in counted(both).items() if window in unshed} == unshed, name


def counted(frame: Any) -> dict[Any, tuple[int, int]]:
    return {(row.window.start, row.window.end): (row.n, row.ids) for row in frame.collect()}
