"""kill -9 of the driver at random moments, then a restart: nothing lost, nothing doubled, every tuple accounted for."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from floodway.job.ledger.ledger import Ledger, Reason
from floodway.network.file import load_network
from floodway.spark.audit.run import audit
from floodway.spark.audit.sinks import count_log
from floodway.spark.log import LogReader
from floodway.spark.query.drops import arc_drop
from floodway.spark.query.journal import query_key, read_batch
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.sinks import writer_of
from floodway.spark.source.drops import kept_mask, tuple_ids
from tests.patience import wait_until

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

Ids = np.ndarray[tuple[int], np.dtype[np.int64]]
NETWORK = """
version: 1
name: crash
streams:
  s: {{max_rate: 1200}}
nodes:
  A: {{cpu: 1.0}}
operators:
  work: {{node: A, from: s, run: 'tests.agent.waiting_service:call_1ms', cost: 0.001}}
  good: {{node: A, from: work, run: 'tests.agent.waiting_service:call_tenth_ms', cost: 0.0001}}
  dear: {{node: A, from: work, run: 'tests.agent.waiting_service:call_half_ms', cost: 0.0005}}
outputs:
  q1: {{from: good, sink: {sink}/q1}}
  q2: {{from: dear, sink: {sink}/q2}}
"""


@contextmanager
def running(network: Path, state: Path) -> Iterator[Job]:
    """The driver in a process group of its own: the kill at the end takes the Java process and the feeder with it."""
    command = [sys.executable, "-m", "floodway.cli.main", "run", str(network), "--state", str(state)]
    command += ["--rates", "s=1200", "--target", "1", "--seconds", "1h"]
    said = network.with_suffix(".output")
    with said.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield Job(process, said)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True)
class Job:
    process: subprocess.Popen[bytes]
    said: Path

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        wait_until(lambda: condition() or self.process.poll() is not None, what, told=self.said.read_text)
        assert self.process.poll() is None, self.said.read_text()


def batches(state: Path) -> int:
    return sum(line.reason == Reason.SHEDDER for line in Ledger(RunLayout(state).store).lines())


def further(state: Path, done: int) -> bool:
    return batches(state) > done


def dropped(state: Path) -> int:
    return sum(line.dropped for line in Ledger(RunLayout(state).store).read())


@pytest.mark.spark
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_kills_lose_and_double_nothing(spark: Session, tmp_path: Path, kills: int) -> None:
    seed = 20261115
    print(f"seed {seed}")
    moments = random.Random(seed)
    network, state = tmp_path / "crash.yaml", tmp_path / "state"
    network.write_text(NETWORK.format(sink=tmp_path / "out"))
    for _ in range(kills):
        done = batches(state)
        with running(network, state) as job:
            job.wait_for(partial(further, state, done), "a batch")
            time.sleep(moments.uniform(0.0, 1.5))
    with running(network, state) as job:
        job.wait_for(lambda: dropped(state), "a drop")
        job.process.send_signal(signal.SIGINT)
        assert job.process.wait() == 0, job.said.read_text()
    result = audit(load_network(network), RunLayout(state))
    assert result.differences == ()
    assert dropped(state) > 0
    accounted = {line.batch for line in Ledger(RunLayout(state).store).read()}
    for output, branch in (("q1", "work->good"), ("q2", "work->dear")):
        kept, keeps = kept_ids(state, branch, accounted)
        assert len(kept) == result_kept(state, "s")
        assert len(survivors(spark, kept, keeps, branch)) == result_kept(state, branch)
        sink = tmp_path / "out" / output
        # On a busy machine the last batch may have been stopped between its sinks and its ledger lines.
        query = query_key("A.main", state / "checkpoints" / "A.main")
        written = set(count_log(sink, writer_of(query, output)).batches)
        assert len(written - accounted) <= 1
        expected = survivors(spark, *kept_ids(state, branch, written), branch)
        assert np.array_equal(np.sort(origin_ids(sink)), np.sort(expected))


def kept_ids(state: Path, branch: str, batches: Collection[int]) -> tuple[Ids, Ids]:
    """What an uninterrupted run with the journaled decisions of these batches keeps, a pure function of the offsets,
    and the branch's keep for each tuple.
    """
    checkpoint = next((state / "checkpoints").iterdir())
    found, keeps = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for number in sorted(batches):
        for offset in read_batch(checkpoint, number).offsets.values():
            for partition, first, end in offset.ranges():
                ids = tuple_ids(partition, np.arange(first, end, dtype=np.int64))
                rule = offset.admission
                found.append(ids[kept_mask(ids, salt=rule.salt, keep_ppm=rule.keep_ppm)])
                keeps.append(np.full(len(found[-1]), offset.arc_keep(branch), dtype=np.int64))
    return np.concatenate(found), np.concatenate(keeps)


def survivors(spark: Session, kept: Ids, keeps: Ids, branch: str) -> Ids:
    """Those that the drop on a branch leaves, in one uninterrupted pass."""
    rows = pa.table({"_id": kept, "_weight": np.ones(len(kept)), f"_keep:{branch}": keeps})
    left: Ids = arc_drop(spark.createDataFrame(rows), branch).select("_id").toArrow().column("_id").to_numpy()
    return left


def origin_ids(log: Path) -> Ids:
    reader = LogReader(log)
    parts = [
        pa.Table.from_batches(list(reader.read(partition, 0, end))).column("origin_id").to_numpy()
        for partition, end in reader.end_positions().items()
        if end
    ]
    return np.concatenate(parts)


def result_kept(state: Path, at: str) -> int:
    lines = Ledger(RunLayout(state).store).read()
    return sum(line.kept for line in lines if line.at == at and line.reason == Reason.SHEDDER)
