"""On real Spark: the intrusion query finds what plain Python finds, and a fragment that moves finds it too."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from examples.intrusion_logs import SCHEMA, generated
from floodway.agent.federation.leases import LeaseStore
from floodway.agent.wire.ports import free_ports
from floodway.contracts.federation_file import Federation, FragmentSpec, parse_federation
from floodway.job.decision import write_mode
from floodway.job.ledger.ledger import Ledger
from floodway.job.store.store import LocalStore
from floodway.spark.audit.run import audit_federation
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.query.catalogue import load_catalogue
from floodway.spark.query.journal import committed_batches
from floodway.spark.query.moving_fragment import MovingLayout, moving_query
from floodway.spark.query.stream_run import BatchError
from floodway.spark.source import register
from tests.agent.federation_on_spark import PACE, Running, participant_on, wait
from tests.oracles import intrusion
from tests.oracles.intrusion import Connection
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOGUE = "examples.intrusion_catalogue"
FEDERATION = """
version: 1
participants:
  A: {{url: "http://127.0.0.1:{a}", cpu: 1.0}}
  B: {{url: "http://127.0.0.1:{b}", cpu: 4.0}}
contracts:
  A->B: {{price: 2.0}}
fragments:
  active: {{owner: A, run: active-sources, logs: {{connections: logs/c}}, parameters: {{at_least: 5}}, cost: 0.01}}
