"""`floodway report`: what a finished run came to, from its ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from floodway.cli.checks import writable
from floodway.cli.output import print_json


def report(
    state: Annotated[Path, typer.Argument(help="Folder of the run, as given to --state.", metavar="STATE")],
    html: Annotated[Path | None, typer.Option(help="Write one self-contained HTML file with the plots.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report on a finished run: what came, what was lost and why, how late results were, and what to do next.

    Works on any run's folder, also of one that was killed or went on later: rates are over the time in which it ran.
    Exit code 1 if the ledger does not add up.

    Example: floodway report runs/shop --html report.html
    """
    from floodway.cli.page import report_html, report_of

    writable("--html", html)
    found = report_of(state)
    if html is not None:
        html.write_text(report_html(found), encoding="utf-8")
    body = found.to_dict()
    if as_json:
        print_json(body)
    else:
        _print(body, html)
    if body["differences"]:
        raise typer.Exit(1)


def _print(body: dict[str, Any], html: Path | None) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    dropped, latency = body["dropped"], body["latency"]
    table = Table("place", "offered", "kept", "dropped by reason", title=f"{body['name']}: what arrived, what was lost")
    for at, count in body["offered"].items():
        reasons = ", ".join(f"{reason} {lost:,}" for reason, lost in dropped.get(at, {}).items())
        table.add_row(at, f"{count:,}", f"{body['kept'].get(at, 0):,}", reasons or "–")
    console = Console()
    console.print(table)
    pauses = f" without {body['pauses']} pause(s)" if body["pauses"] else ""
    console.print(f"{body['begin']} to {body['end']}: ran {body['seconds']:.0f} s{pauses}, mode {body['mode']}")
    if latency.get("mean") is not None:
        shown = ", ".join(f"{key} {latency[key]:.2f}" for key in ("p50", "p95", "p99") if latency.get(key) is not None)
        console.print(f"latency: mean {latency['mean']:.2f} s, {shown}; target {latency['target']} s")
    if body["score"] is not None and body["optimum"]:
        console.print(f"score: {body['score']:.4g} of {body['optimum']:.4g} weighted tuples/s")
    console.print(f"ledger: {'reconciled' if body['reconciled'] else 'DOES NOT RECONCILE'}")
    for line in body["differences"]:
        console.print(f"  {escape(line)}")
    console.print("what to do next:")
    for line in body["advice"]:
        console.print(f"  {escape(line)}")
    if html is not None:
        console.print(f"report: {html}")
