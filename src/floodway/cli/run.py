"""`floodway run`: a network's nodes in one process on real Spark, steered and accounted for."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodway.cli import buffer_options as buffering
from floodway.cli.checks import above_zero, not_negative, usable_folder, writable
from floodway.cli.output import latency_line, parse_pairs, print_json, status_line
from floodway.cli.page import Open, Otlp, Page, metrics_sent, page_of
from floodway.cli.retention_options import RetainBytes, RetainSeconds, parse_retention
from floodway.cli.spark_options import Conf, Master, parse_conf
from floodway.errors import InputError

if TYPE_CHECKING:
    from floodway.agent.loop.report import RunReport
    from floodway.job.decision import Drop, Mode
    from floodway.job.status import Status
    from floodway.spark.source.options import OnLoss


def run(
    network: Annotated[Path, typer.Argument(help="The network file.", metavar="NET.yaml")],
    seconds: Annotated[float, typer.Option(help="How long to run.")] = 60.0,
    mode: Annotated[str, typer.Option(help="enforce, observe (drop nothing) or off.")] = "enforce",
    rates: Annotated[
        str, typer.Option(help="Feed streams at these tuples/s, e.g. s1=100,s2=50; default max_rate.")
    ] = "",
    target: Annotated[
        float | None, typer.Option(help="Latency target in seconds; default that of the file, else 2.")
    ] = None,
    controller: Annotated[str, typer.Option(help="batch, latency, pid, red, aurora or tu.")] = "batch",
    planner: Annotated[str, typer.Option(help="exact, solver, solver-w, fit or dfit.")] = "exact",
    objective: Annotated[str, typer.Option(help="throughput, fair or tiers.")] = "throughput",
    headroom: Annotated[
        float, typer.Option(help="Share of every resource that may be planned for (the papers: 0.95).")
    ] = 1.0,
    settle: Annotated[float, typer.Option(help="Seconds at the start left out of latency and score.")] = 10.0,
    state: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints, ledger and logs; kept to continue later.")
    ] = None,
    drop: Annotated[
        str, typer.Option(help="How streams drop: hash, or range (blocks that are never read; bounds too narrow).")
    ] = "hash",
    side_output: Annotated[int, typer.Option(help="Save up to this many dropped tuples a batch, 64 MiB in all.")] = 0,
    retain_bytes: RetainBytes = None,
    retain_seconds: RetainSeconds = None,
    on_loss: Annotated[
        str, typer.Option(help="Tuples deleted from their log before they were read: fail, or skip and count them.")
    ] = "fail",
    master: Master = None,
    conf: Conf = None,
    replan: Annotated[bool, typer.Option(help="Plan with the costs refined while running.")] = False,
    buffer: buffering.Buffer = None,
    scheduler: buffering.Scheduler = None,
    adaptor: buffering.Adaptor = None,
    cleaner: buffering.Cleaner = None,
    queue_limit: buffering.QueueLimit = None,
    miss_ratio: buffering.MissRatio = None,
    deadlines: buffering.Deadlines = "",
    report: Annotated[Path | None, typer.Option(help="Write the JSON report to this file too.")] = None,
    page: Page = None,
    open_browser: Open = False,
    otlp: Otlp = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a network's nodes on Spark, shedding what they cannot process in time.

    Streams that name no log are generated; operators that name no function busy-wait their cost.

    Example: floodway run net.yaml --seconds 60 --target 2 --state runs/net
    """
    from floodway.agent.loop.feeding import Feed
    from floodway.agent.loop.runner import RunOptions, run_network
    from floodway.cli.plan import parse_objective
    from floodway.network.checks import check_rates
    from floodway.network.file import load_network

    sys.path.insert(0, str(Path.cwd()))  # where a user expects `run: package.module:function` to be found
    net = load_network(network)
    fed = parse_pairs(rates, option="--rates")
    check_rates(net, fed, all_streams=False)
    above_zero("--seconds", seconds, "60")
    above_zero("--target", target, "2")
    not_negative("--settle", settle)
    not_negative("--side-output", side_output)
    usable_folder("--state", state)
    writable("--report", report)
    options = RunOptions(
        seconds=seconds,
        root=state or Path(tempfile.mkdtemp(prefix=f"floodway-{net.name}-")),
        mode=parse_mode(mode),
        target_seconds=target,
        controller=controller,
        planner=planner,
        objective=parse_objective(objective),
        headroom=headroom,
        feeds={name: Feed(rate=rate) for name, rate in fed.items()},
        settle_seconds=min(settle, seconds / 2),
        drop=parse_drop(drop),
        side_output=side_output,
        on_loss=parse_on_loss(on_loss),
        retention=parse_retention(retain_bytes, retain_seconds),
        master=master,
        settings=parse_conf(conf),
        replan=replan,
        buffer=buffering.buffer_options(buffer, scheduler, adaptor, cleaner, queue_limit, miss_ratio, deadlines),
        progress=_progress(quiet=as_json or not sys.stderr.isatty()),
    )
    with page_of(options.root, page, open_browser=open_browser), metrics_sent(options.root, otlp):
        result = run_network(net, options)
    body = {"network": net.name, "state": str(options.root), **result.to_dict()}
    if report is not None:
        report.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(body)
    else:
        _print(result, options.root)
    if result.differences:
        raise typer.Exit(1)


def parse_mode(text: str) -> Mode:
    """One of the three modes, or a clear error."""
    from typing import get_args

    from floodway.job.decision import Mode

    for mode in get_args(Mode):
        if mode == text:
            found: Mode = mode
            return found
    raise InputError(f"mode {text!r} is not known", hint="Use enforce, observe or off")


def parse_drop(text: str) -> Drop:
    """How streams drop, or a clear error."""
    if text not in ("hash", "range"):
        raise InputError(f"--drop {text!r} is not known", hint="Use hash or range")
    return "range" if text == "range" else "hash"


def parse_on_loss(text: str) -> OnLoss:
    """What to do about deleted tuples, or a clear error."""
    if text not in ("fail", "skip"):
        raise InputError(f"--on-loss {text!r} is not known", hint="Use fail or skip")
    return "skip" if text == "skip" else "fail"


def _progress(*, quiet: bool) -> Callable[[Status], None]:
    def show(status: Status) -> None:
        typer.echo(f"\r{status_line(status):<78}", err=True, nl=False)

    return (lambda status: None) if quiet else show


def _print(result: RunReport, root: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    body = result.to_dict()
    table = Table("place", "offered", "kept", "dropped by reason", title="What arrived and what was lost")
    for at, offered in body["offered"].items():
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in body["dropped"].get(at, {}).items())
        table.add_row(at, f"{offered:,}", f"{body['kept'][at]:,}", dropped or "–")
    console = Console()
    console.print()
    console.print(table)
    console.print(latency_line(result.latency))
    if result.unreachable:
        console.print(f"the target is below what this engine can reach: about {result.floor_seconds:.2f} s")
    console.print(
        f"score: {result.score:.4g} weighted tuples/s; optimum {result.optimum:.4g} for the capacity it had "
        f"({result.capacity_scale:.2f} of nominal)"
    )
    for line in buffering.deadline_lines(result.deadlines):
        console.print(line)
    console.print(f"ledger: {'reconciled' if not result.differences else 'DOES NOT RECONCILE'}; files in {root}")
    for difference in result.differences:
        console.print(f"  {difference}")
