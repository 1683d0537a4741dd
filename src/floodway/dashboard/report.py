"""The report of a finished run, from its folder: what came, what was lost and why, how late results were, what to do.

Counts come from the ledger, latencies from the figures of the batches. Where the folder holds one run that left its own
report, its latency, score and optimum are taken, which leave out the start; else they are over all that is there.
Rates are over the seconds in which the job ran: the pauses between two runs in one folder do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from floodway.agent.loop.batches import BatchLog, latencies_of
from floodway.agent.loop.report import Latency
from floodway.agent.loop.run_files import node_folders, saved_report
from floodway.dashboard.advice import advice
from floodway.dashboard.board import waiting
from floodway.dashboard.figures import Figures, Gauge
from floodway.dashboard.history import Sample
from floodway.dashboard.past import whole
from floodway.dashboard.sources import Reading, StateSource
from floodway.errors import InputError
from floodway.job.fold import Counts, Fold


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report says; times in seconds since 1970, counts in tuples, score in weighted tuples/s.

    `seconds` are those in which the job ran, `mode` names all modes it ran in, and the samples' time counts from 0
    without the pauses.
    """

    name: str
    reading: Reading
    begin: float
    end: float
    seconds: float
    pauses: int
    counts: Counts
    differences: tuple[str, ...]
    latency: dict[str, float | None]
    mode: str
    figures: Figures | None
    score: float | None
    optimum: float | None
    samples: tuple[Sample, ...]
    advice: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `floodway report`."""
        return {
            "name": self.name,
            "begin": calendar(self.begin),
            "end": calendar(self.end),
            "seconds": self.seconds,
            "pauses": self.pauses,
            "mode": self.mode,
            "offered": dict(self.counts.offered),
            "kept": dict(self.counts.kept),
            "dropped": self.counts.by_place(),
            "delivered": dict(self.counts.delivered),
            "reconciled": not self.differences,
            "differences": list(self.differences),
            "latency": dict(self.latency),
            "score": self.score,
            "optimum": self.optimum,
            "load": dict(self.figures.load) if self.figures else {},
            "advice": list(self.advice),
        }


def make_report(root: Path, *, name: str | None = None) -> Report:
    """The report of the run in this folder, under its own name or another; InputError unless it holds one ledger."""
    folder, reading, account = _only_job(root)
    running = account.timeline.running
    spans, seconds = running.spans, float(running.count())
    told = saved_report(folder) if len(spans) == 1 else {}
    gauge = Gauge(reading.network) if reading.network else None
    figures = gauge.measured(account.total, seconds) if gauge else None
    latency = told.get("latency") or {}
    if latency.get("mean") is None:  # nothing came out after the start: take what came out at all
        latency = _latency(folder, reading)
    score = told.get("score", figures.score if figures else None)
    optimum = told.get("optimum", figures.optimum if figures else None)
    differences = tuple(account.differences())
    return Report(
        name=name or reading.name,
        reading=reading,
        begin=float(spans[0][0]),
        end=float(spans[-1][1] + 1),
        seconds=seconds,
        pauses=len(spans) - 1,
        counts=account.total,
        differences=differences,
        latency=latency,
        mode=", ".join(account.modes),
        figures=figures,
        score=score,
        optimum=optimum,
        # Drawn without the pauses.
        samples=tuple(replace(one, time=float(running.until(int(one.time) - 1))) for one in whole(reading, gauge)),
        advice=tuple(
            advice(
                network=reading.network,
                counts=account.total,
                seconds=seconds,
                modes=account.modes,
                latency=latency,
                unreachable=bool(reading.status.get("unreachable")),
                floor_seconds=reading.status.get("floor_seconds"),
                score=score,
                optimum=optimum,
                differences=len(differences),
                waiting=sum(waiting(reading.status, account.total).values()),
            )
        ),
    )


def calendar(seconds: float) -> str:
    """A time as people read it.

    >>> calendar(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _only_job(root: Path) -> tuple[Path, Reading, Fold]:
    found = [
        (Path(reading.place), reading, reading.account)
        for reading in StateSource([root]).read()
        if reading.account is not None and reading.account.timeline.running.spans
    ]
    if not found:
        raise InputError(
            f"{root} holds no ledger with any batch", hint="Give the folder that `floodway run --state` was given"
        )
    if len(found) > 1:
        named = ", ".join(f"{folder} ({reading.name})" for folder, reading, _ in found)
        raise InputError(f"{root} holds {len(found)} jobs", hint=f"A report is on one of them: {named}")
    return found[0]


def _latency(root: Path, reading: Reading) -> dict[str, float | None]:
    figures = [one for path in node_folders(root) or [root] for one in BatchLog(path).read()]
    target = reading.status.get("target_seconds")
    return {**Latency.of(*latencies_of(figures), target or 0.0).to_dict(), "target": target}
