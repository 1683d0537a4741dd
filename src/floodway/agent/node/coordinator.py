"""The coordinator of a network as a process of its own: no Spark, only the control plane and its HTTP API."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from floodway.agent.planes.plane import make_coordinator, silent_peers
from floodway.agent.wire.messages import COORDINATOR
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.job.options.options import JobOptions
from floodway.job.status.status import ControlPart, ProcessPart, Status, write_status
from floodway.job.store.store import write_atomically
from floodway.network.model import Network
from floodway.spark.query.fragment_windows import drop_kinds, timeless_streams
from floodway.spark.query.layout import NodeLayout

TICK_SECONDS = 0.5


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
            ended.wait(TICK_SECONDS)
    finally:
        plane.stop()
        server.stop()
