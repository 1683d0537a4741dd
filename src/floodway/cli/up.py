"""`floodway up`: all nodes of a network on this machine, each a process of its own, under one supervisor."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodway.cli.arguments import (
    PROCESS,
    AsJson,
    Control,
    Feeds,
    GivenOptions,
    KeyFile,
    Links,
    NetworkFile,
    ReportFile,
    Settle,
    job_command,
    usable_folder,
    writable,
)
from floodway.cli.view.output import hand_out, latency_line, losses_row, losses_table, status_line
from floodway.cli.view.page import watched

if TYPE_CHECKING:
    from floodway.agent.node.nodes_report import NodesReport
    from floodway.job.status.status import Status


@job_command
def up(
    given: GivenOptions,
    network: NetworkFile,
    seconds: Annotated[
        str, typer.Option(help="How long to run once all nodes are ready, such as 5m.", metavar="DURATION")
    ] = "60s",
    rates: Feeds = "",
    settle: Settle = "20s",
    state: Annotated[Path | None, typer.Option(help="Folder that the nodes share; kept to continue later.")] = None,
    report: ReportFile = None,
    as_json: AsJson = False,
    control: Control = "dfit",
    key_file: KeyFile = None,
    links: Links = None,
    peers: Annotated[
        str,
        typer.Option(
            help="Addresses that nodes use for each other in place of the real ones.", rich_help_panel=PROCESS
        ),
    ] = "",
) -> None:
    """Run every node of a network as a process of its own, restart what dies, and report over all ledgers.

    Asked to end early (SIGTERM, Ctrl-C) it lets the nodes finish what waits, ends them and reports all the same.

    Example: floodway up net.yaml --seconds 60s --target 6s --control dfit --state runs/net
    """
    from floodway.agent.loop.feeds import Feed
    from floodway.agent.loop.run_files import claimed
    from floodway.agent.node.node_options import parse_control
    from floodway.agent.node.up import UpOptions, bring_up
    from floodway.agent.wire.signing import load_security
    from floodway.cli.node import parse_urls
    from floodway.job.options import values
    from floodway.job.options.flags import parsed
    from floodway.network.file import load_network
    from floodway.network.file_checks import check_rates

    net = load_network(network)
    fed = values.rates("--rates", rates)
    check_rates(net, fed, all_streams=False)
    length = values.duration("--seconds", seconds)
    usable_folder("--state", state)
    writable("--report", report)
    load_security(key_file, None, None, None, os.environ)
    root = (state or Path(tempfile.mkdtemp(prefix=f"floodway-{net.name}-"))).absolute()
    options = UpOptions(
        network_file=network,
        root=root,
        seconds=length,
        control=parse_control(control),
        feeds={name: Feed(rate=rate) for name, rate in fed.items()},
        settle_seconds=min(values.duration("--settle", settle, zero=True), length / 2),
        peers=parse_urls(peers),
        key_file=key_file,
        links=links,
        progress=_progress(quiet=as_json or not sys.stderr.isatty()),
        **parsed("up", given),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: options.ended.set())
    with claimed(root, net, "up"), watched(root, options, key_file=key_file):
        result = bring_up(net, options)
    body = {"network": net.name, "state": str(root), **result.to_dict()}
    hand_out(body, report, lambda: _print(result, root), as_json=as_json)
    if result.differences:
        raise typer.Exit(1)


def _progress(*, quiet: bool) -> Callable[[Mapping[str, Status | None]], None]:
    def show(statuses: Mapping[str, Status | None]) -> None:
        parts = [f"{name}: {status_line(status) if status else 'down'}" for name, status in statuses.items()]
        typer.echo(f"\r{'   '.join(parts):<100}", err=True, nl=False)

    return (lambda statuses: None) if quiet else show


def _print(result: NodesReport, root: Path) -> None:
    from rich.console import Console

    table = losses_table("node", "place", title="What arrived and what was lost")
    for name, node in result.nodes.items():
        for at, offered in node.counts.offered.items():
            table.add_row(name, at, *losses_row(offered, node.counts.kept[at], node.counts.by_place().get(at, {})))
    console = Console()
    console.print()
    console.print(table)
    console.print(latency_line(result.latency))
    capacity = ", ".join(f"{name} {node.capacity:.2f}" for name, node in result.nodes.items())
    console.print(
        f"score: {result.score:.4g} weighted tuples/s; optimum {result.optimum:.4g} for the CPU that the nodes had "
        f"({capacity} of nominal)"
    )
    for link in result.links:
        console.print(
            f"link {link.link}: {link.delivered:,} delivered by {link.writer}, {link.offered:,} offered to "
            f"{link.reader}, {link.waiting:,} waiting"
        )
    restarted = ", ".join(f"{name} {count}" for name, count in result.restarts.items() if count)
    if restarted:
        console.print(f"restarts: {restarted}")
    console.print(f"ledgers: {'reconciled' if not result.differences else 'DO NOT RECONCILE'}; files in {root}")
    for difference in result.differences:
        console.print(f"  {difference}")
