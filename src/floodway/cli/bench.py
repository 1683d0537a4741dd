"""`floodway bench`: measure against goals and alternatives, as ratios taken in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from floodway.cli.arguments import AsJson, Conf, parse_conf
from floodway.cli.view.campaign import own_home, print_list, progress_bar, summary
from floodway.cli.view.output import print_json

REGISTRY = "floodway.experiments.bench.registry"
"""Benchmarks live beside the experiments and are loaded by name."""
LINES_SHOWN = 12


def bench(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids or groups (planning, spark, kafka, shed).")] = None,
    as_json: AsJson = False,
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
        known = {name: registry.BENCHMARKS[name] for name in chosen}
        listed = [{"id": name, "group": one.group, "title": one.title} for name, one in known.items()]
        print_list("benchmarks", listed, ("id", "title"), as_json=as_json)
        return
    results: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for name in chosen:
        started = time.perf_counter()
        try:
            result = _measured(registry.load(name, servers=kafka, conf=settings), name, long=long)
        except Exception as error:
            # One that cannot run (no Java, no memory) must not cost the figures of the others.
            failed.append({"id": name, "error": _one_line(error)})
            typer.echo(f"{name} failed: {_one_line(error)}", err=True)
            continue
        results.append(result.to_dict(seconds=time.perf_counter() - started))
    if as_json:
        print_json({"results": results, "failed": failed})
    else:
        _print(results)
    if failed:
        raise typer.Exit(1)


def _measured(run: Callable[..., Any], name: str, *, long: bool) -> Any:
    with progress_bar(name) as advance, own_home():
        advance(0.0, "")
        return run(long=long, progress=lambda share: advance(share, ""))


def _print(results: Sequence[Mapping[str, Any]]) -> None:
    for result in results:
        verdict = "holds" if result["holds"] else "MISSED"
        typer.echo(f"{result['id']}  {verdict}  ({result['seconds']:.1f} s)")
        figures = f"ours {result['ours']:.4g}, peer {result['peer']:.4g} {result['unit']}; ratio {result['ratio']:.3g}"
        typer.echo(f"    {figures}\n    goal: {result['goal']}")
        typer.echo("".join(f"    {line}\n" for line in summary(result["detail"], most_lines=LINES_SHOWN).splitlines()))
    missed = [result["id"] for result in results if not result["holds"]]
    reached = len(results) - len(missed)
    typer.echo(f"{reached} of {len(results)} goals reached" + (f"; not: {', '.join(missed)}" if missed else ""))


def _one_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:400]
