"""One node of a network as a process of its own: its Spark application, its loop, its control plane, its HTTP API.

The node runs its part of the network between logs: it reads streams and the links that other nodes write, and writes
links and outputs, each log having one writer. It sheds at its own inputs, links included. What it sheds for others
comes from its control plane, which is asked for a planner at every tick and never waited for: a node whose peers are
silent goes on with the last plan it has.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from floodway.agent.loop.batches import BatchFigures, BatchLog
from floodway.agent.loop.loop import SteeringLoop, fragments_of
from floodway.agent.loop.stages import stages
from floodway.agent.loop.steering import FragmentBatch, source_work
from floodway.agent.node.api import node_routes
from floodway.agent.node.metrics import FolderMetrics, node_metrics_routes
from floodway.agent.node.options import NodeOptions, spark_master, spark_settings
from floodway.agent.node.steering import NodeSteering
from floodway.agent.planes.plane import ControlPlane, make_control_plane
from floodway.agent.wire.server import HttpServer
from floodway.errors import PlanningError
from floodway.job.state_files import write_atomically, write_mode
from floodway.network.model import Network
from floodway.spark.query.fragment_query import BatchReport
from floodway.spark.query.node_layout import NodeLayout
from floodway.spark.query.retaining import node_retaining, retention_of
from floodway.spark.session.session import Session, spark_session
from floodway.spark.source import register

TICK_SECONDS = 0.2


class NodeAgent:
    """Runs one node until its time is over or `stop` is called; `status` may be asked from any thread."""

    def __init__(self, network: Network, options: NodeOptions) -> None:
        network = options.checked(network)
        self.network = network
        self.options = options
        self.files = NodeLayout(options.root)
        if options.links is not None:
            self.files.choose_links(options.links, network)
        self.part = self.files.part(network, options.node)
        self.layout = self.files.own(options.node)
        self.target = options.target_for(network).seconds
        self.plane: ControlPlane = make_control_plane(
            options.control,
            network,
            options.node,
            options.security,
            options.urls,
            self.files.control(options.node),
            planner=options.planner,
            objective=options.objective,
            epsilon=options.epsilon,
            headroom=options.headroom,
        )
        self._steering = NodeSteering(
            network,
            self.part,
            self.plane.planner,
            target_seconds=self.target,
            quantile=options.target_for(network).quantile,
            controller=options.controller,
            drop=options.drop,
            share_factor=self.plane.share_factor,
        )
        self._places = stages(fragments_of(network))
        self._figures = BatchLog(self.layout.root)
        self._refused: Counter[str] = Counter()
        self._ended = threading.Event()
        self._status: dict[str, Any] = {"name": self.part.name, "node": options.node, "phase": "starting"}
        self._status["pid"] = os.getpid()

    def status(self) -> dict[str, Any]:
        """The latest figures, with those of the control plane and what the HTTP API has refused, by reason."""
        control = {"kind": self.options.control, **self.plane.status()}
        return {**self._status, "refused": dict(self._refused), "control": control}

    def stop(self) -> None:
        """Ask the node to end: between two batches, if it comes to one in time."""
        self._ended.set()

    def run(self) -> None:
        """Serve, process and steer until the end. A failed query raises; a restart continues where it ended."""
        cpu = {name: node.cpu for name, node in self.network.nodes.items()}
        metrics = FolderMetrics(self.options.node, self.layout.root, cpu)
        shown = node_routes(lambda: {**self.status(), **metrics.told()}, self.network)
        routes = [*self.plane.routes(), *shown, *node_metrics_routes(metrics, self.status)]
        server = HttpServer(routes, host=self.options.host, port=self.options.port, security=self.options.security)
        self._refused = server.refused
        server.start()
        try:
            self._say("starting", url=server.url)
            self._introduce(server.url)
            self.plane.start()
            self._with_spark()
        finally:
            self.plane.stop()
            server.stop()
            self._say("ended")

    def _with_spark(self) -> None:
        node = self.network.nodes[self.options.node]
        session = spark_session(
            f"floodway-{self.network.name}-{node.name}",
            master=spark_master(node, self.options),
            conf=spark_settings(node, self.options),
        )
        try:
            register(session)
            loop = self._loop(session)
            if self._await_inputs(loop):
                loop.start(loop.clock.now())
                try:
                    self._turn(loop)
                finally:
                    loop.stop()
        finally:
            session.stop()

    def _loop(self, session: Session) -> SteeringLoop:
        options, kept = self._steering.loop_options(self.options), retention_of(self.options)
        if kept is not None:
            options = replace(options, retaining=node_retaining(self.network, self.files, self.options.node, kept))
        return SteeringLoop(
            session,
            self.part,
            self._steering.steering,
            self._steering.fragments,
            self.layout,
            options,
            on_costs=self._take_costs,
            on_batch=self._write_figures,
        )

    def _take_costs(self, corrected: Network) -> None:
        if self.options.replan is not False:
            self._steering.take_costs(corrected)

    def _await_inputs(self, loop: SteeringLoop) -> bool:
        """Wait for the logs that other nodes are to create; False if the node was told to end meanwhile."""
        while missing := loop.missing_inputs():
            self._say("waiting", waiting_for=missing)
            if self._told_to_end():
                return False
            self._ended.wait(TICK_SECONDS)
        return not self._told_to_end()

    def _told_to_end(self) -> bool:
        orphan = self.options.parent is not None and os.getppid() != self.options.parent
        return orphan or self._ended.is_set()

    def _turn(self, loop: SteeringLoop) -> None:
        begun = loop.clock.now()
        loop.record.begin(begun, loop.arrived)
        while not self._told_to_end():
            now = loop.clock.now()
            if self.options.seconds is not None and now - begun >= self.options.seconds:
                return
            self._take_mode()
            try:
                self._steering.plan_with(self.plane.planner)
                steered = loop.tick(now)
            except PlanningError as error:
                # No plan is no reason to stop: the decision in force stays, as with a peer that is silent.
                self._say("running", planning_error=error.message, unplanned=self._status.get("unplanned", 0) + 1)
            else:
                costs = self._steering.costs_to_tell(now)
                if costs is not None:
                    self.plane.observe(steered.rates, costs, now)
                figures = loop.status(self.target, steered)
                self._say("running", **figures, waiting=loop.waiting(), idle=loop.idle, warm=loop.warm)
            self._ended.wait(max(0.0, TICK_SECONDS - (loop.clock.now() - now)))

    def _take_mode(self) -> None:
        """A mode that a peer or an operator asked for over HTTP outlives this process, as one from `floodway set`."""
        if self.plane.mode is not None:
            write_mode(self.layout.store, self.plane.mode)
            self.plane.mode = None

    def _write_figures(self, batch: FragmentBatch, report: BatchReport) -> None:
        fragment = self._steering.fragments[batch.fragment]
        work = source_work(self.part, fragment, batch.arc_keeps)
        kept = sum(work.get(at, 0.0) * count for at, count in batch.kept.items())
        figures = BatchFigures.of(report, self.network.outputs, kept, self._steering.steering.scale)
        self._figures.append(figures)
        self._tell_latency(report)

    def _tell_latency(self, report: BatchReport) -> None:
        """What the results of a batch took from their first arrival, for the nodes before this one."""
        latencies = {}
        for name, written in report.delivered.items():
            seconds, tuples = written.latencies_seconds(report.ended_seconds)
            if name in self.network.outputs and tuples.sum():
                latencies[name] = float((seconds * tuples).sum() / tuples.sum())
        depth = self._places[report.fragment].depth if report.fragment in self._places else 1
        self.plane.observe_results(latencies, self.target, depth, report.ended_seconds)

    def _introduce(self, url: str) -> None:
        body = {"node": self.options.node, "pid": os.getpid(), "url": url, "control": self.options.control}
        write_atomically(self.files.agent(self.options.node), json.dumps(body))

    def _say(self, phase: str, **figures: Any) -> None:
        """Keep and write the latest figures; those of an earlier phase stay until they are replaced."""
        self._status = {**self._status, "time_us": time.time_ns() // 1000, "waiting_for": [], **figures, "phase": phase}
        write_atomically(self.layout.status, json.dumps(self.status()), durable=False)


def run_node(network: Network, options: NodeOptions) -> None:
    """Run one node until its time is over or the process is asked to end (SIGTERM, SIGINT)."""
    agent = NodeAgent(network, options)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    agent.run()
