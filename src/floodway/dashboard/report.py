"""The report of a job, from its state: what came, what was lost and why, how late results were, what to do.

Counts come from the ledger, latencies from the batches on record. Where the folder holds one run that left its own
report, its latency, score and optimum are taken, which leave out the start; else they are over all that is there.
Rates are over the seconds in which the job ran: the pauses between two runs in one folder do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from floodway.agent.loop.run_files import saved_report
from floodway.dashboard.advice import advice
from floodway.dashboard.board import unheard
from floodway.dashboard.gauge import Flow, Gauge
from floodway.dashboard.past import Sample, whole
from floodway.dashboard.sources import Reading, StateSource
from floodway.errors import InputError
from floodway.job.places import JobPlace
from floodway.job.status.batches import Batch, BatchReader
from floodway.job.status.figures import Figures
from floodway.job.status.latencies import Latency
from floodway.job.status.status import Rates, Status
from floodway.network.model import Network


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report says; times in seconds since 1970, counts in tuples, score in weighted tuples/s.

    `status` is the job's last one with the figures of the whole run. `seconds` are those in which the job ran, `modes`
    all modes it ran in with their ledger lines, and the samples' time counts from 0 without the pauses.
    """

    name: str
    status: Status
    network: Network | None
    begin: float
    end: float
    seconds: float
    pauses: int
    modes: dict[str, int]
    flow: Flow | None
    score: float | None
    optimum: float | None
    samples: tuple[Sample, ...]
    batches: tuple[Batch, ...]
    advice: tuple[str, ...]

    @property
    def differences(self) -> tuple[str, ...]:
        """Every way in which the ledger does not add up."""
        return self.status.ledger.differences if self.status.ledger else ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `floodway report`."""
        return {
            **self.status.to_dict(),
            "name": self.name,
            "begin": calendar(self.begin),
            "end": calendar(self.end),
            "seconds": self.seconds,
            "pauses": self.pauses,
            "mode": ", ".join(self.modes),
            **self.status.counts().to_dict(),
            "reconciled": not self.differences,
            "differences": list(self.differences),
            "score": self.score,
            "optimum": self.optimum,
            "load": dict(self.flow.load) if self.flow else {},
            "batches": [batch.to_dict() for batch in self.batches],
            "advice": list(self.advice),
        }


def make_report(root: Path | str, *, name: str | None = None) -> Report:
    """The report of the job at this place, under its own name or another; InputError unless it holds one ledger."""
    job, reading, figures = _only_job(root)
    running = figures.fold.timeline.running
    spans, seconds = running.spans, float(running.count())
    told = saved_report(job.folder) if job.folder is not None and len(spans) == 1 else {}
    gauge = Gauge(reading.network) if reading.network else None
    flow = gauge.measured(figures.fold.total, seconds) if gauge else None
    score = told.get("score", flow.score if flow else None)
    optimum = told.get("optimum", flow.optimum if flow else None)
    status = _over_all(reading, figures, seconds)
    if told.get("latency", {}).get("mean") is not None:  # what came out after the start, where anything did
        status = replace(status, latency=Latency(**told["latency"]))
    modes = dict(figures.fold.modes)
    return Report(
        name=name or reading.name,
        status=status,
        network=reading.network,
        begin=float(spans[0][0]),
        end=float(spans[-1][1] + 1),
        seconds=seconds,
        pauses=len(spans) - 1,
        modes=modes,
        flow=flow,
        score=score,
        optimum=optimum,
        # Drawn without the pauses.
        samples=tuple(replace(one, time=float(running.until(int(one.time) - 1))) for one in whole(reading, gauge)),
        batches=tuple(_batches(job)),
        advice=tuple(
            advice(status, network=reading.network, seconds=seconds, modes=modes, score=score, optimum=optimum)
        ),
    )


def calendar(seconds: float) -> str:
    """A time as people read it.

    >>> calendar(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _over_all(reading: Reading, figures: Figures, seconds: float) -> Status:
    """The last status, with latency, rates and keep over the whole run."""
    status = reading.status or unheard(reading)
    offered, kept = status.totals.offered, status.totals.kept
    return replace(
        status,
        latency=figures.latencies.latency(status.latency.target),
        rates=Rates(offered / seconds, kept / seconds),
        keep=kept / offered if offered else 1.0,
    )


def _only_job(root: Path | str) -> tuple[JobPlace, Reading, Figures]:
    source = StateSource([root])
    found = [
        (source.job(reading.place), reading, reading.figures)
        for reading in source.read()
        if reading.figures is not None and reading.figures.fold.timeline.running.spans
    ]
    if not found:
        raise InputError(f"{root} holds no ledger with any batch", hint="Give the name of a job, or its folder")
    if len(found) > 1:
        named = ", ".join(f"{job.place} ({reading.name})" for job, reading, _ in found)
        raise InputError(f"{root} holds {len(found)} jobs", hint=f"A report is on one of them: {named}")
    return found[0]


def _batches(job: JobPlace) -> list[Batch]:
    found = [batch for store in job.records() for batch in BatchReader(store).advance() or ()]
    return sorted(found, key=lambda batch: batch.ended_seconds)
