"""Real Spark, bursts around capacity, two deadlines: the buffer against the baseline on the same input; a restart.

Deadlines, bursts and the length of the run scale with what an empty batch takes on the machine, so that a busy one
asks for the same of both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from floodway.agent.loop.feeds import Feed, Feeder
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.agent.loop.steering import Steering
from floodway.agent.loop.steering_loop import TICK_SECONDS, LoopOptions, SteeringLoop, fragments_of
from floodway.buffering.options import Manager
from floodway.job.decision import Mode
from floodway.job.ledger.fold import Counts
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.options.options import JobOptions
from floodway.job.options.values import Target
from floodway.network.file import load_network, parse_network
from floodway.network.model import Network
from floodway.planning.factory import make_planner
from floodway.spark.audit.run import audit
from floodway.spark.log import LogReader, create_log
from floodway.spark.log.profiles import DEFAULT_SCHEMA
from floodway.spark.query.journal import committed_batches, last_offsets, read_batch
from floodway.spark.query.layout import RunLayout
from floodway.spark.source import register
from floodway.spark.source.admit import admit, output_schema
from floodway.spark.source.backend import open_backend
from floodway.spark.source.options import parse_options
from tests.patience import wait_until

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark

COST = 0.002
CAPACITY = 1.0 / COST
"""Tuples/s that one task of the network can process at the most."""
SHARES = {"urgent": 0.6, "patient": 0.4}
OUTPUTS = {"urgent": "qu", "patient": "qp"}
NETWORK = """
version: 1
name: deadlines
streams:
  urgent: {{max_rate: 1000, deadline: {tight:g}s, log: {logs}/urgent}}
  patient: {{max_rate: 1000, deadline: {loose:g}s, log: {logs}/patient}}
nodes: {{{node}: {{cpu: 1.0}}}}
operators:
  u: {{node: {node}, from: urgent, {kind}, cost: 0.002}}
  p: {{node: {node}, from: patient, {kind}, cost: 0.002}}
