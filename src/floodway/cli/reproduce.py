"""`floodway reproduce`: run the papers' experiments and print each claim beside what was measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from floodway.cli.checks import usable_folder, writable
from floodway.cli.output import print_json
from floodway.errors import InputError

REGISTRY = "floodway.experiments.registry"
"""Experiments are loaded by name: the command line knows their registry, not their code (decision 0045)."""
LINES_SHOWN = 6


class Found(Protocol):
    """What the command needs of a result."""

    @property
    def id(self) -> str:
        """Its id, such as buffer-fig3."""

    @property
    def title(self) -> str:
        """What it is about."""

    @property
    def paper(self) -> Any:
        """The claim: source, where, text."""

    @property
    def measured(self) -> Mapping[str, Any]:
        """All numbers, as JSON can hold them."""

    @property
    def holds(self) -> bool:
        """Whether the claim holds here."""

    @property
    def where(self) -> str:
        """simulation, spark or computation."""

    @property
    def headline(self) -> str:
        """The numbers that matter, in a line."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know."""

    def as_json(self, *, seconds: float) -> dict[str, Any]:
        """The result for scripts."""
        ...

    def save_plots(self, directory: Path) -> list[Path]:
        """Draw the plots into a directory."""
        ...


def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(help="Experiments; all short ones when none is named.")] = None,
    long: Annotated[bool, typer.Option("--long", help="Also those of several minutes, when none is named.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
    plots: Annotated[Path | None, typer.Option(help="Write plots as PNG into this directory.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write one HTML file with the table and every plot.")] = None,
    trace: Annotated[Path | None, typer.Option(help="A CSV of arrivals per bin to run on as well.")] = None,
    seeds: Annotated[int, typer.Option(help="How many random seeds to run where an experiment is random.")] = 10,
    list_only: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
) -> None:
    """Run experiments of the papers: the claim, what was measured, and whether it holds.

    All short ones when none is named. Exits with 1 if any claim does not hold.

    Example: floodway reproduce --html papers.html
    """
    registry = import_module(REGISTRY)
    every = [name for name in registry.EXPERIMENTS if long or list_only or name not in registry.LONG]
    chosen = list(dict.fromkeys(ids or every))
    modules = {name: registry.load(name) for name in chosen}
    if list_only:
        _list(modules, as_json=as_json)
        return
    if seeds < 1:
        raise InputError(f"--seeds {seeds} runs nothing", hint="Give at least 1; the papers' checks use 10")
    if trace is not None and not trace.is_file():
        raise InputError(f"--trace {trace} is not a file", hint="Give the path of a CSV with one count a line")
    usable_folder("--plots", plots)
    writable("--html", html)
    found = [
        _run(f"{place}/{len(modules)} {name}", module, range(1, seeds + 1), trace, plots, quiet=as_json)
        for place, (name, module) in enumerate(modules.items(), start=1)
    ]
    if html is not None:
        from floodway.cli.reproduce_html import reproduce_html

        html.write_text(reproduce_html(found), encoding="utf-8")
    if as_json:
        results = [result.as_json(seconds=seconds) for result, seconds in found]
        print_json({"results": results, "holds": all(result.holds for result, _ in found)})
    else:
        _print(found)
    if not all(result.holds for result, _ in found):
        raise typer.Exit(1)


def _run(
    name: str, module: Any, seeds: Sequence[int], trace: Path | None, plots: Path | None, *, quiet: bool
) -> tuple[Found, float]:
    started = time.perf_counter()
    with _bar(name, quiet=quiet) as advance:
        result: Found = module.run(seeds=seeds, trace=trace, progress=advance)
    seconds = time.perf_counter() - started
    if plots is not None:
        result.save_plots(plots)
    return result, seconds


@contextmanager
def _bar(name: str, *, quiet: bool) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr, drawn only on a terminal and never beside `--json`."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn(name), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(name, total=1.0)
        yield lambda fraction: bar.update(task, completed=min(1.0, max(0.0, fraction)))


def _list(modules: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"experiments": [{"id": name, "title": m.TITLE} for name, m in modules.items()]})
        return
    width = max(map(len, modules))
    for name, module in modules.items():
        typer.echo(f"{name:<{width}}  {module.TITLE}")


def _print(found: Sequence[tuple[Found, float]]) -> None:
    table = Table("id", "paper's claim", "measured", "holds", "ran in", "seconds", show_lines=True)
    for result, seconds in found:
        claim = f"{result.paper.where}: {result.paper.text}"
        verdict = "[green]yes[/green]" if result.holds else "[red]NO[/red]"
        table.add_row(
            result.id,
            escape(claim),
            escape(result.headline or summary(result.measured)),
            verdict,
            result.where,
            f"{seconds:.1f}",
        )
    Console().print(table)
    failed = [result.id for result, _ in found if not result.holds]
    typer.echo(f"{len(found) - len(failed)} of {len(found)} hold" + (f"; not: {', '.join(failed)}" if failed else ""))


def summary(measured: Mapping[str, Any]) -> str:
    """A few lines of the numbers: those at the top, and one line for each variant's; `--json` has them all.

    >>> print(summary({"optimum": 0.6, "EDF": {"misses": 0.0125, "by_seed": [0.01, 0.02]}}))
    optimum 0.6
    EDF: misses 0.0125
    """
    lines: list[str] = []
    for name, value in measured.items():
        if isinstance(value, Mapping):
            numbers = _numbers(value)
            lines += [f"{name}: {numbers}"] if numbers else [f"{name}: {len(value)} entries"]
        elif isinstance(value, (int, float, str)):
            lines.append(f"{name} {_short(value)}")
    more = len(lines) - LINES_SHOWN
    return "\n".join(lines[:LINES_SHOWN] + ([f"... {more} more in --json"] if more > 0 else []))


def _numbers(values: Mapping[str, Any]) -> str:
    flat = {key: value for key, value in values.items() if isinstance(value, (int, float))}
    return ", ".join(f"{key} {_short(value)}" for key, value in list(flat.items())[:4])


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
