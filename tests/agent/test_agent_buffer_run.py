"""Real Spark, bursts around capacity, two deadlines: the buffer against the baseline on the same input; a restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from floodway.agent.buffering_options import BufferOptions, Manager
from floodway.agent.feeding import Feed, Feeder
from floodway.agent.loop import fragments_of
from floodway.agent.report import RunReport
from floodway.agent.runner import RunOptions, run_network
from floodway.network.file import load_network, parse_network
from floodway.network.model import Network
from floodway.spark.audit import audit
from floodway.spark.journal import committed_batches, last_offsets, read_batch
from floodway.spark.layout import Layout
from floodway.spark.ledger import Ledger, Reason
from floodway.spark.log import LogReader, create_log
from floodway.spark.log.tuples import DEFAULT_SCHEMA
from floodway.spark.source.admit import admit, output_schema
from floodway.spark.source.backend import open_backend
from floodway.spark.source.options import parse_options

if TYPE_CHECKING:
    from floodway.spark.session import Session

pytestmark = pytest.mark.spark

CAPACITY = 500.0
"""Tuples/s that one task of the network can process at the most: 2 ms each."""
URGENT, PATIENT = 4.0, 16.0
"""Deadlines in seconds: the tight one is several times what an empty batch takes on a busy machine."""

NETWORK = """
version: 1
name: deadlines
streams:
  urgent: {{max_rate: 1000, deadline: 4s, log: {logs}/urgent}}
  patient: {{max_rate: 1000, deadline: 16s, log: {logs}/patient}}
nodes: {{{node}: {{cpu: 1.0}}}}
operators:
  u: {{node: {node}, from: urgent, {kind}, cost: 0.002}}
  p: {{node: {node}, from: patient, {kind}, cost: 0.002}}
