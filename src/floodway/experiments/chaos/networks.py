"""Agents whose messages are lost, late, overtaken, doubled or answered to nobody: real HTTP, real signatures.

Two nodes under D-FIT and two under a coordinator talk through proxies. While messages suffer, both go on planning; when
the network is well again, they must come to the plan that an undisturbed pair has, within a bound of ticks. A message
that is played twice must be taken once.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from floodway.agent.planes.plane import ControlPlane, make_control_plane, make_coordinator
from floodway.agent.wire.ports import free_ports
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program

FAULTS = ("lost", "answer-lost", "late", "doubled")
"""`answer-lost` is a cut in one direction."""
LATE_SECONDS = 0.4
_PART_BYTES = 65_536
_TIMEOUT_SECONDS = 30.0


class FaultyWire:
    """Listens on a port of this machine and passes requests on to a server, well or badly.

    `share` is the part of requests that meets a fault; 0 passes everything on. `both_taken` counts requests that were
    sent twice and answered well twice: somebody took one message for two.
    """

    def __init__(self, port: int, rng: random.Random) -> None:
        self.share = 0.0
        self.faults: tuple[str, ...] = FAULTS
        self.met: Counter[str] = Counter()
        self.both_taken = 0
        self._port = port
        self._rng = rng
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where peers find the server behind it."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Stop, and wait for what is under way."""
        self._stopped.set()
        self._thread.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                accepted, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(accepted,), daemon=True)
                thread.start()
                self._threads = [one for one in self._threads if one.is_alive()] + [thread]

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, suppress(OSError, ValueError):
            accepted.settimeout(_TIMEOUT_SECONDS)
            request = _whole(accepted)
            with self._lock:
                fault = self._rng.choice(self.faults) if self._rng.random() < self.share else "none"
                wait = self._rng.uniform(0.0, LATE_SECONDS)
                self.met[fault] += 1
            if fault == "lost":
                return
            if fault == "late":
                time.sleep(wait)
            answer = self._pass_on(request)
            if fault == "doubled" and _taken(answer) and _taken(self._pass_on(request)):
                with self._lock:
                    self.both_taken += 1
            if fault != "answer-lost":
                accepted.sendall(answer)

    def _pass_on(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._port), timeout=_TIMEOUT_SECONDS) as server:
            server.sendall(request)
            return _whole(server)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _whole(sock: socket.socket) -> bytes:
    """One HTTP message: its head, and as much of a body as the head says."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := sock.recv(_PART_BYTES)):
            raise ValueError("hung up in a head")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    length = int(fields.get(b"content-length", b"0"))
    while len(body) < length:
        if not (part := sock.recv(_PART_BYTES)):
            raise ValueError("hung up in a body")
        body += part
    return head + b"\r\n\r\n" + body


def _taken(answer: bytes) -> bool:
    return answer.split(b" ", 2)[1:2] == [b"200"]


SECURITY = Security(b"a key for faults on this machine alone")
FAULTY_SECONDS = 1.5
HEAL_SECONDS = 300.0
"""A bound for agents that do not come to agree, not an expectation: it takes some seconds."""
RATES = {"s1": 1.0, "s2": 1.0}
NETWORK = """
version: 1
name: faulty-wire
streams: {s1: {max_rate: 2.0}, s2: {max_rate: 2.0}}
nodes: {A: {cpu: 1.0}, B: {cpu: 1.0}}
operators:
  a1: {node: A, from: s1, cost: 1.0}
  a2: {node: A, from: s2, cost: 2.0}
  b1: {node: B, from: a1, cost: 3.0}
  b2: {node: B, from: a2, cost: 1.0}
