"""What a task asks of a participant, and the task itself: the unit that contracts move.

Units: CPU in CPU-seconds per second, link in the same unit as the participant's link capacity (a share, or bytes/s),
rate in input tuples/s. `units` of a task is what prices multiply: the two sides of a contract agree what one unit of
load is (contracts paper, section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from floodway.errors import ContractError


@dataclass(frozen=True, slots=True)
class Load:
    """Load on a participant's resources; loads add up.

    >>> Load(0.25, 0.5) + Load(0.25, 0.25)
    Load(cpu=0.5, link=0.75, rate=0.0)
    """

    cpu: float = 0.0
    link: float = 0.0
    rate: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(self.cpu + other.cpu, self.link + other.link, self.rate + other.rate)

    def __sub__(self, other: Load) -> Load:
        return Load(self.cpu - other.cpu, self.link - other.link, self.rate - other.rate)

    @property
    def valid(self) -> bool:
        """Whether every part is a finite number and none is negative."""
        return all(isfinite(part) and part >= 0 for part in (self.cpu, self.link, self.rate))


NO_LOAD = Load()


@dataclass(frozen=True, slots=True)
class Task:
    """A fragment of a query that can move: the name is its own, the kind names an entry of both catalogues.

    `query` says which continuous query it belongs to, so that selection can keep a query's tasks together.
    """

    name: str
    load: Load
    units: float = 1.0
    kind: str = "task"
    query: str = ""
    origin: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ContractError("a task has no name", hint="Give every task a name of its own")
        if not self.load.valid:
            raise ContractError(f"task {self.name!r} has the load {self.load}", hint="Give finite numbers of 0 or more")
        if not (isfinite(self.units) and self.units > 0):
            raise ContractError(
                f"task {self.name!r} has {self.units} units of load",
                hint="Prices multiply units: give a number above 0",
            )


def total(tasks: Iterable[Task]) -> Load:
    """The load of all tasks together."""
    found = NO_LOAD
    for task in tasks:
        found += task.load
    return found
