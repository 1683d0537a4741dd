"""Every fault by id. Their code is imported only when asked for, so that listing costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from floodway.errors import InputError
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.network.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry: `target` is `module:function`, `weight` its part of the points. Spark costs much a point."""

    id: str
    title: str
    target: str
    weight: int
    spark: bool = False
    kafka: bool = False


FAULTS: dict[str, Fault] = {
    entry.id: entry
    for entry in (
        Fault("clocks", "clocks of agents set by up to a day, drift, restarts", "clocks:faults", 3),
        Fault("disks", "torn last write, full disk, vanished folder, at every kind of file", "disks:faults", 6),
        Fault("networks", "messages of agents lost, late, overtaken, doubled, answers lost", "networks:faults", 3),
        Fault("run-kills", "kills and stops of `floodway run` in every phase of a batch", "run_kills:kills", 6, True),
        Fault("shed-kills", "kills and stops of a query with the one line", "shed_kills:kills", 4, True),
        Fault("node-kills", "kills and stops of nodes, coordinator, supervisor", "node_kills:kills", 3, True),
        Fault("kafka-kills", "as run-kills, on a topic (--kafka)", "run_kills:kafka_kills", 4, True, kafka=True),
    )
}


def choose(names: Iterable[str], *, kafka: bool = False) -> list[Fault]:
    """The faults of these ids, all when none is named; those of Kafka only with a broker.

    >>> [fault.id for fault in choose(["disks"])]
    ['disks']
    """
    found = []
    for name in names or [fault.id for fault in FAULTS.values() if kafka or not fault.kafka]:
        if name not in FAULTS:
            raise InputError(f"no fault is called {name!r}", hint=did_you_mean(name, FAULTS))
        found.append(FAULTS[name])
    return found


def share(faults: list[Fault], points: int) -> dict[str, int]:
    """How many of the points each fault gets: at least one, else by weight.

    >>> share(choose(["clocks", "disks"]), 9)
    {'clocks': 3, 'disks': 6}
    """
    total = sum(fault.weight for fault in faults)
    return {fault.id: max(1, round(points * fault.weight / total)) for fault in faults}


def load(fault: Fault) -> Callable[[Trial], FaultResult]:
    """Import the function of one fault."""
    module, _, function = fault.target.partition(":")
    found = getattr(import_module(f"floodway.experiments.chaos.{module}"), function)
    return cast(Callable[[Trial], FaultResult], found)
