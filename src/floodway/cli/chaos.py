"""`floodway chaos`: kill, stop, damage and cut off, and see whether the accounts still hold."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from floodway.cli.arguments import AsJson
from floodway.cli.view.campaign import own_home, print_list, progress_bar
from floodway.cli.view.output import print_json
from floodway.errors import FloodwayError, InputError

REGISTRY = "floodway.experiments.chaos.registry"
RESULT = "floodway.experiments.chaos.result"
"""Faults live beside the experiments and are loaded by name."""


def chaos(
    only: Annotated[list[str] | None, typer.Option(metavar="KIND", help="A kind or id; may be repeated.")] = None,
    points: Annotated[int | None, typer.Option(help="Points to try per kind; default a few minutes of each.")] = None,
    seed: Annotated[int, typer.Option(help="Chooses the points; the same seed tries the same ones.")] = 1,
    kafka_libs: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Jars of a Kafka broker, to start and kill one.")
    ] = None,
    kafka_connector: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Jars of Spark's Kafka connector, for the one line on a topic."),
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep the jobs' files here; default a temporary one.")] = None,
    as_json: AsJson = False,
    list_only: Annotated[bool, typer.Option("--list", help="List the faults and exit.")] = False,
) -> None:
    """Try faults against jobs that this command starts, and check what they leave to the tuple.

    Exits with 1 if anything was lost or doubled, or does not agree, and if a fault named by --only could not be tried.

    Example: floodway chaos --only disks --only networks --points 60 --seed 7
    """
    registry: Any = import_module(REGISTRY)
    chosen = registry.choose(only or [])
    if list_only:
        listed = [{name: getattr(one, name) for name in ("id", "kind", "title", "needs")} for one in chosen]
        print_list("faults", listed, ("kind", "id", "title"), as_json=as_json)
        return
    if points is not None and points < 1:
        raise InputError(f"--points {points} is not above 0", hint="Give how many faults to try, such as 25")
    jars = {"kafka_libs": kafka_libs, "kafka_connector": kafka_connector}
    lacking = {fault.id: why for fault in chosen if (why := registry.lacking(fault, **jars)) is not None}
    shares = registry.share([fault for fault in chosen if fault.id not in lacking], points)
    with tempfile.TemporaryDirectory(prefix="floodway-chaos-") as temporary, own_home():
        root = folder or Path(temporary)
        results = [
            _result(fault.id, untried=lacking[fault.id])
            if fault.id in lacking
            else _tried(registry, fault, shares[fault.id], seed, root, jars)
            for fault in chosen
        ]
    for result in results:
        if result["id"] in (only or []) and not result["tried"] and result["untried"]:
            result["differences"].append(f"could not be tried: {result['untried']}")
    if as_json:
        print_json({"points": sum(result["tried"] for result in results), "seed": seed, "results": results})
    else:
        _print(results, seed)
    if any(result["lost"] or result["doubled"] or result["differences"] for result in results):
        raise typer.Exit(1)


def _tried(
    registry: Any, fault: Any, points: int, seed: int, root: Path, jars: Mapping[str, Path | None]
) -> dict[str, Any]:
    trial: Any = import_module(RESULT).Trial
    try:
        with progress_bar(fault.id) as progress:
            result = registry.load(fault)(trial(points, seed, root / fault.id, progress, **jars))
    except FloodwayError as error:
        # What cannot run here (no Java, no memory) must not cost the others; untried, it does not hold either.
        return _result(fault.id, differences=[f"could not run: {error}"])
    body: dict[str, Any] = result.to_dict()
    if not (body["tried"] or body["differences"] or body["untried"]):
        body["untried"] = "no point was tried"
    # At once: a campaign takes hours, and the table comes at its end.
    numbers = ", ".join(f"{body[name]} {name}" for name in ("tried", "lost", "doubled"))
    typer.echo(f"{fault.id}: {numbers}, {len(body['differences'])} differences", err=True)
    return body


def _result(identity: str, **fields: Any) -> dict[str, Any]:
    """The result of a fault that did not run."""
    body: dict[str, Any] = import_module(RESULT).FaultResult(identity, **fields).to_dict()
    return body


def _print(results: Sequence[dict[str, Any]], seed: int) -> None:
    table = Table("fault", "tried", "lost", "doubled", "differences")
    for result in results:
        numbers = [str(result[name]) for name in ("tried", "lost", "doubled")]
        if result["untried"]:
            numbers[0] = f"[bold red]{result['tried'] or 'UNTRIED'}[/]"
        table.add_row(result["id"], *numbers, str(len(result["differences"])))
    Console().print(table)
    typer.echo(f"{sum(result['tried'] for result in results)} points, seed {seed}")
    for result in results:
        if result["untried"]:
            typer.secho(f"UNTRIED {result['id']}: {result['untried']}", fg="red", bold=True)
        for text in result["differences"]:
            typer.echo(f"{result['id']}: {text}")
