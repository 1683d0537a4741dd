"""`floodway chaos`: kill, stop, damage and cut off, and see whether the accounts still hold."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from floodway.cli.output import print_json
from floodway.errors import FloodwayError, InputError

REGISTRY = "floodway.experiments.chaos.registry"
RESULT = "floodway.experiments.chaos.result"
"""Faults live beside the experiments and are loaded by name."""


def chaos(
    ids: Annotated[list[str] | None, typer.Argument(help="Faults by id; default all.")] = None,
    points: Annotated[int, typer.Option(help="How many points to try in all.")] = 25,
    seed: Annotated[int, typer.Option(help="Chooses the points; the same seed tries the same ones.")] = 1,
    kafka: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="A broker for the faults on Kafka.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep the jobs' files here; default a folder that goes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="List the faults and exit.")] = False,
) -> None:
    """Try faults against jobs that this command starts, and check what they leave to the tuple.

    Kills and stops of processes at chosen phases of their batches, disks that tear or fill up, networks that lose and
    double messages, clocks that are set. Exits with 1 if anything was lost, doubled, or does not agree.

    Example: floodway chaos disks networks clocks --points 60 --seed 7
    """
    registry: Any = import_module(REGISTRY)
    chosen = registry.choose(ids or [], kafka=kafka is not None or list_only)
    if list_only:
        _list(chosen, as_json=as_json)
        return
    if points < 1:
        raise InputError(f"--points {points} is not above 0", hint="Give how many faults to try, such as 25")
    with tempfile.TemporaryDirectory(prefix="floodway-chaos-") as temporary:
        root = folder or Path(temporary)
        results = [
            _tried(registry, fault, count, seed, root, kafka) for fault, count in _shares(registry, chosen, points)
        ]
    body = {"points": sum(result["tried"] for result in results), "seed": seed, "results": results}
    if as_json:
        print_json(body)
    else:
        _print(results, seed)
    if any(result["lost"] or result["doubled"] or result["differences"] for result in results):
        raise typer.Exit(1)


def _tried(registry: Any, fault: Any, points: int, seed: int, root: Path, kafka: str | None) -> dict[str, Any]:
    trial: Any = import_module(RESULT).Trial
    started = time.monotonic()

    def progress(share: float, text: str) -> None:
        typer.echo(f"{time.monotonic() - started:6.0f} s  {fault.id} {share:4.0%}  {text}", err=True)

    try:
        result = registry.load(fault)(trial(points, seed, root / fault.id, progress, kafka))
    except FloodwayError as error:
        # What cannot run here (no Java, no memory) must not cost the others.
        return {"id": fault.id, "tried": 0, "lost": 0, "doubled": 0, "differences": [f"could not run: {error}"]}
    sys.stderr.flush()
    body: dict[str, Any] = result.as_json()
    return body


def _list(chosen: Sequence[Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"faults": [{"id": fault.id, "title": fault.title, "spark": fault.spark} for fault in chosen]})
        return
    width = max(len(fault.id) for fault in chosen)
    for fault in chosen:
        typer.echo(f"{fault.id:<{width}}  {fault.title}")


def _print(results: Sequence[dict[str, Any]], seed: int) -> None:
    table = Table("fault", "tried", "lost", "doubled", "differences")
    for result in results:
        numbers = [str(result[name]) for name in ("tried", "lost", "doubled")]
        table.add_row(result["id"], *numbers, str(len(result["differences"])))
    Console().print(table)
    typer.echo(f"{sum(result['tried'] for result in results)} points, seed {seed}")
    for result in results:
        for text in result["differences"]:
            typer.echo(f"{result['id']}: {text}")
