"""A report as one HTML file: no script, nothing fetched, light and dark."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from floodway.dashboard.advice import WHY
from floodway.dashboard.network_svg import network_svg
from floodway.dashboard.report import Report, calendar
from floodway.dashboard.svg_chart import COLOURS, Series, chart, duration

OWN_STYLE = "\nmain{display:block} .tile b{font-size:1.2rem;overflow-wrap:normal}"


def to_html(*reports: Report, title: str | None = None) -> str:
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


def _section(report: Report) -> str:
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
    return "".join([*parts, *_charts(report)])


def _ran(report: Report) -> str:
    pauses = "" if not report.pauses else f" without {report.pauses} pause{'s' if report.pauses > 1 else ''}"
    return f"{duration(report.seconds)}{pauses}"


def _sentence(report: Report) -> str:
    totals, latency = report.status.totals, report.status.latency
    text = f"{totals.offered:,} tuples came, {totals.kept:,} were kept at the inputs"
    inside = sum(totals.dropped.values()) - (totals.offered - totals.kept)
    text += f", {inside:,} were dropped on branches inside" if inside else ""
    if latency.mean is not None and latency.target:
        text += f"; results were {latency.mean:.2f} s old on average, the target was {latency.target:g} s"
    return f"{text}. The ledger {'accounts for every one' if not report.differences else 'does not add up'}."


def _tiles(report: Report) -> str:
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
    cells = "".join(
        f'<div class="tile"><dt>{escape(key)}</dt><dd><b>{text}</b></dd></div>' for key, text in tiles.items()
    )
    return f'<dl class="tiles">{cells}</dl>'


def _lost(report: Report) -> str:
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


def _keys(report: Report) -> str:
    """The keys that sent most, where tuples have shares by key."""
    keys = report.status.shed.keys if report.status.shed else ()
    rows = "".join(
        f"<tr><td>{escape(one.key)}</td><td>{one.share:.1%}</td><td>{one.keep:.1%}</td></tr>" for one in keys
    )
    return (
        "<section><h2>Keys that sent most at the end</h2><table><thead><tr><th>key</th><th>of the input</th>"
        f"<th>kept</th></tr></thead><tbody>{rows}</tbody></table></section>"
        if rows
        else ""
    )


def _charts(report: Report) -> list[str]:
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
