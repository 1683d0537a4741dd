"""An aggregate under twice its load on Spark: the windows that are put out are those of an unshed run, to the tuple."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from floodway.agent.loop.record import RunReport
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.agent.node.node import NodeAgent
from floodway.agent.node.node_options import NodeOptions
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.options.values import Target
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.spark.audit.nodes import audit_nodes
from floodway.spark.audit.run import audit
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.log.meta import META
from floodway.spark.query.layout import NodeLayout, RunLayout
from tests.agent.nodes import Up
from tests.agent.window_sums import SIZE_SECONDS, SLIDE_SECONDS
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark

SECOND = 1_000_000
PER_TURN, TURN_SECONDS = 80, 0.1
"""Tuples for every tenth of a second: 1.6 times what a task can work off."""

DIRECT = """
version: 1
name: windows
streams: {{s: {{max_rate: 800, log: {log}}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators:
  work: {{node: A, from: s, run: 'tests.agent.waiting_service:call', cost: 0.002}}
  count: {{node: A, from: work, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}}
outputs: {{q: {{from: count}}}}
"""

BRANCH = """
version: 1
name: window-branch
streams: {{s: {{max_rate: 800, log: {log}}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators:
  work: {{node: A, from: s, run: 'tests.agent.waiting_service:call_1ms', cost: 0.001}}
  more: {{node: A, from: work, run: 'tests.agent.waiting_service:call_1ms', cost: 0.001}}
  count: {{node: A, from: more, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}}
outputs: {{q: {{from: count, weight: 10}}, all: {{from: work}}}}
"""


NODES = """
version: 1
name: window-nodes
streams: {{s: {{max_rate: 800, log: {log}}}}}
nodes: {{A: {{cpu: 1.0}}, B: {{cpu: 1.0}}}}
operators:
  work: {{node: A, from: s, run: 'tests.agent.waiting_service:call', cost: 0.002}}
  more: {{node: B, from: work, run: 'tests.agent.waiting_service:call', cost: 0.002}}
  count: {{node: B, from: more, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}}
outputs: {{q: {{from: count}}}}
"""


PIPELINED = """
version: 1
name: windows-in-a-row
streams: {{s: {{max_rate: 800, log: {log}}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators:
  work: {{node: A, from: s, run: 'tests.agent.waiting_service:call', cost: 0.002}}
  count: {{node: A, from: work, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}}
  sums: {{node: A, from: count, kind: aggregate, window: 20s, slide: 10s, run: 'tests.agent.window_sums:sums', cost: 0}}
outputs: {{q: {{from: sums}}}}
"""

FAN_OUT = """
version: 1
name: windows-side-by-side
streams: {{s: {{max_rate: 800, log: {log}}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators:
  work: {{node: A, from: s, run: 'tests.agent.waiting_service:call', cost: 0.002}}
  count: {{node: A, from: work, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}}
  long: {{node: A, from: work, kind: aggregate, window: 15s, group_by: key, cost: 0}}
outputs: {{q: {{from: count}}, r: {{from: long}}}}
"""

EQUAL_BRANCHES = """
version: 1
name: windows-of-equal-branches
streams: {{s: {{max_rate: 800, log: {log}}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators:
  shared: {{node: A, from: s, cost: 0}}
  one: {{node: A, from: shared, run: 'tests.agent.waiting_service:call_1ms', cost: 0.001}}
  two: {{node: A, from: shared, run: 'tests.agent.waiting_service:call_1ms', cost: 0.001}}
  w1: {{node: A, from: one, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}}
  w2: {{node: A, from: two, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}}
outputs: {{q: {{from: w1}}, r: {{from: w2}}}}
"""


class Input:
    """A stream of which every tenth of a second brings two seconds of event time, however seldom it is asked to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._due = time.monotonic()
        if not (path / META).exists():
            create_log(path, "key int, event_time timestamp", stream="s")

    def append(self) -> None:
        turns = max(0, math.ceil((time.monotonic() - self._due) / TURN_SECONDS))
        self._due += turns * TURN_SECONDS
        count = turns * PER_TURN
        with LogWriter(self.path) as writer:
            first = sum(LogReader(self.path).end_positions().values())
            times = [(first + i) * 2 * SECOND // PER_TURN for i in range(count)]
            stamps = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
            keys = pa.array([i % 3 for i in range(count)], pa.int32())
            writer.append(pa.table({"key": keys, "event_time": stamps}))

    def windows(self, size: int = 10, slide: int = 5) -> dict[tuple[int, int], int]:
        """Tuples by window start in seconds and key, nothing shed."""
        return windowed(((micros(row["event_time"]) // SECOND, row["key"], 1) for row in rows(self.path)), size, slide)


def windowed(counted: Iterable[tuple[int, object, int]], size: int, slide: int) -> dict[tuple[int, int], int]:
    """Sums of (seconds, key, number) by window start in seconds and key."""
    found: Counter[tuple[int, int]] = Counter()
    for second, key, number in counted:
        last = second // slide * slide
        for start in range(last, second - size, -slide):
            found[start, int(str(key))] += number
    return found


def rows(path: Path) -> list[dict[str, object]]:
    reader = LogReader(path)
    ends = reader.end_positions()
    return [row for p, end in ends.items() for batch in reader.read(p, 0, end) for row in batch.to_pylist()]


def micros(value: object) -> int:
    return int(pa.scalar(value, pa.timestamp("us", tz="UTC")).cast(pa.int64()).as_py())


def put_out(root: Path, output: str = "q") -> dict[tuple[int, int], int]:
    """What the run has put out, by window start in seconds and key; no window twice."""
    path = RunLayout(root).root / "outputs" / output
    if not (path / META).exists():
        return {}
    found = [
        ((micros(row["event_time"]) // SECOND, int(str(row["key"]))), int(str(row["count"]))) for row in rows(path)
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def run_until(spark: Session, text: str, root: Path, windows: int, output: str = "q") -> RunReport:
    """Run until so many windows have been put out after something was dropped."""
    source, ended = Input(root / "log"), Event()
    network = parse_network(text.format(log=root / "log"))
    state = root / "state"

    def look(status: Status) -> None:
        source.append()
        lines = Ledger(RunLayout(state).store).lines()
        if any(line.dropped for line in lines) and len(put_out(state, output)) >= windows:
            ended.set()

    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=state, target=Target(2.0), settle_seconds=0.0, progress=look, ended=ended
    )
    report = run_network(network, options, spark)
    assert ended.is_set(), put_out(state, output)
    assert report.differences == ()
    assert audit(network, RunLayout(state)).differences == ()
    return report


@pytest.mark.parametrize(
    "text", [pytest.param(DIRECT, id="one query", marks=pytest.mark.slow), pytest.param(BRANCH, id="two queries")]
)
def test_windows_are_those_of_an_unshed_run_also_after_a_restart(spark: Session, tmp_path: Path, text: str) -> None:
    run_until(spark, text, tmp_path, windows=6)
    before = put_out(tmp_path / "state")
    run_until(spark, text, tmp_path, windows=len(before) + 6)
    found, whole = put_out(tmp_path / "state"), Input(tmp_path / "log").windows()
    assert before.items() <= found.items()
    assert {key: whole[key] for key in found} == found
    assert len(found) < len(whole)
    lines = [line for line in Ledger(RunLayout(tmp_path / "state").store).lines() if line.reason == Reason.SHEDDER]
    assert sum(line.dropped for line in lines) > 0


@pytest.mark.slow
def test_windows_over_windows_are_those_of_an_unshed_run(spark: Session, tmp_path: Path) -> None:
    run_until(spark, PIPELINED, tmp_path, windows=9)
    first = Input(tmp_path / "log").windows()
    whole = windowed(((start, key, count) for (start, key), count in first.items()), SIZE_SECONDS, SLIDE_SECONDS)
    found = put_out(tmp_path / "state")
    assert {key: whole[key] for key in found} == found
    assert len(found) < len(whole)


@pytest.mark.slow
def test_windows_side_by_side_are_those_of_an_unshed_run(spark: Session, tmp_path: Path) -> None:
    run_until(spark, FAN_OUT, tmp_path, windows=9, output="r")
    source = Input(tmp_path / "log")
    for output, whole in (("q", source.windows()), ("r", source.windows(15, 15))):
        found = put_out(tmp_path / "state", output)
        assert found and {key: whole[key] for key in found} == found
        assert len(found) < len(whole)


@pytest.mark.slow
def test_of_equal_branches_one_is_dropped_from(spark: Session, tmp_path: Path) -> None:
    """Half of the tuples of each would be 29% of the windows of each."""
    root = tmp_path / "state"
    source, ended = Input(tmp_path / "log"), Event()
    network = parse_network(EQUAL_BRANCHES.format(log=tmp_path / "log"))

    def look(status: Status) -> None:
        source.append()
        dropped = dropped_at(root, "shared->one", "shared->two")
        if max(dropped) > 2000 and max(len(put_out(root, output)) for output in "qr") >= 12:
            ended.set()

    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=root, target=Target(2.0), settle_seconds=0.0, progress=look, ended=ended
    )
    assert run_network(network, options, spark).differences == () and ended.is_set()
    low, high = sorted(dropped_at(root, "shared->one", "shared->two"))
    assert 3 * low < high
    for output in "qr":
        whole, found = source.windows(), put_out(root, output)
        assert {key: whole[key] for key in found} == found


def test_nodes_put_out_whole_windows_whoever_of_them_sheds(spark: Session, tmp_path: Path) -> None:
    source, state = Input(tmp_path / "log"), tmp_path / "state"
    network = parse_network(NODES.format(log=tmp_path / "log"))
    nodes = [NodeAgent(network, NodeOptions(node=name, root=state, target=Target(4.0))) for name in network.nodes]
    threads = [Thread(target=node.run, args=(spark,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        wait_until(
            lambda: shed_at(state, "A") and len(put_out(state)) >= 6,
            "windows of a node",
            meanwhile=source.append,
            pause_seconds=0.1,
        )
    finally:
        for node in nodes:
            node.stop()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    found, whole = put_out(state), source.windows()
    assert {key: whole[key] for key in found} == found
    assert len(found) < len(whole)
    assert audit_nodes(network, NodeLayout(state)).differences == ()


@pytest.mark.slow
def test_up_puts_out_whole_windows_also_after_nodes_were_killed(tmp_path: Path) -> None:
    """Nodes as processes: what each has dropped is on record, and one that comes back drops the same windows."""
    Input(tmp_path / "log")
    with Up(tmp_path, NODES.format(log=tmp_path / "log"), "--seconds", "3600", "--target", "6") as up:

        def wait_for_windows(count: int) -> None:
            """All nodes run, and so many windows have been put out; what comes, comes from now on."""
            wait_until(lambda: up.check() and all(up.warm(node) for node in "AB"), "all nodes up")
            source = Input(tmp_path / "log")
            wait_until(
                lambda: up.check() and shed_at(up.state, "A") and len(put_out(up.state)) >= count,
                f"{count} windows",
                meanwhile=source.append,
                told=lambda: put_out(up.state),
                pause_seconds=0.1,
            )

        wait_for_windows(6)
        before = put_out(up.state)
        for node in "AB":
            up.kill_and_restart(node)
        wait_for_windows(len(put_out(up.state)) + 6)
        report = up.finish()
    assert report["reconciled"], report["differences"]
    assert min(report["restarts"][node] for node in "AB") >= 1
    found, whole = put_out(up.state), Input(tmp_path / "log").windows()
    assert before.items() <= found.items()
    assert {key: whole[key] for key in found} == found
    assert len(found) < len(whole)


def shed_at(state: Path, node: str) -> int:
    """Tuples that a node has dropped."""
    lines = Ledger(NodeLayout(state).own(node).store).lines()
    return sum(line.dropped for line in lines if line.reason == Reason.SHEDDER)


def dropped_at(root: Path, *places: str) -> list[int]:
    """Tuples that were dropped at each of these places."""
    lines = [line for line in Ledger(RunLayout(root).store).lines() if line.reason == Reason.SHEDDER]
    return [sum(line.dropped for line in lines if line.at == place) for place in places]
