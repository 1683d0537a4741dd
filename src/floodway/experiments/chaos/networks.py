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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from floodway.agent.planes.plane import ControlPlane
from floodway.agent.wire.ports import free_ports
from floodway.experiments.chaos.kills.kills import until
from floodway.experiments.chaos.plane_agents import (
    CONTROLS,
    COSTS,
    HEAL_SECONDS,
    LOOK_SECONDS,
    agent_names,
    measure,
    serving,
    sheds_well,
)
from floodway.experiments.chaos.result import FaultResult, Trial

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


FAULTY_SECONDS = 1.5


def faults(trial: Trial) -> FaultResult:
    """Every fault alone, then all together, under both control planes."""
    result = FaultResult("messages")
    rng = trial.rng("networks")
    kinds = [(control, fault) for fault in (*FAULTS, "all") for control in CONTROLS]
    met: Counter[str] = Counter()
    for number in range(trial.points):
        control, fault = kinds[number % len(kinds)]
        place = f"{control}, messages {fault}"
        trial.progress(number / trial.points, place)
        with _agents(control, trial.folder / str(number), trial) as (nodes, wires):
            _settle(nodes, COSTS[0])
            for wire in wires:
                wire.faults = FAULTS if fault == "all" else (fault,)
                wire.share = rng.uniform(0.3, 0.9)
            cost = COSTS[number % len(COSTS)]
            _observe(nodes, cost, FAULTY_SECONDS)
            _await_fault(nodes, cost, wires)
            for wire in wires:
                wire.share = 0.0
            if not _settle(nodes, cost):
                result.differences.append(f"{place}: no agreement within {HEAL_SECONDS:g} s of a sound network")
            for node in nodes:
                if node.error:
                    result.differences.append(f"{place}: {node.agent.name} failed: {node.error}")
            result.doubled += sum(wire.both_taken for wire in wires)
            met.update(sum((wire.met for wire in wires), Counter()))
        result.tried += 1
    result.detail["met"] = dict(met)
    return result


@contextmanager
def _agents(control: str, folder: Path, trial: Trial) -> Iterator[tuple[list[ControlPlane[Any]], list[FaultyWire]]]:
    """Nodes (and a coordinator) behind a proxy each; A is the first node."""
    with ExitStack() as stack:
        names = agent_names(control)
        # Addresses first: agents are told those of the proxies, which need the ports of servers that start later.
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        wires = {name: stack.enter_context(FaultyWire(port, trial.rng(f"wire {name}"))) for name, port in ports.items()}
        urls = {name: wire.url for name, wire in wires.items()}
        planes = [
            stack.enter_context(serving(name, control, urls, folder / name, ("127.0.0.1", port)))
            for name, port in ports.items()
        ]
        yield [plane for plane in planes if isinstance(plane, ControlPlane)], list(wires.values())


def _observe(nodes: Sequence[ControlPlane[Any]], cost: float, seconds: float) -> Mapping[str, float]:
    """Let the nodes measure for a while, and plan with what they have; what A would keep at the end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        keeps = [measure(node, cost) for node in nodes]
        time.sleep(LOOK_SECONDS)
    return keeps[0]


def _await_fault(nodes: Sequence[ControlPlane[Any]], cost: float, wires: list[FaultyWire]) -> None:
    """Until a message has met a fault: on a busy machine none may have been sent so far."""
    end = time.monotonic() + HEAL_SECONDS
    while not any(wire.met[fault] for wire in wires for fault in wire.faults) and time.monotonic() < end:
        _observe(nodes, cost, 0.2)


def _settle(nodes: Sequence[ControlPlane[Any]], cost: float) -> bool:
    """Until A sheds as well as the whole network can; False if it does not come to that."""
    return until(lambda: sheds_well(_observe(nodes, cost, 0.2), cost), HEAL_SECONDS)
