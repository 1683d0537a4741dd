"""`floodway report`: what a job came to, from its ledger and its batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodway.cli.arguments import AsJson, Job, find_or_root, writable
from floodway.cli.view.output import latency_line, losses_row, losses_table, print_json

if TYPE_CHECKING:
    from floodway.job.status.status import Status


def report(
    job: Job,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained HTML file with the plots.")] = None,
    as_json: AsJson = False,
) -> None:
    """Report on a job: what came, what was lost and why, how late results were, and what to do next.

    Works on any job that has left its state, also one that was killed or went on later: rates are over the time in
    which it ran. Exit code 1 if the ledger does not add up.

    Example: floodway report clicks --html report.html
    """
    from floodway.cli.view.page import report_html, report_of

    writable("--html", html)
    found = report_of(find_or_root(job))
    if html is not None:
        html.write_text(report_html(found), encoding="utf-8")
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found, html)
    if found.differences:
        raise typer.Exit(1)


def _print(found: Any, html: Path | None) -> None:
    from rich.console import Console
    from rich.markup import escape

    from floodway.job.status.parts import would_words

    status: Status = found.status
    table = losses_table("place", title=f"{found.name}: what arrived, what was lost")
    for at, place in status.places.items():
        table.add_row(at, *losses_row(place.offered, place.kept, place.dropped))
    console = Console()
    console.print(table)
    body = found.to_dict()
    pauses = f" without {found.pauses} pause(s)" if found.pauses else ""
    console.print(f"{body['begin']} to {body['end']}: ran {found.seconds:.0f} s{pauses}, mode {body['mode']}")
    console.print(latency_line(status.latency))
    if status.totals.recovered:
        console.print(f"recovered: {status.totals.recovered_words}")
    if status.behind is not None:
        console.print(f"at the end: {status.behind.words}")
    if status.would_drop_tuples:
        console.print(f"at the end{would_words(status.would_drop_tuples).replace(';', ',')}")
    if status.accuracy is not None:
        console.print(f"accuracy: {escape(status.accuracy.words)}")
    if found.score is not None and found.optimum:
        console.print(f"score: {found.score:.4g} of {found.optimum:.4g} weighted tuples/s")
    console.print(f"ledger: {'DOES NOT RECONCILE' if found.differences else 'reconciled'}")
    for line in found.differences:
        console.print(f"  {escape(line)}")
    console.print("what to do next:")
    for line in found.advice:
        console.print(f"  {escape(line)}")
    if html is not None:
        console.print(f"report: {html}")
