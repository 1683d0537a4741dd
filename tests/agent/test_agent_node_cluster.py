"""A node on a real standalone cluster: a master and two workers on this machine, from the pip package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from floodway.agent.wire.ports import free_ports
from floodway.job.status.status import read_status
from floodway.network.file import load_network
from floodway.spark.audit.nodes import audit_nodes
from floodway.spark.query.layout import NodeLayout
from floodway.spark.session.java import find_java
from tests.patience import PATIENCE_SECONDS, wait_until

NETWORK = """
version: 1
name: on-a-cluster
streams: {s: {max_rate: 400}}
nodes: {A: {cpu: 1.0}}
operators: {work: {node: A, from: s, kind: delay, cost: 0.005}}
outputs: {q: {from: work}}
"""


@contextmanager
def processes(folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Started processes, each with a group of its own, killed at the end."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start(log: Path, command: list[str], **environ: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **environ}, start_new_session=True
        )


def deploy(folder: Path, role: str, *arguments: str) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__path__[0])
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
    environ = {"JAVA_HOME": str(find_java()), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    return start(folder / f"{role}-{time.monotonic_ns()}.log", command, PYSPARK_PYTHON=sys.executable, **environ)


@pytest.mark.spark
@pytest.mark.slow
def test_a_node_runs_on_a_standalone_cluster(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    file, state = tmp_path / "net.yaml", tmp_path / "state"
    file.write_text(NETWORK)
    floodway = [sys.executable, "-m", "floodway.cli.main"]
    with processes(tmp_path) as running:
        where = ("--host", "127.0.0.1")
        running.append(deploy(tmp_path, "master.Master", *where, "--port", str(port), "--webui-port", "0"))
        for name in ("one", "two"):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / name), "--webui-port", "0")
            running.append(deploy(tmp_path, "worker.Worker", *where, *work, master))
        feed = [*floodway, "feed", str(state / "streams" / "s"), "--rate", "400", "--seconds", "600"]
        running.append(start(tmp_path / "feed.log", feed))
        settings = {
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        }
        conf = [argument for key, value in settings.items() for argument in ("--conf", f"{key}={value}")]
        command = [*floodway, "node", str(file), "--node", "A", "--state", str(state), "--control", "alone"]
        node = start(tmp_path / "node.log", [*command, "--master", master, "--target", "4", *conf])
        running.append(node)

        def batches() -> int:
            assert node.poll() is None, (tmp_path / "node.log").read_text()
            status = read_status(NodeLayout(state).own("A").store)
            return status.batch_count if status else 0

        wait_until(lambda: batches() >= 5, "five batches on the cluster")
        node.send_signal(signal.SIGTERM)
        assert node.wait(PATIENCE_SECONDS) == 0, (tmp_path / "node.log").read_text()
    audited = audit_nodes(load_network(file), NodeLayout(state))
    assert audited.differences == ()
    assert audited.nodes["A"].tuples_delivered > 0
    assert audited.nodes["A"].tuples_offered > audited.nodes["A"].tuples_delivered  # twice what one CPU can take
    # Executors ran in the workers' folders, not in the driver.
    assert list(tmp_path.glob("one/app-*/*/stderr")) + list(tmp_path.glob("two/app-*/*/stderr"))