"""


def connections(table: pa.Table) -> list[Connection]:
    times = table.column("at").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    columns = [table.column(name).to_pylist() for name in ("source", "destination", "protocol")]
    return [Connection(at / 1e6, *rest) for at, *rest in zip(times, *columns, strict=True)]


def results(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    reader = LogReader(path)
    end = reader.end_positions()[0]
    rows = [row for batch in reader.read(0, 0, end) for row in batch.to_pylist()]
    return [(int(row["window_start"].timestamp()), *(row[name] for name in columns)) for row in rows]


@pytest.mark.spark
def test_the_entries_find_what_plain_python_finds(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    table = generated(11, seconds=400.0, rate=15.0)
    create_log(tmp_path / "log", SCHEMA)
    with LogWriter(tmp_path / "log") as writer:
        for start in range(0, table.num_rows, 1500):
            writer.append(table.slice(start, 1500))
    all_of_it = connections(table)
    catalogue = load_catalogue(CATALOGUE)
    expected: dict[str, tuple[dict[str, int], tuple[str, ...], set[Any]]] = {
        "active-sources": ({"at_least": 20}, ("source", "connections"), intrusion.active(all_of_it, 60, 20)),
        "many-protocols": ({"at_least": 4}, ("source", "protocols"), intrusion.protocols(all_of_it, 60, 4)),
        "active-clusters": (
            {"at_least": 10, "sources": 2},
            ("cluster", "sources", "connections"),
            intrusion.clusters(all_of_it, 60, 10, 2, 3),
        ),
        "suspects": (
            {"connections": 10, "protocols": 4},
            ("source", "connections", "protocols"),
            intrusion.suspects(all_of_it, 60, 10, 4),
        ),
    }
    for entry, (parameters, columns, wanted) in expected.items():
        spec = FragmentSpec(entry, "A", entry, {"connections": "log"}, entry, parameters)
        moving_query(spark, spec, catalogue, MovingLayout.of(tmp_path, entry)).process_available()
        audit = audit_federation(Federation("test", {}, (), {entry: spec}), tmp_path)[entry]
        assert audit.differences == () and audit.tuples_offered == table.num_rows
        found = results(tmp_path / entry, *columns)
        assert wanted, f"the trace is too tame for {entry}"
        assert len(found) == len(set(found))
        # A chained aggregate hears of a window's end one window later than the first.
        last = max(row[0] for row in wanted) if entry == "active-clusters" else None
        assert {row for row in wanted if row[0] != last} <= set(found) <= wanted, entry


@pytest.mark.spark
def test_a_query_that_lost_its_lease_writes_nothing_and_ends(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    store = LeaseStore(tmp_path)
    lease = store.claim("active", "B", after=0, now=0.0)
    store.claim("active", "A", after=1, now=99.0)
    create_log(tmp_path / "log", SCHEMA)
    with LogWriter(tmp_path / "log") as writer:
        writer.append(generated(1, seconds=200.0, rate=2.0))
    spec = FragmentSpec("active", "A", "active-sources", {"connections": "log"}, "out")
    layout = MovingLayout.of(tmp_path, "active")
    fence = partial(store.check, lease, now=100.0)
    query = moving_query(spark, spec, load_catalogue(CATALOGUE), layout, fence=fence)
    with suppress(BatchError):  # it may be over before it counts as started
        query.start(wait_seconds=PATIENCE_SECONDS)
        wait("its end", lambda: query.failure() is not None, lambda: "it still runs")
        assert "lost fragment active to A" in str(query.failure())
    assert results(tmp_path / "out") == [] and not committed_batches(query.checkpoint)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.spark
def test_a_moved_fragment_goes_on_where_it_was(spark: SparkSession, tmp_path: Path, opened: ExitStack) -> None:
    a_port, b_port = free_ports(2)
    federation = parse_federation(FEDERATION.format(a=a_port, b=b_port))
    shared = tmp_path / "shared"
    table = generated(5, seconds=3000.0, rate=10.0)  # more than a test waits for at 80 tuples/s
    half = 1500
    create_log(shared / "logs" / "c", SCHEMA)
    with LogWriter(shared / "logs" / "c") as writer:
        writer.append(table.slice(0, half))
    agents = {name: participant_on(spark, federation, name, tmp_path, CATALOGUE) for name in "AB"}
    running = Running(*agents.values())
    opened.callback(running.close)
    told = agents["A"].status
    output = shared / "outputs" / "active"

    # Half of it was there before. Then 80 tuples/s come, 0.8 CPUs at the cost that the file declares: A gives the
    # fragment away in the middle of a window, which must live through the move.
    wait("a first result", lambda: (output / "meta.json").exists() and len(results(output, "source")) > 0, told)
    with LogWriter(shared / "logs" / "c") as writer:
        at, began = half, time.monotonic()

        def more() -> None:
            nonlocal at
            due = half + int(80 * (time.monotonic() - began))  # however seldom this comes to run
            writer.append(table.slice(at, due - at))
            at = due

        def moved() -> bool:
            return "active" in agents["B"].machine.holdings

        wait_until(moved, "the move", meanwhile=more, told=told, pause_seconds=0.25)
        before = len(results(output, "source"))
        writer.append(table.slice(at, half))
    table = table.slice(0, at + half)
    wanted = intrusion.active(connections(table), 60, 5)
    wait("all results", lambda: len(results(output, "source")) >= len(wanted), agents["B"].status)
    assert before < len(wanted), "everything was found before the move: it shows nothing"
    found = results(output, "source", "connections")
    assert sorted(found) == sorted(wanted)

    # The last tuples are in windows that have not ended: no result waits for their batch.
    def offered() -> int:
        return audit_federation(federation, shared)["active"].tuples_offered

    wait("the last batch", lambda: offered() >= table.num_rows, agents["B"].status)
    audit = audit_federation(federation, shared)["active"]
    assert audit.differences == () and audit.tuples_offered == table.num_rows

    wait("a payment", lambda: any(one.agreed for one in agents["A"].journal.entries()), told)
    (move,) = agents["A"].journal.moves()
    assert move.state == "done" and agents["A"].machine.holdings == {}
    assert set(move.seconds) == {"prepare", "stop", "hand_over", "start"} and min(move.seconds.values()) >= 0
    print("move took", {phase: round(taken, 3) for phase, taken in move.seconds.items()})


@pytest.mark.spark
def test_what_nobody_takes_is_dropped_and_the_kill_switch_ends_it(
    spark: SparkSession, tmp_path: Path, opened: ExitStack
) -> None:
    a_port, b_port = free_ports(2)
    federation = parse_federation(FEDERATION.format(a=a_port, b=b_port).replace("cost: 0.01", "cost: 1.0"))
    shared, ledger = tmp_path / "shared", Ledger(MovingLayout.of(tmp_path / "shared", "active").store)
    table = generated(7, seconds=300.0, rate=10.0)
    create_log(shared / "logs" / "c", SCHEMA)
    pace = replace(PACE, patience=0.0)
    agent = participant_on(spark, federation, "A", tmp_path, CATALOGUE, pace=pace, mode="enforce")
    opened.callback(Running(agent).close)

    def dropped(mode: str) -> int:
        return sum(line.dropped for line in ledger.read() if line.mode == mode)

    def offered(mode: str) -> int:
        return sum(line.offered for line in ledger.read() if line.mode == mode)

    with LogWriter(shared / "logs" / "c") as writer, feeding(writer, table):
        # Whatever the rate is, at a CPU-second per tuple it is too much for A, and B does not run.
        wait("drops", lambda: dropped("enforce") > 0, agent.status)
        write_mode(LocalStore(agent.folder), "off")
        wait("batches in mode off", lambda: offered("off") > 0, agent.status)
    opened.close()  # the audit is of a job that has ended
    assert dropped("off") == 0
    assert audit_federation(federation, shared)["active"].differences == ()


@contextmanager
def feeding(writer: LogWriter, table: pa.Table) -> Iterator[None]:
    """Twenty tuples at a time, for as long as the block takes."""
    done = threading.Event()

    def feed() -> None:
        at = 0
        while not done.wait(0.2):
            writer.append(table.slice(at % table.num_rows, 20))
            at += 20

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
