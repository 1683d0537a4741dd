"""Partners of a federation on machines of their own, whose packets are lost, late, doubled, overtaken or cut one way.

Every participant is a process in a network namespace; the switch of `packets.py` carries the packets between them. A
point is a fault and a moment: while offers are made, or at a step of the move or of its bills, where the participant
waits until the fault is there. It lasts for longer than every time-out of a move. After it one owner runs each
fragment, every input has one result, and the books of the two sides agree; nobody loses a lease over it, because
leases are on the storage and not on the network.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import ClassVar

from floodway.agent.federation.credentials import Credentials
from floodway.contracts.federation_file import parse_federation
from floodway.experiments.chaos import namespaces
from floodway.experiments.chaos.federation_world import FAST, FILE, FederationWorld, agent, must, try_point
from floodway.experiments.chaos.kills.processes import Job
from floodway.experiments.chaos.packets import ADDRESS, CUT, FAULTS, PORT, Switch, started_behind
from floodway.experiments.chaos.result import FaultResult, Trial

OFFERS = "offers"
STEPS = (OFFERS, "giver:intended", "taker:prepared", "giver:stopped", "giver:asked", "taker:decided", "taker:done")
MOMENTS = (*STEPS, "taker:billing")
ADDRESSES = {"A": ADDRESS.format(1), "B": ADDRESS.format(2)}
KEY = b"a key of two partners for faults alone"
LEASE_SECONDS = 60.0
"""Of every lease, so that a busy machine lets none run out."""


@dataclass(frozen=True, slots=True)
class PacketFault:
    """Which faults meet what share of the packets, from when on; `cut_from` is whose packets a cut stops."""

    faults: tuple[str, ...]
    moment: str
    share: float
    cut_from: str

    def __str__(self) -> str:
        share = f"{self.share:.0%} of the packets {' or '.join(one for one in self.faults if one != CUT)}"
        cut = f"packets of {self.cut_from} cut"
        found = cut if self.faults == (CUT,) else f"{share}, {cut}" if CUT in self.faults else share
        return f"{found} at {self.moment}"


def faults(trial: Trial) -> FaultResult:
    """Every fault alone and all together, each at moments by the seed."""
    result = FaultResult("partner-packets", detail={})
    if (missing := namespaces.network_missing()) is not None:
        result.untried = missing
        return result
    rng = trial.rng("partner-packets")
    moments = cycle(rng.sample(MOMENTS, len(MOMENTS)))
    made: list[Switch] = []
    for _, kinds in zip(range(trial.points), cycle((*((one,) for one in FAULTS), FAULTS)), strict=False):
        fault = PacketFault(kinds, next(moments), rng.uniform(0.2, 0.6), rng.choice(tuple(ADDRESSES)))
        make = partial(PacketWorld.make, rng=rng, made=made)
        try_point(trial, result, fault, make, partial(PacketWorld.survives, fault=fault))
    result.detail["met"] = dict(sum((switch.met for switch in made), Counter()))
    return result


@dataclass
class PacketWorld(FederationWorld):
    """The small federation with a namespace for each participant, and a switch between them."""

    faulty_seconds: ClassVar[float] = FAST.move + FAST.lease + FAST.margin
    switch: Switch = field(default_factory=lambda: Switch(random.Random(1)))

    @classmethod
    def make(cls, root: Path, rng: random.Random, made: list[Switch]) -> PacketWorld:
        """A federation below this folder; its switch is the last of `made`."""
        text = FILE
        for name, address in ADDRESSES.items():
            text = text.replace(f"127.0.0.1:{{{name.lower()}}}", f"{address}:{PORT}")
        made.append(Switch(rng))
        return cls(root, text.format(), switch=made[-1])

    def survives(self, fault: PacketFault) -> None:
        """Let a fragment move while packets suffer, and look at leases, results and books."""
        held = None if fault.moment == OFFERS else "A" if fault.moment.startswith("giver") else "B"
        with self.feeding():
            for name in ADDRESSES:
                self.start(name, fault.moment if name == held else None)
            if held is None:
                self._suffer(fault)
            self.switch.start()
            if held is not None:
                self.wait(f"{held} at {fault.moment}", _file(self.root, held, "reached").exists, alive=("A", "B"))
                self._suffer(fault)
                _file(self.root, held, "released").touch()
            time.sleep(self.faulty_seconds)
            self.wait("a packet to meet the fault", lambda: any(self.switch.met[one] for one in fault.faults))
            self.switch.suffer((), 0.0)
            self._settles()
        taken = [lease for name in self.fed for lease in self.store.history(name) if lease.idle_since is not None]
        must(not taken, f"leases were taken from an owner that lived: {taken}")
        self._checks()

    def _suffer(self, fault: PacketFault) -> None:
        self.switch.suffer(fault.faults, fault.share, cut_from=ADDRESSES[fault.cut_from])

    def start(self, name: str, kill_at: str | None = None) -> Job:
        """A participant's process, in a namespace of its own; it waits at `kill_at` until it is released."""
        arguments, errors = (self.text, name, str(self.root), kill_at), self.root / f"{name}.txt"
        job = self.processes[name] = started_behind(
            self.switch, ADDRESSES[name], run_held_participant, arguments, errors
        )
        return job

    def end(self) -> None:
        """Kill every process, and close the switch."""
        super().end()
        self.switch.close()


def run_held_participant(text: str, name: str, root: str, held_at: str | None) -> None:
    """The body of a participant's process."""
    federation = parse_federation(text)
    credentials = Credentials(name, pairs={partner: KEY for partner in federation.members if partner != name})
    at = _held_at(Path(root), name, held_at)
    member = agent(federation, name, Path(root), at, credentials=credentials, lease_seconds=LEASE_SECONDS)
    member.start()
    member.run()


def _held_at(root: Path, name: str, held_at: str | None) -> Callable[[str], None]:
    """What holds the participant up at a step, the first time, until it is released."""

    def at(step: str) -> None:
        reached = _file(root, name, "reached")
        if step == held_at and not reached.exists():
            reached.touch()
            while not _file(root, name, "released").exists():
                time.sleep(0.01)

    return at


def _file(root: Path, name: str, what: str) -> Path:
    return root / f"{name}.{what}"
