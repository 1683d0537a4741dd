"""`floodway reproduce`: run the papers' experiments and print each claim beside what was measured."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from html import escape as html_escape
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from floodway.cli.arguments import AsJson, usable_folder, writable
from floodway.cli.view.campaign import own_home, print_list, progress_bar, summary
from floodway.cli.view.output import print_json
from floodway.errors import InputError

REGISTRY = "floodway.experiments.registry"
"""Experiments are loaded by name: the command line knows their registry, not their code."""
LINES_SHOWN = 6


def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(help="Experiments; all short ones when none is named.")] = None,
    long: Annotated[bool, typer.Option("--long", help="Also those of several minutes, when none is named.")] = False,
    as_json: AsJson = False,
    plots: Annotated[Path | None, typer.Option(help="Write plots as PNG into this directory.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write one HTML file with the table and every plot.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Recorded traffic, for results that take its kind.")] = None,
    seeds: Annotated[int, typer.Option(help="How many random seeds to run where an experiment is random.")] = 10,
    list_only: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
) -> None:
    """Run experiments of the papers: the claim, what was measured, and whether it holds.

    All short ones when none is named; it lists what is left out. Exits with 1 if any claim does not hold or could not
    be tried.

    Example: floodway reproduce --html papers.html
    """
    registry = import_module(REGISTRY)
    every = [name for name in registry.EXPERIMENTS if long or list_only or name not in registry.LONG]
    chosen = list(dict.fromkeys(ids or every))
    modules = {name: registry.load(name) for name in chosen}
    if list_only:
        _list(modules, registry.LONG, as_json=as_json)
        return
    if seeds < 1:
        raise InputError(f"--seeds {seeds} runs nothing", hint="Give at least 1; the papers' checks use 10")
    if trace is not None and not trace.is_file():
        raise InputError(f"--trace {trace} is not a file", hint="Give the path of a CSV")
    on_trace = () if trace is None else registry.fitting(trace, chosen)
    usable_folder("--plots", plots)
    writable("--html", html)
    left_out = [] if ids else [name for name in registry.EXPERIMENTS if name not in modules]
    found: list[Any] = []
    if trace is not None and len(on_trace) < len(chosen):
        typer.echo(f"on {trace}: {', '.join(on_trace)}; the others take no such trace", err=True)
    with progress_bar("results", quiet=as_json) as advance, own_home():
        for place, name in enumerate(modules):
            progress = partial(_advance, advance, name, place, len(modules))
            progress(0.0)
            given = trace if name in on_trace else None
            found.append(registry.reproduce(name, seeds=range(1, seeds + 1), trace=given, progress=progress))
    if plots is not None:
        for one in found:
            one.result.save_plots(plots)
    if html is not None:
        html.write_text(reproduce_html(found, left_out), encoding="utf-8")
    if as_json:
        results = [one.to_dict() for one in found]
        print_json({"results": results, "holds": all(one.result.holds for one in found), "left_out": left_out})
    else:
        _print(found)
        _say_more(left_out, html)
    if not all(one.result.holds for one in found):
        raise typer.Exit(1)


def _advance(advance: Callable[[float, str], None], name: str, place: int, count: int, share: float) -> None:
    advance((place + min(1.0, max(0.0, share))) / count, f"{place + 1}/{count} {name}")


def _list(modules: Mapping[str, Any], long: Collection[str], *, as_json: bool) -> None:
    listed = [
        {"id": name, "title": one.TITLE, "paper": one.CLAIM.paper, "long": name in long}
        for name, one in modules.items()
    ]
    for one in () if as_json else listed:
        one["title"] += " (minutes long: named, or with --long)" if one["long"] else ""
    print_list("experiments", listed, ("id", "paper", "title"), as_json=as_json)


def _print(found: Sequence[Any]) -> None:
    table = Table("id", "paper and claim", "measured", "holds", "ran in", "seconds", show_lines=True)
    for one in found:
        verdict = "[green]yes[/green]" if one.result.holds else "[red]NO[/red]"
        table.add_row(
            one.id,
            escape(f"{one.paper.paper}: {one.paper.text}"),
            _measured(one.result),
            "[red]FAILED[/red]" if one.result.failed else verdict,
            one.result.where,
            f"{one.seconds:.1f}",
        )
    Console().print(table)
    held = sum(one.result.holds for one in found)
    missed = [one.id for one in found if not one.result.holds and not one.result.failed]
    failed = [one.id for one in found if one.result.failed]
    told = f"; not: {', '.join(missed)}" if missed else ""
    typer.echo(f"{held} of {len(found)} hold{told}" + (f"; could not run: {', '.join(failed)}" if failed else ""))


def _measured(result: Any) -> str:
    text = escape(result.headline or summary(result.measured, most_lines=LINES_SHOWN))
    return text if result.holds or result.failed else f"{text}\n[red]{escape(result.reason)}[/red]"


def _say_more(left_out: Sequence[str], html: Path | None) -> None:
    """What was not run, and where the plots are: all of the results are one more word away."""
    if left_out:
        typer.echo(f"left out, minutes long: {', '.join(left_out)}; `floodway reproduce --long` runs them too")
    typer.echo(
        f"every plot beside its claim: {html}"
        if html
        else "`--html FILE` writes one page with every plot beside its claim"
    )


STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.45 system-ui, sans-serif; max-width: 1060px; margin: 0 auto; padding: 12px 16px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; } .yes { color: #2c8a4f; font-weight: 700; } .no { color: #d0472f; font-weight: 700; }
img { max-width: 100%; background: #fff; border-radius: 8px; } pre { white-space: pre-wrap; }
article { border-top: 1px solid var(--line); margin-top: 28px; }
"""