outputs: {{qu: {{from: u}}, qp: {{from: p}}}}
"""
SERVICE, BUSY = "run: 'tests.agent.waiting_service:call'", "kind: delay"


@dataclass
class Turn:
    """One network under way; the test ticks it."""

    net: Network
    root: Path
    loop: SteeringLoop

    @classmethod
    def of(cls, spark: Session, net: Network, root: Path, mode: Mode, buffer: Manager | None) -> Turn:
        parts = fragments_of(net)
        steering = Steering(make_planner(net, "exact"), parts, Target(1.0))
        loop = SteeringLoop(
            spark, net, [steering], parts, RunLayout(root), LoopOptions(JobOptions(mode=mode, buffer=buffer))
        )
        loop.start(time.time())
        loop.record.begin(time.time(), loop.arrived)
        return cls(net, root, loop)

    @property
    def batches(self) -> int:
        """Batches that have ended and held something."""
        return sum(point.kept > 0 for point in self.loop.record.points)

    @property
    def in_time(self) -> int:
        return self.loop.deadlines.in_time.total()


def drive(turns: Sequence[Turn], done: Callable[[], bool]) -> None:
    def tick() -> None:
        for turn in turns:
            turn.loop.tick(time.time())

    wait_until(done, meanwhile=tick, pause_seconds=TICK_SECONDS / 2)


def network(logs: Path, node: str, kind: str = SERVICE, tight: float = 4.0) -> Network:
    for stream in SHARES:
        create_log(logs / stream, DEFAULT_SCHEMA, stream=stream)
    return parse_network(NETWORK.format(logs=logs, node=node, kind=kind, tight=tight, loose=4 * tight))


@contextmanager
def fed(net: Network, root: Path, half_seconds: float, high: float = 1.9, low: float = 0.3) -> Iterator[None]:
    """Feed both streams: `high` times the capacity, then `low` times, and so on."""
    feeds = {}
    for stream, share in SHARES.items():
        pair = f"{half_seconds:g}:{high * CAPACITY * share:g},{half_seconds:g}:{low * CAPACITY * share:g}"
        feeds[stream] = Feed(options=("--profile", "steps", "--steps", ",".join([pair] * 50)))
    with Feeder(net, RunLayout(root), feeds) as feeder:
        feeder.start()
        yield


def reconciled(net: Network, root: Path) -> dict[str, dict[str, int]]:
    """The ledger is in order; what was dropped, by stream and reason."""
    lines = list(Ledger(RunLayout(root).store).read())
    assert audit(net, RunLayout(root)).differences == ()
    counts = Counts.of(lines)
    for stream, output in OUTPUTS.items():
        got = sum(line.kept for line in lines if line.at == output and line.reason == Reason.DELIVERED)
        assert counts.kept[stream] == got
    return {stream: counts.by_place().get(stream, {}) for stream in OUTPUTS}


def admitted(net: Network, root: Path, stream: str) -> list[int]:
    """The `_id`s that the journaled offsets admit, batch by batch: a pure function of the checkpoint and the log."""
    checkpoint = RunLayout(root).checkpoint(next(iter(fragments_of(net).values())))
    backend = open_backend(parse_options({"path": str(net.streams[stream].log)}))
    schema = output_schema(backend.payload, ())
    found: list[int] = []
    for number in sorted({line.batch for line in Ledger(RunLayout(root).store).read()}):
        offset = read_batch(checkpoint, number).offsets.get(stream)
        if offset is not None:
            for batch in admit(backend, offset.ranges(), offset.admission, {}, schema):
                found += batch.column(batch.schema.get_field_index("_id")).to_pylist()
    return found


def delivered(root: Path, output: str) -> list[int]:
    reader = LogReader(RunLayout(root).root / "outputs" / output)
    ends = reader.end_positions().items()
    tables = [pa.Table.from_batches(list(reader.read(partition, 0, end))) for partition, end in ends if end]
    return [int(i) for table in tables for i in table.column("origin_id").to_numpy()]


@pytest.fixture(scope="module")
def overhead(spark: Session, tmp_path_factory: pytest.TempPathFactory) -> float:
    """What a batch takes beside its tuples. The run has no buffer and drops nothing; deadlines are measured anyway."""
    register(spark)
    root = tmp_path_factory.mktemp("plain")
    net = network(root, "plain")
    with fed(net, root, 100.0, high=0.2):
        turn = Turn.of(spark, net, root / "plain", "off", None)
        try:
            drive([turn], lambda: turn.batches >= 6)
        finally:
            turn.loop.stop()
    assert reconciled(net, root / "plain") == {"urgent": {}, "patient": {}}
    lines = turn.loop.ledger.read()
    seen = turn.loop.deadlines.to_dict(lines)
    for stream, output in OUTPUTS.items():
        # What the ledger has: a batch that was stopped behind its sinks is repeated by the next start.
        told = sum(line.kept for line in lines if line.at == output and line.reason == Reason.DELIVERED)
        assert seen[stream]["in_time"] + seen[stream]["late"] == told > 0
        assert seen[stream]["purged"] == 0
    return max(point.batch_seconds - point.kept * COST for point in list(turn.loop.record.points)[-4:])


@pytest.fixture(scope="module")
def buffered(spark: Session, tmp_path_factory: pytest.TempPathFactory) -> Turn:
    """A run with the whole buffer under overload, until every part of it has dropped something; stopped with a queue.

    While the loop is held up for long, a buffer lets everything pass: if that was at the end, the run goes on.
    """
    register(spark)
    root = tmp_path_factory.mktemp("buffered")
    net = network(root, "CWB", tight=1.0)

    def run() -> Turn:
        turn = Turn.of(spark, net, root / "cwb", "enforce", "cwb")

        def reasons() -> set[str]:
            return {line.reason for line in turn.loop.ledger.read() if line.dropped}

        try:
            drive([turn], lambda: bool(turn.loop.record.points))
            with fed(net, root, 100.0, high=4.0):
                drive([turn], lambda: turn.batches >= 4 and reasons() >= {Reason.ADAPTOR, Reason.CLEANER})
        finally:
            turn.loop.stop()
        return turn

    turn = run()
    while not queued(turn):
        turn = run()
    return turn


def queued(turn: Turn) -> bool:
    """Whether the last batch that was cut left tuples in a queue."""
    checkpoint = RunLayout(turn.root).checkpoint(next(iter(fragments_of(turn.net).values())))
    return any(offset.queues for offset in last_offsets(checkpoint).values())


@pytest.fixture(scope="module")
def duel(spark: Session, overhead: float, tmp_path_factory: pytest.TempPathFactory) -> tuple[Turn, Turn]:
    """Both managers at the same time over the same logs: the same input, and the same noise."""
    root = tmp_path_factory.mktemp("duel")
    tight = max(3.0, round(6 * overhead, 1))
    nets = {manager: network(root, manager.upper(), tight=tight) for manager in ("cwb", "cob")}
    ours = Turn.of(spark, nets["cwb"], root / "cwb", "enforce", "cwb")
    peer = Turn.of(spark, nets["cob"], root / "cob", "enforce", "cob")
    half = 1.25 * tight
    try:
        # A query's first batch is cut at once, with nothing in it: the load begins when both have started.
        drive([ours, peer], lambda: bool(ours.loop.record.points and peer.loop.record.points))
        begun = time.time()
        with fed(nets["cwb"], root, half):
            drive([ours, peer], lambda: time.time() >= begun + 6 * half)
    finally:
        ours.loop.stop()
        peer.loop.stop()
    return ours, peer


def test_the_ledger_names_cleaner_and_adaptor_apart(buffered: Turn) -> None:
    dropped = reconciled(buffered.net, buffered.root)
    assert sum(reasons["adaptor"] for reasons in dropped.values() if "adaptor" in reasons) > 0
    assert sum(reasons["cleaner"] for reasons in dropped.values() if "cleaner" in reasons) > 0
    assert not any("shedder" in reasons for reasons in dropped.values())


@pytest.mark.timing
@pytest.mark.slow
def test_edf_pid_and_cleaner_get_a_tenth_more_in_time_than_cob(duel: tuple[Turn, Turn]) -> None:
    ours, peer = duel
    dropped = reconciled(ours.net, ours.root)
    for turn in duel:
        print(f"{turn.root.name}: {turn.in_time} in time, {turn.loop.deadlines.late.total()} late of")
        print([(round(p.batch_seconds, 2), p.kept) for p in turn.loop.record.points], reconciled(turn.net, turn.root))
    assert ours.in_time >= 1.1 * peer.in_time > 0
    assert sum(reasons.get("cleaner", 0) + reasons.get("adaptor", 0) for reasons in dropped.values()) > 0
    assert not any("shedder" in reasons for reasons in dropped.values())
    lines = list(ours.loop.ledger.read())
    assert {line.reason for line in lines if line.at == "urgent"} == {"shedder", "adaptor", "cleaner"}


def test_a_restart_repeats_the_batch_and_goes_on_with_the_same_queue(spark: Session, buffered: Turn) -> None:
    net, state = buffered.net, buffered.root
    checkpoint = RunLayout(state).checkpoint(next(iter(fragments_of(net).values())))
    assert queued(buffered)
    # As after a crash between the sinks and Spark's commit: the last batch is run once more.
    last = committed_batches(checkpoint)[-1]
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    before = len(list(Ledger(RunLayout(state).store).read()))
    turn = Turn.of(spark, net, state, "enforce", "cwb")
    try:
        drive([turn], lambda: len(turn.loop.record.points) >= 2)
    finally:
        turn.loop.stop()
    reconciled(net, state)
    assert len(list(Ledger(RunLayout(state).store).read())) > before
    for stream, output in OUTPUTS.items():
        ids = delivered(state, output)
        assert len(ids) == len(set(ids))
        assert sorted(ids) == sorted(admitted(net, state, stream))


@pytest.mark.timing
@pytest.mark.slow
def test_with_busy_operators_one_after_the_other(spark: Session, tmp_path: Path) -> None:
    """The papers' delay operator, which needs a quiet machine; the feed is the same to the tuple."""
    found = {}
    managers: tuple[Manager, ...] = ("cwb", "cob")
    for manager in managers:
        root = tmp_path / manager
        net = network(root, f"busy-{manager}", BUSY)
        with fed(net, root, 5.0):
            options = RunOptions(seconds=60, root=root / "state", buffer=manager, target=Target(1.0))
            report = run_network(net, options, spark)
        reconciled(net, root / "state")
        seen = report.to_dict()["deadlines"]
        found[manager] = sum(seen[stream]["in_time"] for stream in OUTPUTS)
    print(found)
    assert found["cwb"] >= 1.1 * found["cob"]


@pytest.mark.slow
def test_kills_neither_lose_nor_double_what_the_buffer_admitted(tmp_path: Path) -> None:
    net, file, state = network(tmp_path, "A", BUSY), tmp_path / "net.yaml", tmp_path / "state"
    file.write_text(NETWORK.format(logs=tmp_path, node="A", kind=BUSY, tight=4.0, loose=16.0))
    command = [sys.executable, "-m", "floodway.cli.main", "run", str(file), "--state", str(state), "--buffer", "cwb"]
    with fed(net, tmp_path, 5.0):
        for seconds in (25.0, 31.0):
            process = subprocess.Popen(
                [*command, "--seconds", "300"], start_new_session=True, stdout=subprocess.DEVNULL
            )
            time.sleep(seconds)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert subprocess.run([*command, "--seconds", "8"], check=False, stdout=subprocess.DEVNULL).returncode == 0
    reconciled(load_network(file), state)
    for stream, output in OUTPUTS.items():
        ids = np.array(delivered(state, output))
        assert len(ids) == len(np.unique(ids)) > 0
        assert sorted(ids.tolist()) == sorted(admitted(net, state, stream))
