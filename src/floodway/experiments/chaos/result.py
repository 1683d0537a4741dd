"""What a fault hands back: how often it was tried, and every way in which the promises did not hold.

    lost         tuples that the journaled decisions keep and the sink does not hold
    doubled      tuples that a sink holds more than once
    differences  sentences: what ledger, journal, logs and sinks do not agree on, and what hung
    untried      what this machine could not try, and why: no success, though no promise was broken

One function a fault, `run(trial) -> FaultResult`; `registry.py` names them all. Everything is chosen by the seed: the
same seed tries the same points, though a busy machine may reach them at other moments.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodway.json_text import plain_fields

Progress = Callable[[float, str], None]
MOST_DIFFERENCES = 20


@dataclass(frozen=True, slots=True)
class Trial:
    """One campaign against one kind of fault: how many points to try, the randomness, and a folder of its own."""

    points: int
    seed: int
    folder: Path
    progress: Progress = lambda share, text: None
    kafka_libs: Path | None = None
    kafka_connector: Path | None = None

    def rng(self, name: str) -> random.Random:
        """Randomness of its own for each part of a campaign."""
        return random.Random(f"{self.seed}/{name}")


@dataclass(slots=True)
class FaultResult:
    """One line of the table.

    >>> result = FaultResult("run-kills", tried=3)
    >>> result.holds, result.to_dict()["differences"]
    (True, [])
    """

    id: str
    tried: int = 0
    lost: int = 0
    doubled: int = 0
    differences: list[str] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)
    untried: str | None = None

    @property
    def holds(self) -> bool:
        """Whether every promise held."""
        return not (self.lost or self.doubled or self.differences)

    def add(self, found: JobFindings) -> None:
        """Take in what was found after a point."""
        self.lost += found.lost
        self.doubled += found.doubled
        self.differences += found.differences
        if found.repeated is not None:
            self.detail["repeated"] = found.repeated

    def to_dict(self) -> dict[str, Any]:
        """As in the `--json` output; of many differences the first ones."""
        found = plain_fields(self, "detail") | {"differences": self.differences[:MOST_DIFFERENCES]}
        return found | ({"detail": self.detail} if self.detail else {})


@dataclass(slots=True)
class JobFindings:
    """What a look at one job's files found."""

    lost: int = 0
    doubled: int = 0
    differences: list[str] = field(default_factory=list)
    repeated: int | None = None
    """Repeated tries of batches that were compared with the first, where the sink holds every try."""
