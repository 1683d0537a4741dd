"""Every fault by id, in kinds. Their code is imported only when asked for, so that listing costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from floodway.errors import InputError, suggestion
from floodway.experiments.chaos.result import FaultResult, Trial


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry: `target` is `module:function`; `weight` is its part of the points of its kind.

    `needs` is what the machine must have: `spark` costs much per point, `kafka` also needs `--kafka-libs`, `connector`
    that and `--kafka-connector`.
    """

    id: str
    kind: str
    title: str
    target: str
    weight: int
    needs: str


_KINDS: Mapping[str, Sequence[tuple[str, str, str, int, str]]] = {
    "clocks": (
        ("agent-clocks", "clocks of agents set by up to a day, drift, restarts", "clocks.plane_clocks:faults", 80, ""),
        ("driver-clocks", "a driver's clock set while it sheds", "clocks.driver_clocks:faults", 6, "spark"),
        ("node-clocks", "clocks of nodes and coordinator", "clocks.node_clocks:faults", 4, "spark"),
        ("partner-clocks", "clocks of partners set, and drift: one owner", "clocks.partner_clocks:faults", 8, ""),
        ("participant-clocks", "the same to `floodway participant`", "clocks.partner_clocks:spark_faults", 2, "spark"),
    ),
    "disks": (("disks", "torn last write, full disk, vanished folder, at every kind of file", "disks:faults", 1, ""),),
    "kills": (
        ("plain-kills", "driver without Java, in every phase of a batch", "kills.run_kills:plain_kills", 12, ""),
        ("move-kills", "partners at every step of a move and its bills", "kills.move_kills:kills", 6, ""),
        ("plane-kills", "agents and coordinator while they agree on plans", "kills.plane_kills:kills", 6, ""),
        ("run-kills", "`floodway run` in every phase of a batch", "kills.run_kills:kills", 4, "spark"),
        ("shed-kills", "a query with the one line in every phase", "kills.shed_kills:kills", 3, "spark"),
        ("node-kills", "nodes, coordinator, supervisor of `up`", "kills.node_kills:kills", 2, "spark"),
        ("executor-kills", "an executor in its own process", "kills.run_kills:executor_kills", 2, "spark"),
        ("partner-kills", "partners on Spark, at every step of a move", "kills.move_kills:spark_kills", 1, "spark"),
        ("kafka-kills", "as plain-kills on a topic, and its broker", "kills.run_kills:kafka_kills", 2, "kafka"),
        ("kafka-run-kills", "as run-kills on a topic, and its broker", "kills.run_kills:kafka_run_kills", 1, "kafka"),
        (
            "kafka-shed-kills",
            "shed on Spark's connector, and broker",
            "kills.shed_kills:kafka_kills",
            1,
            "connector",
        ),
    ),
    "months": (("months", "a year of batches: files, memory and starts stay bounded", "months:faults", 1, ""),),
    "fuzz": (("fuzz", "mutated messages, files, offsets, ledgers, segments and records", "fuzz:faults", 1, ""),),
    "networks": (
        ("messages", "messages lost, late, overtaken, doubled, answers lost", "networks:faults", 2, ""),
        ("packets", "the same to IP packets, between namespaces", "packets:faults", 1, ""),
        ("partner-packets", "the same between partners, while a fragment moves", "partner_packets:faults", 1, ""),
    ),
}
"""Rows of each kind: id, title, target, weight, needs."""
FAULTS: dict[str, Fault] = {row[0]: Fault(row[0], kind, *row[1:]) for kind, rows in _KINDS.items() for row in rows}
DEFAULT_POINTS = {"kills": 25, "clocks": 100, "disks": 90, "networks": 20, "months": 12, "fuzz": 50_000}
"""Points of each kind where none are asked for: some minutes on a small machine."""


def choose(names: Iterable[str]) -> list[Fault]:
    """The faults of these ids or kinds, all when none is named. A kind of several faults is the id of none.

    >>> [fault.id for fault in choose(["networks"])]
    ['messages', 'packets', 'partner-packets']
    """
    wanted = list(names)
    found = [] if wanted else list(FAULTS.values())
    known = dict.fromkeys([*(fault.kind for fault in FAULTS.values()), *FAULTS])
    for name in wanted:
        if name not in known:
            raise InputError(f"no fault is called {name!r}", hint=suggestion(name, known))
        found += [one for one in FAULTS.values() if name in (one.id, one.kind)]
    return list(dict.fromkeys(found))


def lacking(fault: Fault, *, kafka_libs: Path | None, kafka_connector: Path | None) -> str | None:
    """Which option a fault needs and was not given; None if it has all.

    >>> lacking(FAULTS["kafka-kills"], kafka_libs=None, kafka_connector=None)
    'it needs --kafka-libs'
    """
    needed = {"--kafka-libs": kafka_libs} if fault.needs in ("kafka", "connector") else {}
    needed |= {"--kafka-connector": kafka_connector} if fault.needs == "connector" else {}
    missing = [option for option, folder in needed.items() if folder is None]
    return f"it needs {' and '.join(missing)}" if missing else None


def share(faults: Iterable[Fault], points: int | None) -> dict[str, int]:
    """How many points each fault gets: those of its kind by weight, and at least one.

    >>> share(choose(["networks", "disks"]), 9)
    {'messages': 4, 'packets': 2, 'partner-packets': 2, 'disks': 9}
    """
    chosen = list(faults)
    weights: dict[str, int] = {}
    for fault in chosen:
        weights[fault.kind] = weights.get(fault.kind, 0) + fault.weight
    return {
        fault.id: max(1, round((points or DEFAULT_POINTS[fault.kind]) * fault.weight / weights[fault.kind]))
        for fault in chosen
    }


def load(fault: Fault) -> Callable[[Trial], FaultResult]:
    """Import the function of one fault."""
    module, _, function = fault.target.partition(":")
    found = getattr(import_module(f"floodway.experiments.chaos.{module}"), function)
    return cast(Callable[[Trial], FaultResult], found)
