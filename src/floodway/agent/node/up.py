"""All nodes of a network on this machine, each a process, under one supervisor: `floodway up`.

The supervisor feeds streams that have no log of their own, starts the nodes (and the coordinator, if it is to plan),
restarts what dies, and after the given time lets the nodes finish what waits, ends them and reports.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodway.agent.loop.feeds import Feed, Feeder
from floodway.agent.loop.run_files import save_network
from floodway.agent.loop.steering_loop import fragments_of
from floodway.agent.node.node_options import Control
from floodway.agent.node.nodes_report import NodesReport, report_nodes
from floodway.agent.node.supervisor import ProcessSpec, Supervisor
from floodway.agent.planes.plane import check_plane
from floodway.agent.wire.messages import COORDINATOR
from floodway.agent.wire.ports import free_ports
from floodway.errors import FloodwayError
from floodway.job.options.flags import BUFFER, CONTROL, DROPS, PLANNING, SPARK, arguments
from floodway.job.options.options import JobOptions
from floodway.job.status.status import ProcessPart, Status, read_status
from floodway.network.model import Network
from floodway.spark.query.layout import NodeLayout
from floodway.spark.query.logs import stream_arrivals

POLL_SECONDS = 0.25
START_SECONDS = 400.0
MOST_EARLY_RESTARTS = 4
DRAIN_TARGETS = 3.0


class UpError(FloodwayError):
    """The nodes did not come up; the end of what the culprit printed is in the message."""


@dataclass(frozen=True, kw_only=True)
class UpOptions(JobOptions):
    """A job's options, which every node gets. `settle_seconds` at the start count for the ledgers only.

    `peers` replaces the addresses that nodes are given for each other (tests cut links by it); `progress` gets the
    latest status of every node. Once `ended` is set, the run comes to its end early: it lets the nodes finish what
    waits, ends them and reports as ever. `links` as in `NodeOptions`.
    """

    network_file: Path
    root: Path
    seconds: float
    control: Control = "dfit"
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    settle_seconds: float = 10.0
    peers: Mapping[str, str] = field(default_factory=dict)
    key_file: Path | None = None
    links: str | None = None
    progress: Callable[[Mapping[str, Status | None]], None] = lambda statuses: None
    ended: threading.Event = field(default_factory=threading.Event)


def bring_up(network: Network, options: UpOptions) -> NodesReport:
    """Run all nodes for `options.seconds` seconds after the last of them is ready, and report."""
    return _Up(network, options).to_end()


class _Up:
    def __init__(self, network: Network, options: UpOptions) -> None:
        network = options.checked(network)
        check_plane(options.control, network, options)
        self.network = network
        self.options = options
        self.files = NodeLayout(options.root)
        if options.links is not None:
            self.files.choose_links(options.links, network)  # the nodes find it in the folder
        save_network(options.root, network)
        self.target = options.target_for(network).seconds
        fragments_of(network)  # refuses what no node could run before any process starts
        used = {operator.node for operator in network.operators.values()}
        self.nodes = [node for node in network.nodes if node in used]
        agents = [*self.nodes, *([COORDINATOR] if options.control == "coordinator" else [])]
        self.urls = dict(zip(agents, map("http://127.0.0.1:{}".format, free_ports(len(agents))), strict=True))
        self.supervisor = Supervisor([self._program(name) for name in agents])

    def to_end(self) -> NodesReport:
        with Feeder(self.network, self.files.shared, self.options.feeds) as feeder, self.supervisor:
            self.supervisor.start()
            self._await_nodes()
            feeder.start()
            logs = stream_arrivals(self.network, self.files.shared)
            self._keep_up(feeder, self.options.settle_seconds)
            began, before = time.time(), logs.totals()
            self._keep_up(feeder, self.options.seconds - self.options.settle_seconds)
            ended, after = time.time(), logs.totals()
            feeder.stop()
            self._drain()
        rates = {name: (after[name] - before[name]) / max(ended - began, 1e-3) for name in after}
        return report_nodes(
            self.network,
            self.files,
            control=self.options.control,
            target_seconds=self.target,
            rates=rates,
            window=(began, ended),
            restarts=self.supervisor.restarts,
        )

    def statuses(self) -> dict[str, Status | None]:
        """The latest status of every node; None for one that has written none since it was started."""
        found = {node: read_status(self.files.own(node).store) for node in self.nodes}
        return {
            node: status if status and status.process and status.process.pid == self.supervisor.pid(node) else None
            for node, status in found.items()
        }

    def _processes(self) -> dict[str, ProcessPart | None]:
        return {node: status.process if status else None for node, status in self.statuses().items()}

    def _keep_up(self, feeder: Feeder, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.options.ended.is_set():
            self.supervisor.poll()
            feeder.check()
            self.options.progress(self.statuses())
            self.options.ended.wait(POLL_SECONDS)

    def _await_nodes(self) -> None:
        """Until every node has processed a first batch: it starts workers and compiles plans, and takes its time."""
        end = time.monotonic() + START_SECONDS
        while not self.options.ended.is_set() and not all(one and one.warm for one in self._processes().values()):
            self.supervisor.poll()
            culprits = [name for name, count in self.supervisor.restarts.items() if count > MOST_EARLY_RESTARTS]
            late = [name for name, one in self._processes().items() if not (one and one.warm)]
            if culprits or (late and time.monotonic() > end):
                name = (culprits or late)[0]
                known = self._processes().get(name)
                missing = known.waiting_for if known else ()
                words = f"it waits for {', '.join(missing)}" if missing else self.supervisor.last_words(name)
                raise UpError(
                    f"{name} did not come up: {words or 'it printed nothing'}",
                    hint=f"See {self.files.own(name).root / 'process.log'}",
                )
            self.options.progress(self.statuses())
            self.options.ended.wait(POLL_SECONDS)

    def _drain(self) -> None:
        """Let the nodes finish what waits, as long as protected jobs need; more is left to a restart."""
        end = time.monotonic() + DRAIN_TARGETS * self.target
        quiet = 0
        while quiet < 3 and time.monotonic() < end:
            # What one node has just written the next may not have seen: quiet for a while is idle.
            quiet = quiet + 1 if all(one and one.idle for one in self._processes().values()) else 0
            self.supervisor.poll()
            time.sleep(2 * POLL_SECONDS)

    def _program(self, name: str) -> ProcessSpec:
        options = self.options
        command = [*(sys.executable, "-m", "floodway.cli.main", "node", str(options.network_file))]
        command += ["--coordinator"] if name == COORDINATOR else ["--node", name]
        command += ["--state", str(options.root), "--control", options.control]
        command += ["--listen", self.urls[name].removeprefix("http://"), "--parent", str(os.getpid())]
        peers = {**self.urls, **options.peers}
        command += ["--urls", ",".join(f"{peer}={url}" for peer, url in peers.items())]
        command += [] if options.key_file is None else ["--key-file", str(options.key_file)]
        panels = (PLANNING,) if name == COORDINATOR else (CONTROL, PLANNING, DROPS, BUFFER, SPARK)
        command += arguments(options, panels=panels)
        return ProcessSpec(name, tuple(command), self.files.own(name).root / "process.log")
