"""`floodway bench`: measure against goals and alternatives, as ratios taken in one run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from floodway.cli.arguments import Conf, parse_conf
from floodway.cli.view.output import print_json

REGISTRY = "floodway.experiments.bench.registry"
"""Benchmarks live beside the experiments and are loaded by name."""
LINES_SHOWN = 12


def bench(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids or groups (planning, spark, kafka, shed).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="List the benchmarks and exit.")] = False,
    long: Annotated[bool, typer.Option("--long", help="More repeats: steadier figures, which take minutes.")] = False,
    kafka: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Broker for kafka and shed.")] = None,
    conf: Conf = None,
) -> None:
    """Measure Floodway against its goals and against the way one would do without it.

    Exits with 0 also where a goal is missed (see `holds`), with 1 if a benchmark failed to run.

    Example: floodway bench --list
    """
    registry = import_module(REGISTRY)
    settings = parse_conf(conf)
    chosen: list[str] = registry.choose(ids or [], kafka=kafka is not None or list_only)
    if list_only:
        _list([registry.BENCHMARKS[name] for name in chosen], chosen, as_json=as_json)
        return
    results: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for name in chosen:
        started = time.perf_counter()
        try:
            with _bar(name) as advance:
                result = registry.load(name, servers=kafka, conf=settings)(long=long, progress=advance)
        except Exception as error:
            # One that cannot run (no Java, no memory) must not cost the figures of the others.
            failed.append({"id": name, "error": _one_line(error)})
            typer.echo(f"{name} failed: {_one_line(error)}", err=True)
            continue
        results.append(result.as_json(seconds=time.perf_counter() - started))
    if as_json:
        print_json({"results": results, "failed": failed})
    else:
        _print(results)
    if failed:
        raise typer.Exit(1)


@contextmanager
def _bar(name: str) -> Iterator[Callable[[float], None]]:
    """Progress on stderr: a bar on a terminal, a line at start and end elsewhere."""
    console = Console(stderr=True)
    started = time.perf_counter()
    if not console.is_terminal:
        sys.stderr.write(f"{name} ...")
        sys.stderr.flush()
        try:
            yield lambda fraction: None
        finally:
            sys.stderr.write(f" {time.perf_counter() - started:.1f} s\n")
        return
    columns = (SpinnerColumn(), TextColumn(name), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=1.0)
        yield lambda fraction: bar.update(task, completed=min(1.0, max(0.0, fraction)))


def _list(entries: Sequence[Any], names: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        listed = [{"id": n, "group": e.group, "title": e.title} for n, e in zip(names, entries, strict=True)]
        print_json({"benchmarks": listed})
        return
    width = max(map(len, names))
    for name, entry in zip(names, entries, strict=True):
        typer.echo(f"{name:<{width}}  {entry.title}")


def _print(results: Sequence[Mapping[str, Any]]) -> None:
    for result in results:
        verdict = "holds" if result["holds"] else "MISSED"
        typer.echo(f"{result['id']}  {verdict}  ({result['seconds']:.1f} s)")
        figures = f"ours {result['ours']:.4g}, peer {result['peer']:.4g} {result['unit']}; ratio {result['ratio']:.3g}"
        typer.echo(f"    {figures}\n    goal: {result['goal']}")
        typer.echo("".join(f"    {line}\n" for line in summary(result["detail"]).splitlines()))
    missed = [result["id"] for result in results if not result["holds"]]
    reached = len(results) - len(missed)
    typer.echo(f"{reached} of {len(results)} goals reached" + (f"; not: {', '.join(missed)}" if missed else ""))


def summary(detail: Mapping[str, Any]) -> str:
    """A few lines of what was seen beside the ratio; `--json` has all of it.

    >>> print(summary({"peer": "plain scan", "rows": 7, "builds": [1.0, 2.0], "ties": {"ratio": 2.5}}))
    peer: plain scan
    rows: 7
    ties: ratio 2.5
    """
    lines: list[str] = []
    for name, value in detail.items():
        if isinstance(value, Mapping):
            numbers = [f"{key} {item:.4g}" for key, item in value.items() if isinstance(item, (int, float))]
            lines.append(f"{name}: {', '.join(numbers)}")
        elif isinstance(value, float):
            lines.append(f"{name}: {value:.4g}")
        elif isinstance(value, (int, str)):
            lines.append(f"{name}: {value}")
    more = len(lines) - LINES_SHOWN
    return "\n".join(lines[:LINES_SHOWN] + ([f"... {more} more in --json"] if more > 0 else []))


def _one_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:400]
