"""One job of each kind on one real Spark session: fed, overloaded on paper, switched as an operator would, ended.

The load is declared, not worked: 50 ms of CPU per tuple. So the machine stays idle, and every kind has to drop.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from floodway.agent.loop.run_files import save_network
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.agent.node.node import NodeAgent
from floodway.agent.node.node_options import NodeOptions
from floodway.agent.wire.ports import free_ports
from floodway.buffering.options import Manager
from floodway.contracts.federation_file import parse_federation
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.options.values import Target
from floodway.job.places import JobPlace
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.spark.log import LogWriter, create_log
from floodway.spark.log.profiles import DEFAULT_SCHEMA, TupleMaker
from tests.agent.federation_on_spark import PACE, Running, participant_on, wait
from tests.spark.shedding import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodway.spark.session.session import Session

TUPLES = 100
NETWORK = """
version: 1
name: contract
streams: {{s: {{max_rate: 1000, deadline: 1s, log: {log}}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{work: {{node: A, from: s, cost: 0.05, run: "tests.agent.jobs:unchanged"}}}}
outputs: {{q: {{from: work}}}}
"""
FEDERATION = """
version: 1
participants:
  A: {{url: "http://127.0.0.1:{port}", cpu: 1.0}}
  B: {{url: "http://127.0.0.1:{other}", cpu: 1.0}}
contracts:
  A->B: {{price: 2.0}}
fragments:
  f: {{owner: A, run: burn, logs: {{input: log}}, parameters: {{milliseconds: 0.0}}, cost: 0.05}}
"""
CATALOGUE = "tests.agent.federation_catalogue"


def unchanged(df: DataFrame) -> DataFrame:
    """An operator that costs nothing, whatever the network file says."""
    return df


class Job:
    """A job that runs: where its state is, how it gets more tuples, what has ended it, and how it is audited."""

    def __init__(
        self,
        folder: Path,
        feed: Callable[[], None],
        failed: Sequence[BaseException] = (),
        audited: Sequence[Path | str] | None = None,
    ) -> None:
        self.folder = folder
        self.feed = feed
        self._failed = failed
        self.audited = [str(word) for word in audited or (folder,)]
        """What follows `floodway audit`."""

    @property
    def place(self) -> JobPlace:
        return JobPlace.of(self.folder)

    def lines(self) -> list[LedgerLine]:
        return [line for store in self.place.records() for line in Ledger(store).read()]

    def status(self) -> Status:
        (status,) = self.place.statuses().values()
        return status

    def feed_until(self, what: str, condition: Callable[[list[LedgerLine]], bool]) -> None:
        def fed() -> bool:
            assert not self._failed, self._failed
            self.feed()
            return condition(self.lines())

        wait(what, fed, self.place.statuses)

    def status_when(self, what: str, condition: Callable[[Status], bool]) -> Status:
        """The first status, while it is fed, of which the condition holds: it is written after the ledger."""
        found: list[Status] = []

        def told(_: list[LedgerLine]) -> bool:
            found.append(self.status())
            return condition(found[-1])

        self.feed_until(what, told)
        return found[-1]


def log_writer(log: Path, schema: str) -> tuple[LogWriter, Callable[[], None]]:
    create_log(log, schema, stream="s")
    writer, maker = LogWriter(log), TupleMaker(schema, np.random.default_rng(7))

    def feed() -> None:
        now_us = time.time_ns() // 1000
        writer.append(maker.make(TUPLES, start_us=now_us - 1000, end_us=now_us))

    return writer, feed


@contextmanager
def shed_job(spark: Session, root: Path) -> Iterator[Job]:
    stream = Stream(spark, root, "id long", lambda rows, shed: rows.transform(shed), keeps=[0.5])
    stream.start()
    numbers = iter(range(10**9))

    def feed() -> None:
        stream.feed(json.dumps({"id": next(numbers)}) for _ in range(TUPLES))

    try:
        yield Job(stream.shed.files.folder, feed)
    finally:
        stream.stop()


class _OverError(Exception):
    """Ends a run before its time."""


@contextmanager
def run_job(spark: Session, root: Path) -> Iterator[Job]:
    ended = threading.Event()

    def progress(status: Status) -> None:
        if ended.is_set():
            raise _OverError

    writer, feed = log_writer(root / "log", DEFAULT_SCHEMA)
    options = RunOptions(
        seconds=3600.0, root=root / "state", mode="enforce", target=Target(2.0), progress=progress, replan=False
    )

    def run(network: Network) -> None:
        try:
            run_network(network, options, spark)
        except _OverError:
            return

    with writer, _thread(lambda: run(parse_network(NETWORK.format(log=root / "log"))), ended.set) as failed:
        yield Job(root / "state", feed, failed)


@contextmanager
def node_job(spark: Session, root: Path, buffer: Manager | None = None) -> Iterator[Job]:
    writer, feed = log_writer(root / "log", DEFAULT_SCHEMA)
    options = NodeOptions(
        node="A", root=root / "state", mode="enforce", target=Target(2.0), replan=False, buffer=buffer
    )
    network = parse_network(NETWORK.format(log=root / "log"))
    agent = NodeAgent(network, options)
    save_network(root / "state", network)  # as the command does
    with writer, _thread(lambda: agent.run(spark), agent.stop) as failed:
        yield Job(root / "state" / "nodes" / "A", feed, failed, audited=[root / "state"])


@contextmanager
def buffered_node_job(spark: Session, root: Path) -> Iterator[Job]:
    with node_job(spark, root, buffer="cwb") as job:
        yield job


@contextmanager
def participant_job(spark: Session, root: Path) -> Iterator[Job]:
    writer, feed = log_writer(root / "shared" / "log", "id bigint")
    port, other = free_ports(2)
    text = FEDERATION.format(port=port, other=other)
    federation = parse_federation(text)  # B never runs: nobody takes the load
    (root / "federation.yaml").write_text(text)
    pace = replace(PACE, patience=0.0)
    agent = participant_on(spark, federation, "A", root, CATALOGUE, pace=pace, mode="enforce")
    running = Running(agent)
    try:
        with writer:
            yield Job(root / "A", feed, audited=[root / "federation.yaml", "--shared", root / "shared"])
    finally:
        running.close()


@contextmanager
def _thread(work: Callable[[], object], stop: Callable[[], None]) -> Iterator[Sequence[BaseException]]:
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield failed
    finally:
        stop()
        thread.join()
    assert not failed, failed