outputs: {q1: {from: b1}, q2: {from: b2}}
"""
COSTS = (3.0, 1.0, 6.0, 2.0)
"""What B finds its first operator to cost, from one point to the next: every point changes what must be known above."""


def faults(trial: Trial) -> FaultResult:
    """Every fault alone, then all together, under both control planes."""
    result = FaultResult("messages")
    rng = trial.rng("networks")
    kinds = [(control, fault) for fault in (*FAULTS, "all") for control in ("dfit", "coordinator")]
    network = parse_network(NETWORK)
    for number in range(trial.points):
        control, fault = kinds[number % len(kinds)]
        trial.progress(number / trial.points, f"{control}, messages {fault}")
        with _agents(control, network, trial.folder / str(number), trial) as (planes, wires):
            _settle(network, planes, 3.0)
            for wire in wires:
                wire.faults = FAULTS if fault == "all" else (fault,)
                wire.share = rng.uniform(0.3, 0.9)
            cost = COSTS[number % len(COSTS)]
            _observe(network, planes, cost, FAULTY_SECONDS)
            _await_fault(network, planes, cost, wires)
            for wire in wires:
                wire.share = 0.0
            place = f"{control}, messages {fault}"
            if not _settle(network, planes, cost):
                result.differences.append(f"{place}: no agreement within {HEAL_SECONDS:g} s of a sound network")
            for name, plane in planes.items():
                if error := plane.status().get("error"):
                    result.differences.append(f"{place}: {name} failed: {error}")
            result.doubled += sum(wire.both_taken for wire in wires)
            met = result.detail.setdefault("met", {})
            for wire in wires:
                for name, count in wire.met.items():
                    met[name] = met.get(name, 0) + count
        result.tried += 1
    return result


@contextmanager
def _agents(
    control: str, network: Network, folder: Path, trial: Trial
) -> Iterator[tuple[Mapping[str, ControlPlane[Any]], list[FaultyWire]]]:
    """Nodes (and a coordinator) behind a proxy each."""
    with ExitStack() as stack:
        names = [*network.nodes, *(["coordinator"] if control == "coordinator" else [])]
        wires: dict[str, FaultyWire] = {}
        planes: dict[str, ControlPlane[Any]] = {}
        # Addresses first: agents are told those of the proxies, which need the ports of servers that start later.
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        for name, port in ports.items():
            wires[name] = stack.enter_context(FaultyWire(port, trial.rng(f"wire {name}")))
        urls = {name: wire.url for name, wire in wires.items()}
        for name in names:
            if name == "coordinator":
                talking = make_coordinator(network, SECURITY, urls, folder / name)
                routes = talking.routes()
                start, stop = talking.start, talking.stop
            else:
                plane = planes[name] = make_control_plane(control, network, name, SECURITY, urls, folder / name)
                routes, start, stop = plane.routes(), plane.start, plane.stop
            stack.enter_context(HttpServer(routes, port=ports[name], security=SECURITY))
            start()
            stack.callback(stop)
        yield planes, list(wires.values())


def _observe(network: Network, planes: Mapping[str, ControlPlane[Any]], cost: float, seconds: float) -> None:
    """Let the nodes measure for a while, and plan with what they have."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, plane in planes.items():
            here = {at: rate for at, rate in RATES.items() if name == "A"}
            inputs = here or dict.fromkeys(plane.planner.network.streams, 0.5)
            plane.observe(inputs, {"b1": cost} if name == "B" else {}, time.time())
            plane.planner.plan(inputs)
        time.sleep(0.05)


def _await_fault(
    network: Network, planes: Mapping[str, ControlPlane[Any]], cost: float, wires: list[FaultyWire]
) -> None:
    """Until a message has met a fault: on a busy machine none may have been sent so far."""
    end = time.monotonic() + HEAL_SECONDS
    while not any(wire.met[fault] for wire in wires for fault in wire.faults) and time.monotonic() < end:
        _observe(network, planes, cost, 0.2)


def _settle(network: Network, planes: Mapping[str, ControlPlane[Any]], cost: float) -> bool:
    """Until A sheds as well as the whole network can; False if it does not come to that."""
    end = time.monotonic() + HEAL_SECONDS
    while time.monotonic() < end:
        _observe(network, planes, cost, 0.2)
        if sheds_well(planes["A"].planner.plan(RATES).keeps, cost):
            return True
    return False


def sheds_well(keeps: Mapping[str, float], cost: float) -> bool:
    """Whether no node is overloaded by what A keeps, and the score is as high as it can be, where b1 costs so much."""
    changed = parse_network(NETWORK.replace("cost: 3.0", f"cost: {cost}"))
    best = ExactPlanner(Program(changed)).plan(RATES).score
    let = {name: keeps[name] * rate for name, rate in RATES.items()}
    loads = (let["s1"] * 1.0 + let["s2"] * 2.0, let["s1"] * cost + let["s2"] * 1.0)
    return max(loads) <= 1.01 and sum(let.values()) >= 0.94 * best
