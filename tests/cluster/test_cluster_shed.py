"""The one line on clusters that share no disk, standalone and YARN: state on HDFS, on S3, and where it must not be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.fetch_hadoop import CLUSTER, YARN
from scripts.fetch_kafka import fetch
from scripts.hadoop_cluster import Hdfs
from scripts.s3_server import S3Server
from tests.cluster.conftest import fetched
from tests.cluster.shed_driver import ROWS
from tests.cluster.standalone import Standalone, can_hide
from tests.cluster.yarn import Yarn
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.cluster


@dataclass
class Driver:
    """Starts drivers on one cluster, state and checkpoint, one after the other."""

    cluster: Standalone | Yarn
    state: str
    checkpoint: str
    settings: dict[str, str]

    def __post_init__(self) -> None:
        self.out = Path(self.cluster.hidden) / "out"
        self.out.mkdir(exist_ok=True)

    def start(self, **more: Any) -> subprocess.Popen[str]:
        given = {
            "master": self.cluster.master,
            "state": self.state,
            "checkpoint": self.checkpoint,
            "out": str(self.out),
            "settings": {**self.cluster.settings, **self.settings},
            **more,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.shed_driver", json.dumps(given)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                **self.cluster.environment,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **more: Any) -> tuple[int, str]:
        """Until it ends: its exit code, and the end of what it said."""
        with self.start(**more) as process:
            try:
                _, said = process.communicate(timeout=PATIENCE_SECONDS)
            finally:
                process.kill()
        return process.returncode, said[-3000:]

    def audit(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "audit.json").read_text())
        return found

    def check(self) -> None:
        """All that was kept is what the ledger says; repeated batches kept the same; some was dropped in the end."""
        found = self.audit()
        assert found["differences"] == [] and found["decision_seen"] is True, found
        assert not list(self.out.glob("*.differs")), found
        kept = {int(file.stem): len(json.loads(file.read_text())) for file in self.out.glob("[0-9]*.json")}
        assert {int(batch): count for batch, count in found["lines"].items()} == kept
        # How much of the last batch depends on how long the one before it took: half is aimed at.
        assert found["dropped"] > 0 and 0 < kept[max(kept)] < ROWS and found["keep"] == 0.5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    require_hiding()
    with Standalone(tmp_path) as started:
        yield started


def require_hiding() -> None:
    if not can_hide():
        pytest.skip("NO WORKERS WITHOUT A SHARED DISK: this machine lets us make no mount namespace (be root)")


def wait_for(what: str, process: subprocess.Popen[str], condition: Any) -> None:
    wait_until(lambda: condition() or process.poll() is not None, what)
    assert process.poll() is None, f"the driver has ended before {what}: {process.communicate()[1][-3000:]}"


@pytest.mark.slow
def test_state_on_hdfs_through_deaths_of_an_executor_and_the_driver(cluster: Standalone, hdfs: Hdfs) -> None:
    survive(cluster, hdfs)


@pytest.mark.slow
def test_the_same_on_yarn(tmp_path: Path, hdfs: Hdfs) -> None:
    require_hiding()
    with Yarn(tmp_path, fetched("YARN", lambda: [*fetch(CLUSTER), *fetch(YARN)]), hdfs.uri) as cluster:
        survive(cluster, hdfs)


def survive(cluster: Standalone | Yarn, hdfs: Hdfs) -> None:
    place = f"{hdfs.uri}/{type(cluster).__name__}"
    driver = Driver(cluster, f"{place}/state", f"{place}/checkpoint", {})
    with driver.start(die_at=5, stop_at=99) as process:
        try:
            wait_for("three batches", process, (driver.out / "2.json").exists)
            os.kill(cluster.executors()[0], 9)
            process.wait(PATIENCE_SECONDS)  # it kills itself in batch 5
        finally:
            process.kill()
    assert process.returncode == -9
    code, said = driver.run(stop_at=8)
    assert code == 0, said
    driver.check()


@pytest.mark.slow
def test_state_and_checkpoint_on_s3(
    cluster: Standalone, s3: S3Server, s3_jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():  # for the audit, which asks no JVM
        monkeypatch.setenv(name, value)
    settings = {"spark.jars": ",".join(map(str, s3_jars)), **s3.hadoop_settings}
    driver = Driver(cluster, "s3a://state/standalone/state", "s3a://state/standalone/checkpoint", settings)
    code, said = driver.run(die_at=4, stop_at=99)
    assert code == -9, said
    code, said = driver.run(stop_at=7)
    assert code == 0, said
    driver.check()


@pytest.mark.slow
def test_a_state_that_the_driver_alone_sees_is_refused_and_its_decisions_would_arrive(cluster: Standalone) -> None:
    state, checkpoint = str(cluster.hidden / "state"), str(cluster.hidden / "checkpoint")
    code, said = Driver(cluster, state, checkpoint, {}).run(stop_at=3)
    assert code == 1 and "whose executors do not see" in said and "Set spark.floodway.state to" in said
    # Somebody says that the folder is mounted everywhere, and it is not: decisions do not travel by it.
    driver = Driver(cluster, state, checkpoint, {"spark.floodway.state.shared": "true"})
    code, said = driver.run(stop_at=8)  # a decision is made after the second batch, and in force soon after
    assert code == 0, said
    found = driver.audit()
    assert found["dropped"] > 0 and found["decision_seen"] is True and not found["warnings"]
