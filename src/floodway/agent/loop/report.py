"""The figures of a run: what was offered, kept and dropped, how late results were, and how good the mix was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from floodway.job.ledger.fold import Counts
from floodway.job.status.latencies import Latency


@dataclass(frozen=True, slots=True)
class Point:
    """One finished micro-batch, for plots: seconds since the start of the run."""

    fragment: str
    seconds: float
    batch_seconds: float
    latency_seconds: float | None
    offered: int
    kept: int
    scale: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """All figures of a run. `score` and `optimum` are weighted tuples/s over the measured part (see `measured`).

    `counts` are the ledger's sums.

    `optimum` is the LP's best for what the same batches were offered and the capacity the engine turned out to have:
    what was kept asked for `capacity_scale` times the nominal CPU of the busiest node. `nominal_optimum` is for the
    capacity the file declares. `load` is what was kept, in CPU-seconds per second; `costs` are CPU-seconds per tuple
    and `selectivities` tuples out per tuple in, as the batches showed them.
    """

    counts: Counts
    differences: tuple[str, ...]
    latency: Latency
    score: float
    optimum: float
    nominal_optimum: float
    load: Mapping[str, float]
    throughput: Mapping[str, float]
    rates: Mapping[str, float]
    capacity_scale: float
    measured_seconds: float
    mode: str
    unreachable: bool
    floor_seconds: float | None
    costs: Mapping[str, float]
    selectivities: Mapping[str, float]
    points: tuple[Point, ...]
    deadlines: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `floodway run`."""
        return {
            **self.counts.to_dict(),
            "reconciled": not self.differences,
            "differences": list(self.differences),
            "latency": self.latency.to_dict(),
            "score": self.score,
            "optimum": self.optimum,
            "nominal_optimum": self.nominal_optimum,
            "load": dict(self.load),
            "throughput": dict(self.throughput),
            "rates": dict(self.rates),
            "capacity_scale": self.capacity_scale,
            "measured_seconds": self.measured_seconds,
            "mode": self.mode,
            "unreachable": self.unreachable,
            "floor_seconds": self.floor_seconds,
            "costs": dict(self.costs),
            "selectivities": dict(self.selectivities),
            "deadlines": dict(self.deadlines),
        }
