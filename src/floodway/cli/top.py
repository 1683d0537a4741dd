"""`floodway top`: a running job in the terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodway.cli.output import print_json
from floodway.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

STALE_SECONDS = 30.0


def top(
    name: Annotated[str, typer.Argument(help="Name of a shed or of a network that runs.")],
    state: Annotated[Path | None, typer.Option(help="Folder of the job's state, if not the default.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the latest figures as one JSON object.")] = False,
) -> None:
    """Show rates, latency against target, keep, loss and load of a running job.

    A shed is found by its name; a network of `floodway run` or `floodway up` by its --state folder too. Of `up` the
    name of a node shows that one, the name of the network all of them.

    Example: floodway top clicks
    """
    from rich.console import Console
    from rich.live import Live

    from floodway.cli.jobs import find_jobs

    paths = {found: files.folder / "status.json" for found, files in find_jobs(name, state).items()}
    if as_json:
        bodies = {found: _read(path) for found, path in paths.items()}
        print_json(bodies.get(name, {"nodes": bodies}))
        return
    if once:
        Console().print(_tables(paths.values()))
        return
    with Live(_tables(paths.values()), refresh_per_second=4) as live:
        while True:
            time.sleep(0.25)
            live.update(_tables(paths.values()))


def _tables(paths: Iterable[Path]) -> Group:
    from rich.console import Group

    return Group(*(table_of(_read(path), time.time()) for path in paths))


def _read(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(
            f"{path} holds no figures yet", hint="Wait for the job's first micro-batch, or check its name"
        ) from None
    return dict(body)


def table_of(told: Mapping[str, Any], now: float) -> Table:
    """A status as a table; `now` in seconds since 1970."""
    from rich.table import Table

    from floodway.agent.watch.statuses import is_participant, normal, would_drop

    status = normal(told)
    age = now - status["time_us"] / 1e6 if "time_us" in status else float("inf")
    stale = f"  [red](last heard {_ago(age)})[/red]" if age > STALE_SECONDS else ""
    if is_participant(status):
        return _participant(status, Table(title=f"{status.get('name', '')}  ·  participant{stale}", show_header=False))
    # A node that still starts, or waits for its inputs, has a phase and no figures yet.
    state = status.get("mode") or status.get("phase", "")
    table = Table(title=f"{status.get('name', '')}  ·  {state}{stale}", show_header=False)
    if waits := ", ".join(status.get("waiting_for") or ()):
        table.add_row("waits for", waits)
    if "loss" not in status:
        table.add_row("figures", "none yet")
        return table
    latency, target = status["latency_seconds"], status["target_seconds"]
    if latency is not None:
        colour = "green" if latency <= 1.1 * target else "red"
        table.add_row("latency", f"[{colour}]{latency:.2f} s[/{colour}] of {target:g} s {_bar(latency / target)}")
    if status.get("unreachable"):
        table.add_row("target", f"[red]below the floor of {status['floor_seconds']:.2f} s[/red]")
    for stream, rate in status.get("rates", {}).items():
        keep = status["keeps"].get(stream, 1.0)
        table.add_row(stream, f"{rate:,.0f} tuples/s, keep {keep:.1%} {_bar(keep)}")
    if status.get("offered_rate") is not None:
        table.add_row("offered", f"{status['offered_rate']:,.0f} tuples/s, keep {status['keep']:.1%}")
    for place, keep in status.get("keeps", {}).items():
        if "->" in place and keep < 1.0:
            table.add_row(place, f"keep {keep:.1%} {_bar(keep)}")
    for node, load in status.get("load", {}).items():
        table.add_row(f"node {node}", f"planned load {load:.2f} CPU")
    table.add_row("loss", f"{status['loss']:.1%} {_bar(status['loss'])}")
    would = would_drop(status)
    if would and status.get("mode") == "observe":
        table.add_row("would drop", f"{would:.1%} {_bar(would)}")
    return table


def _participant(status: Mapping[str, Any], table: Table) -> Table:
    """What a participant of a federation tells: it has no mode, no target and no loss, but fragments and moves."""
    from floodway.agent.watch.metrics import move_counts

    cpu = status.get("cpu")
    for name, load in (status.get("load") or {}).items():
        shown = f" of {cpu:g} CPU {_bar(load / cpu)}" if cpu else " CPU"
        table.add_row(f"load of {name}", f"{load:.2f}{shown}")
    for name, fragment in status["fragments"].items():
        keep = (status.get("keeps") or {}).get(name, 1.0)
        late = fragment.get("delay_seconds")
        delay = "" if late is None else f", {late:.2f} s late"
        kept = f", keep {keep:.1%} {_bar(keep)}" if keep < 1.0 else ""
        table.add_row(name, f"{fragment['rate']:,.0f} tuples/s for {fragment['for']}{delay}{kept}")
    ended, under_way = move_counts(status)
    table.add_row("moves", f"{ended['done']} done, {ended['failed']} failed, {under_way} under way")
    if status.get("cut_off"):
        table.add_row("silent", ", ".join(status["cut_off"]))
    return table


def _ago(seconds: float) -> str:
    return "never" if seconds == float("inf") else f"{seconds:.0f} s ago"


def _bar(share: float, width: int = 24) -> str:
    full = round(min(max(share, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)
