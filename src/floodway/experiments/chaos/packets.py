"""Agents on machines of their own, as namespaces of Linux are, whose packets are lost, late, doubled or overtaken.

Every agent has a network namespace with a TUN device. A switch in this process takes the IP packets from one device to
the other, well or badly, so that real TCP has to cope. It stands for `tc netem`, which not every kernel has.
"""

from __future__ import annotations

import heapq
import os
import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from floodway.errors import FloodwayError
from floodway.experiments.chaos import namespaces
from floodway.experiments.chaos.kills.kills import until
from floodway.experiments.chaos.kills.processes import ForkedJob
from floodway.experiments.chaos.plane_agents import CONTROLS, COSTS, HEAL_SECONDS, AgentProcesses, run_agent
from floodway.experiments.chaos.result import FaultResult, Trial

CUT = "cut one way"
FAULTS = ("lost", "late", "doubled", "overtaken", CUT)
FAULTY_SECONDS = 4.0
LATE_SECONDS = 0.3
MOST_BYTES = 1 << 16
ADDRESS, PORT = "10.99.0.{}", 8000


def faults(trial: Trial) -> FaultResult:
    """Every fault alone, then all together, under both control planes."""
    result = FaultResult("packets", detail={})
    if (missing := namespaces.network_missing()) is not None:
        result.untried = missing
        return result
    rng = trial.rng("packets")
    kinds = [(control, fault) for fault in (*FAULTS, "all") for control in CONTROLS]
    met: Counter[str] = Counter()
    for number in range(trial.points):
        control, fault = kinds[number % len(kinds)]
        place = f"{control}, packets {fault}"
        trial.progress(number / trial.points, place)
        with Machines(trial.folder / str(number), control, rng) as machines:
            cost = COSTS[number % len(COSTS)]
            if not machines.settle(COSTS[(number + 1) % len(COSTS)]):
                result.differences.append(f"{place}: no agreement on a sound network: {machines.said()}")
            machines.switch.suffer(FAULTS if fault == "all" else (fault,), rng.uniform(0.2, 0.6))
            machines.change(cost)
            time.sleep(FAULTY_SECONDS)
            machines.await_fault()
            machines.switch.suffer((), 0.0)
            if not machines.settle(cost):
                result.differences.append(f"{place}: no agreement within {HEAL_SECONDS:g} s: {machines.said()}")
            met.update(machines.switch.met)
        result.tried += 1
    result.detail["met"] = dict(met)
    return result


class Switch:
    """Takes packets from device to device; `met` counts what happened to them."""

    def __init__(self, rng: random.Random) -> None:
        self.met: Counter[str] = Counter()
        self._rng = rng
        self._cut_from = b""
        self._devices: dict[bytes, int] = {}
        self._faults: tuple[str, ...] = ()
        self._share = 0.0
        self._late: list[tuple[float, int, bytes]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def connect(self, address: str, device: int) -> None:
        """A device to which packets for an address go."""
        self._devices[socket.inet_aton(address)] = device

    def suffer(self, faults: tuple[str, ...], share: float, *, cut_from: str = ADDRESS.format(1)) -> None:
        """From now on this share of the packets meets one of these faults; a cut meets all from an address."""
        self._cut_from = socket.inet_aton(cut_from)
        self._faults, self._share = faults, share

    def start(self) -> None:
        """Begin to pass packets on."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and close the devices."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        while self._devices:
            os.close(self._devices.popitem()[1])

    def _run(self) -> None:
        while not self._stopped.is_set():
            for device in select.select(list(self._devices.values()), [], [], 0.005)[0]:
                self._take(os.read(device, MOST_BYTES))
            while self._late and self._late[0][0] <= time.monotonic():
                self._pass_on(heapq.heappop(self._late)[2])

    def _take(self, packet: bytes) -> None:
        if packet[0] >> 4 != 4:
            return
        hit = bool(self._faults) and self._rng.random() < self._share
        fault = self._rng.choice(self._faults) if hit else "none"
        if CUT in self._faults and packet[12:16] == self._cut_from:
            fault = CUT
        elif fault == CUT:
            fault = "none"
        self.met[fault] += 1
        if fault in ("lost", CUT):
            return
        if fault in ("late", "overtaken"):
            # What is late arrives after all that is sent meanwhile; what is overtaken after the next few packets.
            longest = LATE_SECONDS if fault == "late" else LATE_SECONDS / 10
            due = time.monotonic() + self._rng.uniform(0.0, longest)
            heapq.heappush(self._late, (due, self.met.total(), packet))
            return
        self._pass_on(packet)
        if fault == "doubled":
            self._pass_on(packet)

    def _pass_on(self, packet: bytes) -> None:
        device = self._devices.get(packet[16:20])
        if device is not None:
            try:
                os.write(device, packet)
            except OSError:
                self.met["refused by the device"] += 1


class Machines(AgentProcesses):
    """The processes of the agents, each in a namespace of its own, and the switch between them."""

    def __init__(self, folder: Path, control: str, rng: random.Random) -> None:
        super().__init__(control, folder)
        self.switch = Switch(rng)
        self._addresses = {name: ADDRESS.format(number) for number, name in enumerate(self.names, 1)}

    def start(self, name: str) -> None:
        """See `AgentProcesses`; it gets a network of its own."""
        urls = {one: f"http://{address}:{PORT}" for one, address in self._addresses.items()}
        arguments = (name, self.control, str(self.folder), urls)
        errors = self.folder / f"{name}.txt"
        self.jobs[name] = started_behind(self.switch, self._addresses[name], run_agent, arguments, errors)
        if len(self.jobs) == len(self.names):
            self.switch.start()

    def settle(self, cost: float) -> bool:
        """Until A sheds as well as the whole network can; False if it does not come to that."""
        self.change(cost)
        return until(lambda: self.shed_well(cost), HEAL_SECONDS)

    def await_fault(self) -> None:
        """Until a packet has met a fault: on a busy machine none may have been sent so far."""
        until(lambda: any(self.switch.met[fault] for fault in FAULTS), HEAL_SECONDS)

    def end(self) -> None:
        """Kill every process, and close the switch."""
        super().end()
        self.switch.close()


def started_behind(
    switch: Switch, address: str, function: Callable[..., None], arguments: Sequence[Any], errors: Path
) -> ForkedJob:
    """A function in a process that has a network with this address alone, whose packets the switch carries."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        job = ForkedJob(_run_behind, (function, arguments, address, theirs), errors)
        theirs.close()
        _, devices, _, _ = socket.recv_fds(ours, 1, 1)
    if not devices:
        job.end()
        raise FloodwayError(f"{address} has no network of its own: {job.said()}")
    switch.connect(address, devices[0])
    return job


def _run_behind(function: Callable[..., None], arguments: Sequence[Any], address: str, parent: socket.socket) -> None:
    """The body of such a process; its network is one device, which the parent gets."""
    device = namespaces.own_network(f"{address}/24")
    with parent:
        socket.send_fds(parent, [b"d"], [device])
    os.close(device)
    function(*arguments)
