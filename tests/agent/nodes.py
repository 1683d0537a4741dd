"""What the tests of node processes share: scaled networks, a run of `floodway up`, a link that can be cut."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from floodway.agent.wire.ports import free_ports
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.status.status import ControlPart, ProcessPart, Status, read_status
from floodway.spark.query.layout import NodeLayout
from tests.patience import PATIENCE_SECONDS, wait_until

FIGURE1 = """
version: 1
name: figure1-scaled
streams:
  s1: {max_rate: 100}
  s2: {max_rate: 100}
nodes:
  A: {cpu: 1.0}
  B: {cpu: 1.0}
operators:
  a1: {node: A, from: s1, kind: delay, cost: 0.010}
  a2: {node: A, from: s2, kind: delay, cost: 0.020}
  b1: {node: B, from: a1, kind: delay, cost: 0.030}
  b2: {node: B, from: a2, kind: delay, cost: 0.010}
outputs:
  q1: {from: b1}
  q2: {from: b2}
"""
"""Figure 1 with a hundredth of its costs and a hundred times its rates: plan 4 earns 60 tuples/s, plan 2 33.3."""

THREE_NODES = """
version: 1
name: figure1-three
streams:
  s1: {max_rate: 100}
  s2: {max_rate: 100}
nodes:
  A: {cpu: 1.0}
  B: {cpu: 1.0}
  C: {cpu: 1.0}
operators:
  a1: {node: A, from: s1, kind: delay, cost: 0.010}
  a2: {node: A, from: s2, kind: delay, cost: 0.020}
  b1: {node: B, from: a1, kind: delay, cost: 0.002}
  b2: {node: B, from: a2, kind: delay, cost: 0.002}
  c1: {node: C, from: b1, kind: delay, cost: 0.030}
  c2: {node: C, from: b2, kind: delay, cost: 0.010}
outputs:
  q1: {from: c1}
  q2: {from: c2}
"""
"""The same with a node between the two: the first must know what the third can take."""


class Up:
    """`floodway up` as a process, its nodes looked at through their files."""

    def __init__(self, folder: Path, network: str, *arguments: str) -> None:
        self.file = folder / "net.yaml"
        self.file.write_text(network)
        self.state = folder / "state"
        self.layout = NodeLayout(self.state)
        self._report = folder / "report.json"
        self._errors = folder / "errors.txt"
        command = [sys.executable, "-m", "floodway.cli.main", "up", str(self.file), "--state", str(self.state)]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, "--report", str(self._report), "--json", *arguments],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def status(self, node: str) -> Status:
        """What the node has written last; blank before that."""
        blank = Status(node, "node", "off", 0.0, process=ProcessPart(0, "starting"), control=ControlPart())
        return read_status(self.layout.own(node).store) or blank

    def warm(self, node: str) -> bool:
        """Whether the node has processed a first batch."""
        process = self.status(node).process
        return process is not None and process.warm

    def control(self, node: str) -> Mapping[str, Any]:
        """What its control plane says of itself."""
        control = self.status(node).control
        return {} if control is None else control.details

    def pid(self, node: str) -> int:
        return int(json.loads(self.layout.agent(node).read_text())["pid"])

    def lines(self, node: str) -> list[LedgerLine]:
        return [line for line in Ledger(self.layout.own(node).store).read() if line.reason == Reason.SHEDDER]

    def check(self) -> bool:
        assert self._process.poll() is None, self._errors.read_text()
        return True

    def kill(self, node: str) -> None:
        """kill -9 the node's process alone; what it had started is the supervisor's business."""
        os.kill(self.pid(node), signal.SIGKILL)

    def kill_and_restart(self, agent: str) -> None:
        """kill -9, until the supervisor has started it again."""
        pid = self.pid(agent)
        self.kill(agent)
        wait_until(lambda: self.check() and self.pid(agent) != pid, f"{agent} started again")

    def await_more(self, node: str, what: str) -> None:
        """Until the node has finished a batch that dropped tuples or took some, later than all it has finished."""
        before = len(self.lines(node))
        wait_until(lambda: self.check() and any(line.kept for line in self.lines(node)[before:]), what)

    def finish(self) -> dict[str, Any]:
        """Ask for the end, wait for it, and return the report."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(PATIENCE_SECONDS)
        assert code == 0, self._errors.read_text()
        body: dict[str, Any] = json.loads(self._report.read_text())
        return body

    def left(self) -> list[str]:
        """Command lines of processes that still mention this run's folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if str(self.state) in command:
                        found.append(command)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Relay:
    """A port that passes connections on to an address, while it is open; closed, it refuses them as a cut link does."""

    def __init__(self, target: Callable[[], str]) -> None:
        (self.port,) = free_ports(1)
        self._target = target
        self._server: socket.socket | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        server = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self._server = server
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._server = None

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            host, _, port = self._target().removeprefix("http://").partition(":")
            with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as there:
                back = threading.Thread(target=_pump, args=(there, client), daemon=True)
                back.start()
                _pump(client, there)
                back.join(5)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


EQUAL_WINDOWS = """
version: 1
name: equal-windows
streams: {{s: {{max_rate: 2000}}, t: {{max_rate: 2000}}}}
nodes: {{A: {{cpu: 1.0}}, B: {{cpu: 1.0}}}}
operators:
  os: {{node: {first}, from: s, cost: 0.001}}
  ot: {{node: {first}, from: t, cost: 0.001}}
  ws: {{node: {second}, from: os, kind: aggregate, window: 10s, slide: 5s, cost: 0.001}}
  wt: {{node: {second}, from: ot, kind: aggregate, window: 10s, slide: 5s, cost: 0.001}}
outputs: {{qs: {{from: ws}}, qt: {{from: wt}}}}
"""
"""Two equal streams counted in windows that overlap, on one node or on two."""

EQUAL_BRANCHES = """
version: 1
name: equal-branches
streams: {{u: {{max_rate: 2000}}}}
nodes: {{A: {{cpu: 1.0}}, B: {{cpu: 1.0}}}}
operators:
  ou: {{node: A, from: u, cost: 0.0001}}
  os: {{node: {second}, from: ou, cost: 0.001}}
  ot: {{node: {second}, from: ou, cost: 0.001}}
  ws: {{node: {second}, from: os, kind: aggregate, window: 10s, slide: 5s, cost: 0.0001}}
  wt: {{node: {second}, from: ot, kind: aggregate, window: 10s, slide: 5s, cost: 0.0001}}
outputs: {{qs: {{from: ws}}, qt: {{from: wt}}}}
"""
"""One stream whose two equal branches are counted in windows that overlap, on one node or on two."""
