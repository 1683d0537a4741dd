"""The report of a job, from its state: what came, what was lost and why, how late results were, what to do.

Counts come from the ledger, latencies from the batches on record. Where the folder holds one run that left its own
report, its latency, score and optimum are taken, which leave out the start; else they are over all that is there.
Rates are over the seconds in which the job ran: the pauses between two runs in one folder do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from floodway.agent.loop.run_files import saved_report
from floodway.dashboard.advice import WHY, advice
from floodway.dashboard.gauge import Flow, Gauge
from floodway.dashboard.job_sources import Reading, StateSource, unheard
from floodway.dashboard.network_svg import network_svg
from floodway.dashboard.past import PastSample, whole
from floodway.dashboard.svg_chart import COLOURS, Series, chart, duration
from floodway.errors import InputError
from floodway.job.places import JobPlace
from floodway.job.status.batches import Batch, BatchReader, Latency
from floodway.job.status.figures import Figures
from floodway.job.status.parts import would_words
from floodway.job.status.status import Rates, Status
from floodway.network.model import Network


@dataclass(frozen=True, slots=True)
class JobReport:
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
    samples: tuple[PastSample, ...]
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


def make_report(root: Path | str, *, name: str | None = None) -> JobReport:
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
    return JobReport(
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


OWN_STYLE = """
main{display:block} .tile b{font-size:1.2rem;overflow-wrap:normal}
.charts{display:grid;gap:0 14px} .charts section{grid-column:auto;min-width:0}
@media (min-width:860px){.charts{grid-template-columns:1fr 1fr}}
@media (max-width:480px){.chart text{font-size:16px}}
"""


def to_html(*reports: JobReport, title: str | None = None) -> str:
    """One self-contained HTML file: no script, nothing fetched, light and dark."""
    style = files("floodway.dashboard").joinpath("static", "page.css").read_text("utf-8")
    name = title or " and ".join(report.name for report in reports)
    body = "".join(_section(report) for report in reports)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)} – Floodway report</title><style>{style}{OWN_STYLE}</style></head>"
        f"<body><header><h1>Floodway <span>report: {escape(name)}</span></h1></header><main>{body}</main></body></html>"
    )


def _section(report: JobReport) -> str:
    parts = [
        f"<h2>{escape(report.name)}: {calendar(report.begin)} to {calendar(report.end)}, {escape(_ran(report))}, "
        f"mode {escape(', '.join(report.modes))}</h2>",
        f"<p>{escape(_sentence(report))}</p>",
        "<section><h2>What to do next</h2><ul>",
        *(f"<li>{_code(text)}</li>" for text in report.advice),
        "</ul></section>",
        _tiles(report),
        _lost(report),
        _keys(report),
    ]
    if report.network is not None:
        drawing = network_svg(report.network, report.flow)
        parts.append(f'<section><h2>What flowed, on average</h2><div class="scroll">{drawing}</div></section>')
    return "".join([*parts, f'<div class="charts">{"".join(_charts(report))}</div>'])


def _ran(report: JobReport) -> str:
    pauses = "" if not report.pauses else f" without {report.pauses} pause{'s' if report.pauses > 1 else ''}"
    return f"{duration(report.seconds)}{pauses}"


def _sentence(report: JobReport) -> str:
    totals, latency = report.status.totals, report.status.latency
    text = f"{totals.offered:,} tuples came, {totals.kept:,} were kept at the inputs"
    inside = sum(totals.dropped.values()) - (totals.offered - totals.kept)
    text += f", {inside:,} were dropped on branches inside" if inside else ""
    text += f", {totals.recovered:,} dropped ones were processed later" if totals.recovered else ""
    text += would_words(report.status.would_drop_tuples)
    text += f"; at the end {report.status.behind.words}" if report.status.behind is not None else ""
    if latency.mean is not None and latency.target:
        text += f"; results were {latency.mean:.2f} s old on average, the target was {latency.target:g} s"
    return f"{text}. The ledger {'accounts for every one' if not report.differences else 'does not add up'}."


def _tiles(report: JobReport) -> str:
    def seconds(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f} s"

    latency = report.status.latency
    share = f"{report.score / report.optimum:.1%}" if report.score is not None and report.optimum else "–"
    tiles = {
        "latency, mean": seconds(latency.mean),
        "half below": seconds(latency.p50),
        "95% below": seconds(latency.p95),
        "99% below": seconds(latency.p99),
        "of the best score": share,
        "ledger": "differs" if report.differences else "reconciled",
    }
    totals = report.status.totals
    if totals.recovered:
        tiles["recovered"] = totals.recovered_words
    accuracy = report.status.accuracy
    if accuracy is not None:
        tiles[f"95% bounds of {accuracy.aggregate}, at most {accuracy.within:.1%}"] = (
            "–" if accuracy.bound is None else f"{accuracy.bound:.1%}"
        )
    cells = "".join(
        f'<div class="tile"><dt>{escape(key)}</dt><dd><b>{text}</b></dd></div>' for key, text in tiles.items()
    )
    return f'<dl class="tiles">{cells}</dl>'


def _lost(report: JobReport) -> str:
    rows = []
    for at, place in report.status.places.items():
        why = "; ".join(f"{count:,} {WHY.get(reason, reason)} ({reason})" for reason, count in place.dropped.items())
        share = place.kept / place.offered if place.offered else 1.0
        rows.append(
            f"<tr><td>{escape(at)}</td><td>{place.offered:,}</td><td>{place.kept:,}</td><td>{share:.1%}</td>"
            f"<td>{escape(why or 'nothing')}</td></tr>"
        )
    wrong = "".join(f"<li>{escape(text)}</li>" for text in report.differences)
    return (
        '<section><h2>What was lost, and why</h2><div class="scroll"><table><thead><tr><th>place</th><th>offered</th>'
        f"<th>kept</th><th>share kept</th><th>lost</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f"{f'<ul id=differences>{wrong}</ul>' if wrong else ''}</section>"
    )


def _keys(report: JobReport) -> str:
    """The keys that sent most, where tuples have shares by key."""
    rows = "".join(
        f"<tr><td>{escape(one.key)}</td><td>{one.share:.1%}</td><td>{one.keep:.1%}</td></tr>"
        for one in report.status.keys
    )
    return (
        "<section><h2>Keys that sent most at the end</h2><table><thead><tr><th>key</th><th>of the input</th>"
        f"<th>kept</th></tr></thead><tbody>{rows}</tbody></table></section>"
        if rows
        else ""
    )


def _charts(report: JobReport) -> list[str]:
    samples = report.samples
    times = [sample.time for sample in samples]
    reasons = sorted({reason for sample in samples for reason in sample.dropped})
    latency = [
        Series("mean latency of results (s)", [sample.latency for sample in samples]),
        Series("target (s)", [sample.target for sample in samples], dashed=True),
    ]
    tuples = [
        Series("kept (tuples/s)", [sample.kept for sample in samples], area=True),
        *(
            Series(
                f"dropped: {reason}",
                [sample.dropped.get(reason, 0.0) for sample in samples],
                colour=COLOURS[1 + index % 5],
                area=not reason.endswith("inside"),
            )
            for index, reason in enumerate(reasons)
        ),
        Series("offered", [sample.offered for sample in samples], dashed=True),
    ]
    score = [
        Series("score (weighted tuples/s)", [sample.score for sample in samples]),
        Series("optimum for the capacity used", [sample.optimum for sample in samples], dashed=True),
    ]
    found = [
        f"<section><h2>Latency against target</h2>{chart('Latency', times, latency, unit='s')}</section>",
        f"<section><h2>Offered, kept and dropped</h2>{chart('Tuples', times, tuples, unit='tuples/s')}</section>",
    ]
    if report.flow is not None:
        drawing = chart("Score", times, score, unit="weighted tuples/s")
        found.append(f"<section><h2>Score against optimum</h2>{drawing}</section>")
    return found


def _code(text: str) -> str:
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