outputs: {{qu: {{from: u}}, qp: {{from: p}}}}
"""
SERVICE, BUSY = "run: 'tests.agent.waiting_service:call'", "kind: delay"
SHARES = {"urgent": 0.6, "patient": 0.4}


def network(logs: Path, node: str, kind: str = SERVICE) -> Network:
    for stream in SHARES:
        create_log(logs / stream, DEFAULT_SCHEMA, stream=stream)
    return parse_network(NETWORK.format(logs=logs, node=node, kind=kind))


@contextmanager
def bursts(net: Network, root: Path, half_seconds: float = 5.0) -> Iterator[None]:
    """Feed both streams: 1.9 times the capacity, then 0.3 times, and so on."""
    feeds = {}
    for stream, share in SHARES.items():
        pair = f"{half_seconds}:{1.9 * CAPACITY * share:g},{half_seconds}:{0.3 * CAPACITY * share:g}"
        feeds[stream] = Feed(options=("--profile", "steps", "--steps", ",".join([pair] * 50)))
    with Feeder(net, Layout(root), feeds) as feeder:
        feeder.start()
        yield


def options(root: Path, manager: Manager, seconds: float) -> RunOptions:
    return RunOptions(
        seconds=seconds, root=root, settle_seconds=seconds / 2, buffer=BufferOptions(manager), target_seconds=1.0
    )


def in_time(report: RunReport) -> int:
    return sum(int(seen["in_time"]) for seen in report.deadlines.values())


def reconciled(net: Network, root: Path, report: RunReport) -> None:
    assert report.differences == ()
    assert audit(net, Layout(root)).differences == ()
    for stream, output in (("urgent", "qu"), ("patient", "qp")):
        delivered = sum(line.kept for line in report.lines if line.at == output and line.reason == Reason.DELIVERED)
        assert report.to_dict()["kept"][stream] == delivered
        assert report.deadlines[stream]["in_time"] + report.deadlines[stream]["late"] == delivered


def admitted(net: Network, root: Path, stream: str) -> list[int]:
    """The `_id`s that the journaled offsets admit, batch by batch: a pure function of the checkpoint and the log."""
    checkpoint = Layout(root).checkpoint(next(iter(fragments_of(net).values())))
    backend = open_backend(parse_options({"path": str(net.streams[stream].log)}))
    schema = output_schema(backend.payload, ())
    found: list[int] = []
    for number in sorted({line.batch for line in Ledger(Layout(root).ledger).read()}):
        offset = read_batch(checkpoint, number).offsets.get(stream)
        if offset is not None:
            for batch in admit(backend, offset.ranges(), offset.admission, {}, schema):
                found += batch.column(batch.schema.get_field_index("_id")).to_pylist()
    return found


def delivered(root: Path, output: str) -> list[int]:
    reader = LogReader(Layout(root).root / "outputs" / output)
    ends = reader.end_positions().items()
    tables = [pa.Table.from_batches(list(reader.read(partition, 0, end))) for partition, end in ends if end]
    return [int(i) for table in tables for i in table.column("origin_id").to_numpy()]


@pytest.fixture(scope="module")
def plain(spark: Session, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Network, RunReport]:
    """A short run without any buffer, which also warms the session up: plans compiled, workers started."""
    root = tmp_path_factory.mktemp("plain")
    net = network(root, "plain")
    with bursts(net, root):
        off = RunOptions(seconds=5, root=root / "plain", mode="off", settle_seconds=1, target_seconds=1.0)
        return root / "plain", net, run_network(net, off, spark)


def test_without_a_buffer_deadlines_are_measured_all_the_same(plain: tuple[Path, Network, RunReport]) -> None:
    root, net, report = plain
    reconciled(net, root, report)
    assert report.to_dict()["dropped"] == {}
    assert report.deadlines["urgent"]["purged"] == 0
    assert report.deadlines["urgent"]["in_time"] + report.deadlines["urgent"]["late"] > 0


@pytest.fixture(scope="module")
def duel(
    spark: Session, plain: object, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[Manager, tuple[Network, RunReport]]]:
    """Both managers at the same time over the same logs: the same input, and the same noise."""
    root = tmp_path_factory.mktemp("duel")
    managers: tuple[Manager, ...] = ("cwb", "cob")
    nets = {manager: network(root, manager.upper()) for manager in managers}
    reports: dict[Manager, tuple[Network, RunReport]] = {}

    def run(manager: Manager) -> None:
        report = run_network(nets[manager], options(root / manager, manager, 30.0), spark)
        reports[manager] = nets[manager], report

    threads = [threading.Thread(target=run, args=(manager,)) for manager in managers]
    for thread in threads:
        thread.start()
    # Let both compile their plans and start their workers before the load begins.
    until = time.monotonic() + 60.0
    while not all((root / manager / "ledger.jsonl").exists() for manager in managers) and time.monotonic() < until:
        time.sleep(0.1)
    with bursts(nets["cwb"], root):
        for thread in threads:
            thread.join()
    return root, reports


def test_edf_pid_and_cleaner_get_a_tenth_more_in_time_than_cob(
    duel: tuple[Path, dict[Manager, tuple[Network, RunReport]]],
) -> None:
    root, reports = duel
    ours, peer = reports["cwb"][1], reports["cob"][1]
    print(f"in time: {in_time(ours)} with the buffer, {in_time(peer)} without; {ours.deadlines} {peer.deadlines}")
    for manager, (net, report) in reports.items():
        reconciled(net, root / manager, report)
    assert in_time(ours) >= 1.1 * in_time(peer)
    dropped = ours.to_dict()["dropped"]
    assert sum(reasons.get("cleaner", 0) + reasons.get("adaptor", 0) for reasons in dropped.values()) > 0
    assert not any("shedder" in reasons for reasons in dropped.values())
    assert {line.reason for line in ours.lines if line.at == "urgent"} == {"shedder", "adaptor", "cleaner"}


def test_a_restart_repeats_the_batch_and_goes_on_with_the_same_queue(
    spark: Session, duel: tuple[Path, dict[Manager, tuple[Network, RunReport]]]
) -> None:
    root, reports = duel
    net, before = reports["cwb"]
    state = root / "cwb"
    checkpoint = Layout(state).checkpoint(next(iter(fragments_of(net).values())))
    waiting = last_offsets(checkpoint)
    assert any(offset.queues for offset in waiting.values())
    # As after a crash between the sinks and Spark's commit: the last batch is run once more.
    last = committed_batches(checkpoint)[-1]
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    again = run_network(net, options(state, "cwb", 4.0), spark)
    assert again.differences == ()
    assert audit(net, Layout(state)).differences == ()
    assert len(again.lines) > len(before.lines)
    for stream, output in (("urgent", "qu"), ("patient", "qp")):
        ids = delivered(state, output)
        assert len(ids) == len(set(ids))
        assert sorted(ids) == sorted(admitted(net, state, stream))


@pytest.mark.slow
def test_with_busy_operators_one_after_the_other(spark: Session, tmp_path: Path) -> None:
    """The papers' delay operator, which needs a quiet machine; the feed is the same to the tuple."""
    found = {}
    for manager in ("cwb", "cob"):
        name: Manager = "cwb" if manager == "cwb" else "cob"
        net = network(tmp_path / manager, f"busy-{manager}", BUSY)
        with bursts(net, tmp_path / manager):
            report = run_network(net, options(tmp_path / manager / "state", name, 60.0), spark)
        reconciled(net, tmp_path / manager / "state", report)
        found[manager] = in_time(report)
    print(found)
    assert found["cwb"] >= 1.1 * found["cob"]


@pytest.mark.slow
def test_kills_neither_lose_nor_double_what_the_buffer_admitted(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    net = network(tmp_path, "A", BUSY)
    file.write_text(NETWORK.format(logs=tmp_path, node="A", kind=BUSY))
    state = tmp_path / "state"
    command = [sys.executable, "-m", "floodway.cli.main", "run", str(file), "--state", str(state), "--buffer", "cwb"]
    with bursts(net, tmp_path):
        for seconds in (25.0, 31.0):
            process = subprocess.Popen(
                [*command, "--seconds", "300"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            time.sleep(seconds)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert subprocess.run([*command, "--seconds", "8"], stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert audit(load_network(file), Layout(state)).differences == ()
    for stream, output in (("urgent", "qu"), ("patient", "qp")):
        ids = np.array(delivered(state, output))
        assert len(ids) == len(np.unique(ids)) > 0
        assert sorted(ids.tolist()) == sorted(admitted(net, state, stream))
