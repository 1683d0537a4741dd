"""One node of a network as a process of its own: its Spark application, its loop, its control plane, its HTTP API.

The node runs its part of the network between logs: it reads streams and the links that other nodes write, and writes
links and outputs, each log having one writer. It sheds at its own inputs, links included. What it sheds for others
comes from its control plane, which is asked for a planner at every tick and never waited for: a node whose peers are
silent goes on with the last plan it has. The coordinator, which plans for all of them, is such a process too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from floodway.agent.loop.batch_figures import result_latencies
from floodway.agent.loop.stages import stages
from floodway.agent.loop.steering import FragmentBatch
from floodway.agent.loop.steering_loop import SteeringLoop, fragments_of
from floodway.agent.node.node_options import NodeOptions, spark_master, spark_settings
from floodway.agent.node.steering import NodeSteering
from floodway.agent.planes.lateness import outputs_from
from floodway.agent.planes.plane import ControlPlane, make_control_plane, make_coordinator, silent_peers
from floodway.agent.watch.metrics import Watched, metrics_route
from floodway.agent.wire.messages import COORDINATOR
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.errors import PlanningError
from floodway.job.decision import OperatorMode, write_mode
from floodway.job.options.options import JobOptions
from floodway.job.status.batches import Latency, Sketch
from floodway.job.status.status import ControlPart, Phase, ProcessPart, Status, write_status
from floodway.job.store.store import write_atomically
from floodway.network.file import network_to_json
from floodway.network.model import Network
from floodway.spark.query.fragment_query import FragmentReport
from floodway.spark.query.fragment_windows import drop_kinds, drop_shapes, fragment_windows, timeless_streams
from floodway.spark.query.key_drops import key_drops
from floodway.spark.query.layout import NodeLayout
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
        target = options.target_for(network, outputs_from(network, self.part.operators))
        self.target = target.seconds
        self.plane: ControlPlane[Any] = make_control_plane(
            options.control,
            network,
            options.node,
            options.security,
            options.urls,
            self.files.control(options.node),
            options,
        )
        self.plane.keep_mode = partial(write_mode, self.layout.store)
        timeless = timeless_streams(network, options, over_kafka=self.files.links() is not None)
        parts = fragments_of(self.part)
        self._windows = fragment_windows(network, self.part, parts, self.files.shared.windows, timeless)
        self._keys = key_drops(network, options, self._windows)
        self._steering = NodeSteering(
            network,
            self.part,
            self.plane.planner,
            target,
            options,
            share_factor=self.plane.share_factor,
            windowed=drop_shapes(self._windows),
        )
        self._places = stages(fragments_of(network))
        self._refused: Counter[str] = Counter()
        self._ended = threading.Event()
        self._process = ProcessPart(os.getpid(), "starting")
        mode = OperatorMode(self.layout.store, options.mode, f"node {options.node}").look()
        self._status = Status(
            name=self.part.name, kind="node", mode=mode, time=time.time(), latency=Latency(target=self.target)
        )
        self._latencies = Sketch()
        self._unplanned = 0

    def status(self) -> Status:
        """The latest figures, with those of the control plane and what the HTTP API has refused, by reason."""
        plane = self.plane.status()
        return replace(
            self._status,
            network=self.network.name,
            node=self.options.node,
            process=replace(self._process, refused=dict(self._refused)),
            control=ControlPart(self.options.control, silent_peers(plane), plane),
            errors=self._status.errors + self._unplanned,
        )

    def stop(self) -> None:
        """Ask the node to end: between two batches, if it comes to one in time."""
        self._ended.set()

    def run(self, spark: Session | None = None) -> None:
        """Serve, process and steer until the end. A failed query raises; a restart continues where it ended.

        A session that is given is left running.
        """
        watched = metrics_route(lambda: [Watched(self.options.node, self.status(), self._latencies)])
        routes = [*self.plane.routes(), *node_routes(self.status, self.network), watched]
        server = HttpServer(routes, host=self.options.host, port=self.options.port, security=self.options.security)
        self._refused = server.refused
        server.start()
        try:
            self._process = replace(self._process, url=server.url)
            self._say("starting")
            self._introduce(server.url)
            self.plane.start()
            self._with_spark(spark)
        finally:
            self.plane.stop()
            server.stop()
            self._say("ended")

    def _with_spark(self, spark: Session | None) -> None:
        node = self.network.nodes[self.options.node]
        session = spark or spark_session(
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
            if spark is None:
                session.stop()

    def _loop(self, session: Session) -> SteeringLoop:
        options, kept = self._steering.loop_options(self.options), retention_of(self.options)
        targets = self.options.output_targets(self.network)
        options = replace(
            options, outputs=self.network.outputs, windows=self._windows, keys=self._keys, targets=targets
        )
        if kept is not None:
            options = replace(options, retaining=node_retaining(self.network, self.files, self.options.node, kept))
        return SteeringLoop(
            session,
            self.part,
            [self._steering.steering],
            self._steering.fragments,
            self.layout,
            options,
            on_costs=self._take_costs,
            on_batch=self._tell_latency,
        )

    def _take_costs(self, corrected: Network) -> None:
        if self.options.replan is not False:
            self._steering.take_costs(corrected)

    def _await_inputs(self, loop: SteeringLoop) -> bool:
        """Wait for the logs that other nodes are to create; False if the node was told to end meanwhile."""
        while missing := loop.missing_inputs():
            self._say("waiting", waiting_for=tuple(missing))
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
            try:
                self._steering.plan_with(self.plane.planner)
                steered = loop.tick(now)
            except PlanningError as error:
                # No plan is no reason to stop: the decision in force stays, as with a peer that is silent.
                loop.follow_mode()
                self._unplanned += 1
                reason = f"no plan could be made: {error.message}"
                self._status = replace(self._status, mode=loop.mode, reason=reason)
                self._say("running")
            else:
                costs = self._steering.costs_to_tell(now)
                if costs is not None:
                    sizes = loop.sizes.measured()
                    read = loop.link_bytes() if self.network.links else {}
                    tuple_bytes = {**read, **sizes.tuples}
                    self.plane.observe(steered.rates, costs, now, tuple_bytes=tuple_bytes, state_bytes=sizes.states)
                self._status = loop.status(self.target, steered, kind="node")
                self._latencies = loop.figures.latencies.copy()
                self._say("running", idle=loop.idle, warm=loop.warm)
            self._ended.wait(max(0.0, TICK_SECONDS - (loop.clock.now() - now)))

    def _tell_latency(self, batch: FragmentBatch, report: FragmentReport) -> None:
        """What the results of a batch took from their first arrival, for the nodes before this one."""
        means = {name: result_latencies(report, [name]).mean for name in self.network.outputs}
        # Who hurries by how much is a matter of ratios: a latency counts as against this node's target.
        due = self.options.output_targets(self.network)
        latencies = {name: mean * self.target / due[name] for name, mean in means.items() if mean is not None}
        depth = self._places[report.fragment].depth if report.fragment in self._places else 1
        self.plane.observe_results(latencies, self.target, depth, report.ended_seconds)

    def _introduce(self, url: str) -> None:
        body = {"node": self.options.node, "pid": os.getpid(), "url": url, "control": self.options.control}
        write_atomically(self.files.agent(self.options.node), json.dumps(body))

    def _say(self, phase: Phase, *, waiting_for: tuple[str, ...] = (), idle: bool = False, warm: bool = False) -> None:
        """Keep and write where the process stands; figures of an earlier phase stay until they are replaced."""
        self._process = replace(self._process, phase=phase, waiting_for=waiting_for, idle=idle, warm=warm)
        self._status = replace(self._status, time=time.time())
        write_status(self.layout.store, self.status())


def run_node(network: Network, options: NodeOptions) -> None:
    """Run one node until its time is over or the process is asked to end (SIGTERM, SIGINT)."""
    agent = NodeAgent(network, options)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    agent.run()


def node_routes(status: Callable[[], Status], network: Network | None = None) -> list[BaseRoute]:
    """`GET /v1/node`: the node's status, as in its `status.json`.

    `GET /v1/network`: the network it is a node of, as a network file, so that a page can draw it.
    """

    def answer(request: Request) -> Response:
        return Response(status().encode(), media_type="application/json")

    def drawn(request: Request) -> JSONResponse:
        return JSONResponse({"network": "" if network is None else network_to_json(network)})

    shown = [] if network is None else [Route("/v1/network", drawn, methods=["GET"])]
    return [Route("/v1/node", answer, methods=["GET"]), *shown]


COORDINATOR_TICK_SECONDS = 0.5


def run_coordinator(
    network: Network,
    root: Path,
    *,
    host: str,
    port: int,
    urls: Mapping[str, str],
    security: Security,
    options: JobOptions,
    parent: int | None = None,
) -> None:
    """Coordinate until the process is asked to end (SIGTERM, SIGINT), or its `parent` is gone."""
    files = NodeLayout(root)
    kinds = drop_kinds(network, timeless_streams(network, options, over_kafka=files.links() is not None))
    shapes = {at: kind.shape for at, kind in kinds.items() if kind.shape is not None}
    plane = make_coordinator(network, security, urls, files.control(COORDINATOR), options, shapes)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = HttpServer(plane.routes(), host=host, port=port, security=security)
    server.start()
    try:
        plane.start()
        process = {"node": COORDINATOR, "pid": os.getpid(), "url": server.url, "control": "coordinator"}
        write_atomically(files.agent(COORDINATOR), json.dumps(process))
        said: object = ""
        while not ended.is_set() and (parent is None or os.getppid() == parent):
            told = plane.status()
            if told["not_prepared"] and told["not_prepared"] != said:
                said = told["not_prepared"]
                print(
                    f"coordinator: {said}; such plans are made when rates first ask for them",
                    file=sys.stderr,
                    flush=True,
                )
            status = Status(
                name=f"{network.name}: {COORDINATOR}",
                kind="node",
                mode="off",
                time=time.time(),
                process=ProcessPart(os.getpid(), url=server.url, refused=dict(server.refused)),
                control=ControlPart(COORDINATOR, silent_peers(told), told),
                network=network.name,
                node=COORDINATOR,
            )
            write_status(files.own(COORDINATOR).store, status)
            ended.wait(COORDINATOR_TICK_SECONDS)
    finally:
        plane.stop()
        server.stop()
