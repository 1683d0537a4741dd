"""Nodes and their coordinator on machines of their own, whose clocks are set and drift while they shed.

Each is a process of `floodway node` with a clock of its own (`set_clock.py`), and signs what it says to the others; the
input has the stamps of the first node's machine. At every point one clock is set by up to a day, in some with all
processes killed right after; judged as a driver's clock is (`driver_clocks.py`), at both nodes, and then by the audit
over all ledgers.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from floodway.agent.wire.messages import COORDINATOR
from floodway.agent.wire.ports import free_ports
from floodway.experiments.chaos.clocks import set_clock
from floodway.experiments.chaos.clocks.driver_clocks import Query, set_clocks
from floodway.experiments.chaos.clocks.plane_clocks import MOST_DRIFT_PPM, all_steps
from floodway.experiments.chaos.kills.input_feed import STREAM, LogFeeding
from floodway.experiments.chaos.kills.node_kills import NodesJob
from floodway.experiments.chaos.kills.processes import CommandJob, Job
from floodway.experiments.chaos.result import FaultResult, JobFindings, Trial
from floodway.spark.query.journal import committed_offsets

NODES = ("A", "B")
TUPLES_A_SECOND = 300
MOST_WAITING = 300
"""What waits is one batch when all is kept: some seconds of work."""
NETWORK = """
version: 1
name: chaos-nodes
streams: {{s: {{max_rate: 300, log: "{log}", schema: value bigint}}}}
nodes: {{A: {{cpu: 1.0}}, B: {{cpu: 1.0}}}}
operators:
  a: {{node: A, from: s, kind: delay, cost: 0.008}}
  b: {{node: B, from: a, kind: delay, cost: 0.006}}
outputs: {{q: {{from: b}}}}
"""
"""B keeps up with A also when nothing is dropped: else its batches would grow and grow."""


def faults(trial: Trial) -> FaultResult:
    """Every machine in turn, every step before any comes again."""
    result = FaultResult("node-clocks", detail={"points": []})
    if (missing := set_clock.missing()) is not None:
        result.untried = missing
        return result
    rng = trial.rng("node-clocks")
    clocks = {
        name: set_clock.SetClock(trial.folder / "clocks" / name, rng.randint(-MOST_DRIFT_PPM, MOST_DRIFT_PPM))
        for name in rng.sample((*NODES, COORDINATOR), len(NODES) + 1)
    }
    turns = [list(clocks)[number % len(clocks)] for number in range(trial.points)]
    settings = [(name, clocks[name], step) for name, step in zip(turns, all_steps(rng, trial.points), strict=True)]
    with LogFeeding(
        trial.folder / "input",
        clock_us=clocks[NODES[0]].now_us,
        tuples_per_second=TUPLES_A_SECOND,
        most_waiting=MOST_WAITING,
    ) as feeding:
        job = ClockedNodes(trial.folder, clocks, feeding)
        set_clocks("nodes", job, job.queries(), settings, rng, trial, result)
    return result


class ClockedNodes(NodesJob):
    """The nodes of `up` without their supervisor, each with its clock."""

    def __init__(self, folder: Path, clocks: Mapping[str, set_clock.SetClock], feeding: LogFeeding) -> None:
        super().__init__(folder, NETWORK.format(log=feeding.address))
        self._clocks = clocks
        self._feeding = feeding
        feeding.consumed = self._consumed
        self._key = folder / "key"
        self._key.touch(mode=0o600)
        self._key.write_text(secrets.token_hex(32))

    def queries(self) -> list[Query]:
        """Those of both nodes."""
        return [Query(self._layout.own(node).store, partial(self.committed, node)) for node in NODES]

    def start(self) -> Job:
        """Run for as long as it takes, under load."""
        self._feeding.flow(True)
        ports = dict(zip(self._clocks, free_ports(len(self._clocks)), strict=True))
        urls = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in ports.items())
        return NodeProcesses({name: self._process(name, urls) for name in ports}, self._folder / "errors.txt")

    def look(self) -> JobFindings:
        """See `NodesJob`, whose last run has the true time at all nodes: one more step."""
        self._feeding.flow(False)
        return super().look()

    def _consumed(self) -> int:
        offset = committed_offsets(self._checkpoint("A")).get(STREAM)
        return 0 if offset is None else sum(offset.end.values())

    def _process(self, name: str, urls: str) -> CommandJob:
        command = ["-m", "floodway.cli.main", "node", str(self._file), "--state", str(self._layout.root)]
        command += ["--coordinator"] if name == COORDINATOR else ["--node", name, "--target", "6s"]
        command += ["--control", "coordinator", "--urls", urls, "--key-file", str(self._key)]
        return CommandJob(command, self._folder / "errors.txt", variables=self._clocks[name].variables)


class NodeProcesses(Job):
    """Several commands that are one job: it runs as long as all of them do."""

    def __init__(self, jobs: Mapping[str, CommandJob], errors: Path) -> None:
        super().__init__(errors)
        self._jobs = jobs

    @property
    def pid(self) -> int:
        """That of the first."""
        return next(iter(self._jobs.values())).pid

    @property
    def running(self) -> bool:
        return all(job.running for job in self._jobs.values())

    @property
    def exit_code(self) -> int | None:
        """That of the first which has ended."""
        return next((job.exit_code for job in self._jobs.values() if not job.running), None)

    def members(self) -> dict[int, str]:
        return {pid: command for job in self._jobs.values() for pid, command in job.members().items()}

    def ended(self, seconds: float = 0.0) -> bool:
        waited = [job.ended(seconds) for job in self._jobs.values()]
        return all(waited)
