"""A backfill beside its live job: it works while the job sheds nothing, pauses when it does, and in the end nothing is
missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import pytest
from pyspark.sql import DataFrame, SparkSession

from floodway.spark.audit.shed import audit_shed
from scripts.kafka_broker import Broker
from tests.kafka.live_job import CAPACITY, LiveJob, values
from tests.kafka_jars import connector_jars
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timing]

ROOT = Path(__file__).resolve().parents[2]
TARGET_SECONDS = 4.0
DROPPED = 20_000
STEP = 1000


def fill(dropped: DataFrame, step: str) -> None:
    """For `floodway backfill`: keeps the numbers, and takes its time as a warehouse does."""
    (Path(os.environ["OUT"]) / step).write_text("\n".join(row.value for row in values(dropped).collect()))
    time.sleep(0.5)


@pytest.fixture
def live(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[LiveJob]:
    job = LiveJob(spark, broker, tmp_path, "backfill-live", target_latency=TARGET_SECONDS)
    yield job
    job.stop()


def keep(live: LiveJob) -> float:
    status = live.status
    return 1.0 if status is None else status.keep


def test_it_works_in_quiet_times_only_and_nothing_is_missing(live: LiveJob, broker: Broker, tmp_path: Path) -> None:
    live.warm_up()
    quiet, live.rate = live.rate, 3.0 * CAPACITY
    wait_until(lambda: live.dropped > DROPPED, "overload")
    live.rate = quiet
    wait_until(lambda: keep(live) == 1.0, "a quiet time")

    out, told = tmp_path / "recovered", tmp_path / "told.txt"
    out.mkdir()
    command = [
        sys.executable, "-m", "floodway.cli.main", "backfill", "clicks", "--state", str(tmp_path / "state"),
        "--run", "tests.kafka.test_kafka_backfill_live:fill", "--step", str(STEP),
        "--kafka", f"kafka.bootstrap.servers={broker.address}",
        "--conf", f"spark.jars={','.join(map(str, connector_jars()))}",
    ]  # fmt: skip
    begun = time.time()
    with told.open("w") as stderr:
        backfill = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**os.environ, "OUT": str(out)}
        )
    try:

        def reached(state: Callable[[], bool], what: str) -> None:
            wait_until(lambda: backfill.poll() is not None or state(), what, told=lambda: told.read_text()[-2000:])
            assert backfill.poll() is None, told.read_text()[-3000:]

        def recovered() -> int:
            return live.ledger.fold().total.recovered.total()

        reached(lambda: recovered() > 0, "a first step")
        live.rate = 1.5 * CAPACITY
        reached(lambda: "waiting, the live job" in told.read_text(), "a pause")
        paused, dropped = recovered(), live.dropped
        reached(lambda: live.dropped > dropped + STEP, "drops during the pause")
        assert recovered() == paused
        live.rate = quiet
        said, _ = backfill.communicate(timeout=3 * PATIENCE_SECONDS)
    finally:
        backfill.kill()
        backfill.communicate()
    ended = time.time()
    assert backfill.returncode == 0, told.read_text()[-3000:]
    live.drain()

    audit = audit_shed("clicks", live.shed.files, time.time())
    latency = fmean(one.latency for one in live.results if begun <= one.seconds <= ended)
    print(f"\n{said}{told.read_text()}{audit}")
    print(f"live latency {latency:.2f} s while the backfill ran ({ended - begun:.0f} s)")
    assert latency <= 1.1 * TARGET_SECONDS
    assert audit.differences == () and audit.recovered > DROPPED + STEP
    assert audit.kept + audit.recovered == audit.offered == live.sent
    numbers = [int(text) for path in out.iterdir() for text in path.read_text().split()]
    assert sorted([*numbers, *live.numbers()]) == list(range(live.sent))
