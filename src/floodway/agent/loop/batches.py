"""Figures of a job's batches, one JSON line each, for a report over several processes and their restarts.

These are measurements, not accounts: the newest are kept, some 64 MiB of them. The accounts are in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from floodway.agent.loop.run_files import BATCHES
from floodway.job.kept_lines import KeptLines
from floodway.job.store import LocalStore
from floodway.spark.query.fragment_query import BatchReport

STEP_MS = 10
"""Latencies are kept in steps of this many milliseconds."""


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """One finished batch: when it was cut and ended (seconds since 1970), the work it kept, what it delivered.

    The time of the cut is the wall clock's, as in the ledger; the batch's length is that of a clock that does not step.

    `work_seconds` are seconds of the node's nominal CPU; `latencies` are [milliseconds, tuples] at the outputs of the
    network, counted from a tuple's first arrival at any node.
    """

    query: str
    batch: int
    cut_seconds: float
    ended_seconds: float
    work_seconds: float
    scale: float
    delivered: Mapping[str, int]
    latencies: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, report: BatchReport, outputs: Iterable[str], work_seconds: float, scale: float) -> BatchFigures:
        """The figures of a batch; `outputs` are those of the whole network."""
        pairs = [
            report.delivered[name].latencies_seconds(report.ended_seconds)
            for name in outputs
            if name in report.delivered
        ]
        steps: dict[int, int] = {}
        for seconds, tuples in pairs:
            for step, count in zip(np.round(seconds * 1e3 / STEP_MS).astype(int), tuples, strict=True):
                steps[int(step) * STEP_MS] = steps.get(int(step) * STEP_MS, 0) + int(count)
        return cls(
            query=report.query,
            batch=report.journal.batch,
            cut_seconds=report.journal.timestamp_ms / 1e3,
            ended_seconds=report.journal.timestamp_ms / 1e3 + report.seconds,
            work_seconds=work_seconds,
            scale=scale,
            delivered={name: written.rows for name, written in report.delivered.items()},
            latencies=tuple(sorted(steps.items())),
        )


class BatchLog:
    """The figures in a job's folder, below `batches/`."""

    def __init__(self, root: Path) -> None:
        self._lines = KeptLines(LocalStore(root), BATCHES)

    def append(self, figures: BatchFigures) -> None:
        """Add a batch."""
        self._lines.append([asdict(figures)])

    def read(self) -> list[BatchFigures]:
        """All that are kept; a batch that was repeated after a crash counts once, as it ended last."""
        found: dict[tuple[str, int], BatchFigures] = {}
        for body in self._lines.read():
            try:
                body["latencies"] = tuple((int(ms), int(count)) for ms, count in body["latencies"])
                figures = BatchFigures(**body)
            except (ValueError, TypeError, KeyError):
                continue  # of another version, or written by somebody else
            found[figures.query, figures.batch] = figures
        return list(found.values())


def latencies_of(figures: Iterable[BatchFigures]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Latencies in seconds, with how many tuples had each."""
    pairs = [pair for item in figures for pair in item.latencies]
    if not pairs:
        return np.zeros(0), np.zeros(0, dtype=np.int64)
    values = np.array(pairs, dtype=np.int64)
    return values[:, 0] / 1e3, values[:, 1]
