"""A network whose nodes are processes, `floodway up`: a node, the coordinator or the supervisor is killed.

Judged by the audit over all ledgers: what one node delivered to a link is what its log holds and what the next was
offered, or waits; and by the outputs, whose tuples are there once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from floodway.experiments.chaos.kills.kills import (
    SPARK_HOLD_SECONDS,
    SPARK_SETTINGS,
    KillPhase,
    campaign,
    last_committed,
)
from floodway.experiments.chaos.kills.processes import CommandJob, Job
from floodway.experiments.chaos.result import FaultResult, JobFindings, Trial
from floodway.network.file import load_network
from floodway.spark.audit.nodes import audit_nodes
from floodway.spark.log import LogReader
from floodway.spark.query.layout import NodeLayout

NETWORK = """
version: 1
name: chaos-nodes
streams: {s: {max_rate: 300}}
nodes: {A: {cpu: 1.0}, B: {cpu: 1.0}}
operators:
  a: {node: A, from: s, kind: delay, cost: 0.004}
  b: {node: B, from: a, kind: delay, cost: 0.008}
outputs: {q: {from: b}}
"""


def kills(trial: Trial) -> FaultResult:
    """Nodes, coordinator and supervisor in turn."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    targets = ("A", "B", "coordinator", "supervisor", "group")
    job = NodesJob(trial.folder)
    return campaign("node-kills", job, targets, trial, stop_every=2, hold_seconds=SPARK_HOLD_SECONDS)


class _NodesProcess(CommandJob):
    """`floodway up`, whose first process is the supervisor; the others are found by the files they leave."""

    def __init__(self, arguments: list[str], errors: Path, layout: NodeLayout) -> None:
        self._layout = layout
        super().__init__(arguments, errors)

    def members(self) -> dict[int, str]:
        """Also those in sessions of their own: the supervisor gives one to every child."""
        found = super().members()
        mark = str(self._layout.root)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if mark in command:
                    found[int(entry.name)] = command
        return found

    def find(self, target: str) -> list[int]:
        """The process of a node, of the coordinator, or the supervisor; what a file names may have ended since."""
        if target in ("supervisor", "group"):
            return super().find("driver" if target == "supervisor" else target)
        try:
            pid = int(json.loads(self._layout.agent(target).read_text())["pid"])
        except (OSError, ValueError, KeyError):
            return []
        return [pid] if pid in self.members() else []


class NodesJob:
    """One shared folder, and the runs of `up` on it."""

    def __init__(self, folder: Path, network: str = NETWORK) -> None:
        self._folder = folder
        self._file = folder / "network.yaml"
        self._file.write_text(network)
        self._layout = NodeLayout(folder / "state")

    def start(self) -> Job:
        """Run for as long as it takes."""
        return self._started("100000s")

    def _started(self, seconds: str) -> _NodesProcess:
        command = ["-m", "floodway.cli.main", "up", str(self._file), "--state", str(self._layout.root), "--json"]
        command += ["--seconds", seconds, "--target", "6s", "--control", "coordinator", "--settle", "0s"]
        command += [part for name, value in SPARK_SETTINGS.items() for part in ("--conf", f"{name}={value}")]
        return _NodesProcess(command, self._folder / "errors.txt", self._layout)

    def phases(self) -> Mapping[str, KillPhase]:
        """Cuts, sinks, ledgers and commits of both nodes."""
        found: dict[str, KillPhase] = {}
        for node in ("A", "B"):
            found[f"cut of {node}"] = KillPhase(self._checkpoint(node) / "offsets", str.isdecimal)
            found[f"ledger of {node}"] = KillPhase(self._layout.own(node).root / "ledger")
            found[f"commit of {node}"] = KillPhase(self._checkpoint(node) / "commits", str.isdecimal)
        found["link"] = KillPhase(self._layout.shared.root / "links" / "a--b" / "p0")
        return found

    def progress(self) -> int:
        """Batches of the last node, which needs all before it."""
        return self.committed("B")

    def committed(self, node: str) -> int:
        """The last batch that a node has committed."""
        return last_committed(self._checkpoint(node))

    def _checkpoint(self, node: str) -> Path:
        return self._layout.own(node).root / "checkpoints" / f"{node}.main"

    def look(self) -> JobFindings:
        """The audit over all ledgers, and every identity once in link and output."""
        network = load_network(self._file)
        audits = (audit_nodes(network, self._layout), audit_nodes(network, self._layout, full=True))
        found = JobFindings(differences=list(dict.fromkeys(text for one in audits for text in one.differences)))
        for log in ("links/a--b", "outputs/q"):
            reader = LogReader(self._layout.root / log)
            ids = Counter(
                number
                for part, end in reader.end_positions().items()
                for batch in reader.read(part, 0, end)
                for number in batch.column("origin_id").to_pylist()
            )
            found.doubled += sum(count - 1 for count in ids.values())
        return found

    def finish(self) -> JobFindings:
        """Run for a moment and end well; what waits may wait."""
        with self._started("10s") as job:
            if not job.ended(1200.0) or job.exit_code:
                return JobFindings(differences=[f"undisturbed it did not end well: {job.said()}"])
        return self.look()
