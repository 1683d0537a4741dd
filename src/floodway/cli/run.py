"""`floodway run`: a network's nodes in one process on real Spark, steered and accounted for."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from floodway.cli.arguments import (
    AsJson,
    Feeds,
    GivenOptions,
    NetworkFile,
    ReportFile,
    Settle,
    job_command,
    usable_folder,
    writable,
)
from floodway.cli.view.output import deadline_lines, hand_out, latency_line, losses_row, losses_table, status_line
from floodway.cli.view.page import watched

if TYPE_CHECKING:
    from floodway.agent.loop.record import RunReport
    from floodway.job.status.status import Status


@job_command
def run(
    given: GivenOptions,
    network: NetworkFile,
    seconds: Annotated[str, typer.Option(help="How long to run, such as 60 or 5m.", metavar="DURATION")] = "60s",
    rates: Feeds = "",
    settle: Settle = "10s",
    state: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints, ledger and logs; kept to continue later.")
    ] = None,
    report: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Run a network's nodes on Spark, shedding what they cannot process in time.

    Streams that name no log are generated; operators that name no function busy-wait their cost. Asked to end early
    (SIGTERM, Ctrl-C) it finishes what waits and reports all the same.

    Example: floodway run net.yaml --seconds 60s --target 2s --state runs/net
    """
    from floodway.agent.loop.feeds import Feed
    from floodway.agent.loop.runner import RunOptions, run_network
    from floodway.job.options import values
    from floodway.job.options.flags import parsed
    from floodway.network.file import load_network
    from floodway.network.file_checks import check_rates

    sys.path.insert(0, str(Path.cwd()))  # where a user expects `run: package.module:function` to be found
    net = load_network(network)
    fed = values.rates("--rates", rates)
    check_rates(net, fed, all_streams=False)
    length = values.duration("--seconds", seconds)
    usable_folder("--state", state)
    writable("--report", report)
    ended = Event()

    def end_when_asked() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())

    options = RunOptions(
        seconds=length,
        root=state or Path(tempfile.mkdtemp(prefix=f"floodway-{net.name}-")),
        feeds={name: Feed(rate=rate) for name, rate in fed.items()},
        settle_seconds=min(values.duration("--settle", settle, zero=True), length / 2),
        progress=_progress(quiet=as_json or not sys.stderr.isatty()),
        on_start=end_when_asked,
        ended=ended,
        **parsed("run", given),
    )
    with watched(options.root, options):
        result = run_network(net, options)
    body = {"network": net.name, "state": str(options.root), **result.to_dict()}
    hand_out(body, report, lambda: _print(result, options.root), as_json=as_json)
    if result.differences:
        typer.echo("the ledger does not reconcile: " + "; ".join(result.differences), err=True)
        raise typer.Exit(1)


def _progress(*, quiet: bool) -> Callable[[Status], None]:
    def show(status: Status) -> None:
        typer.echo(f"\r{status_line(status):<78}", err=True, nl=False)

    return (lambda status: None) if quiet else show


def _print(result: RunReport, root: Path) -> None:
    from rich.console import Console

    body = result.to_dict()
    table = losses_table("place", title="What arrived and what was lost")
    for at, offered in body["offered"].items():
        table.add_row(at, *losses_row(offered, body["kept"][at], body["dropped"].get(at, {})))
    console = Console()
    console.print()
    console.print(table)
    outputs = result.latencies if len({one.target for one in result.latencies.values()}) > 1 else {}
    for name, latency in outputs.items():
        console.print(f"{name}: {latency_line(latency)}", markup=False)
    if not outputs:
        console.print(latency_line(result.latency))
    if result.unreachable:
        console.print(f"the target is below what this engine can reach: about {result.floor_seconds:.2f} s")
    console.print(
        f"score: {result.score:.4g} weighted tuples/s; optimum {result.optimum:.4g} for the capacity it had "
        f"({result.capacity_scale:.2f} of nominal)"
    )
    for line in deadline_lines(result.deadlines):
        console.print(line)
    console.print(f"ledger: {'reconciled' if not result.differences else 'DOES NOT RECONCILE'}; files in {root}")