def reproduce_html(found: Sequence[Any], left_out: Sequence[str] = ()) -> str:
    """The page of these results, and the ids of those that were not run."""
    held = sum(one.result.holds for one in found)
    rows = "".join(
        f'<tr><td><a href="#{html_escape(one.id)}">{html_escape(one.id)}</a></td><td>{html_escape(one.paper.paper)}'
        f"</td><td>{html_escape(one.result.headline)}</td><td>{_verdict(one.result)}</td>"
        f"<td>{html_escape(one.result.where)}</td><td>{one.seconds:.1f}</td></tr>"
        for one in found
    )
    without = f" Left out, because they take minutes: {', '.join(left_out)} (run with --long)." if left_out else ""
    heads = "".join(f"<th>{name}</th>" for name in ("id", "paper", "measured", "holds", "ran in", "seconds"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>Floodway: results of the papers</title>'
        f"<style>{STYLE}</style></head><body><h1>Results of the papers, beside what is measured here</h1>"
        f"<p>{held} of {len(found)} hold. “simulation” ran the same policies on a simulated clock, “spark” on real "
        f"Spark, “computation” is arithmetic.{html_escape(without)}</p>"
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f"{''.join(map(_article, found))}</body></html>"
    )


def _verdict(result: Any) -> str:
    if result.failed:
        return '<span class="no">could not run</span>'
    return '<span class="yes">yes</span>' if result.holds else '<span class="no">NO</span>'


def _article(one: Any) -> str:
    result = one.result
    notes = "".join(f"<li>{html_escape(note)}</li>" for note in result.notes)
    reason = "" if result.holds else f'<p class="no">{html_escape(result.reason)}.</p>'
    with tempfile.TemporaryDirectory() as folder:
        plots = "".join(_image(path, one.title) for path in result.save_plots(Path(folder)))
    return (
        f'<article id="{html_escape(one.id)}"><h2>{html_escape(one.id)}: {html_escape(one.title)}</h2>'
        f"<p><b>{html_escape(one.paper.paper)}:</b> {html_escape(one.paper.text)}. Holds: {_verdict(result)}. "
        f"Ran in {html_escape(result.where)}, {one.seconds:.1f} s.</p>{reason}<pre>{html_escape(result.headline)}\n"
        f"{html_escape(summary(result.measured, most_lines=LINES_SHOWN))}</pre>{plots}<ul>{notes}</ul></article>"
    )


def _image(path: Path, title: str) -> str:
    text = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<p><img alt="{html_escape(title)}: {html_escape(path.stem)}" src="data:image/png;base64,{text}"></p>'
