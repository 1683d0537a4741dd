"""`floodway demo`: the same overloaded job without and with Floodway, on real Spark, ending in a table and a plot."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodway.cli.checks import above_zero, usable_folder
from floodway.cli.output import print_json
from floodway.cli.page import LISTEN, report_html, report_of, serving
from floodway.errors import InputError

if TYPE_CHECKING:
    from floodway.agent.loop.report import RunReport
    from floodway.job.decision import Mode
    from floodway.job.status.status import Status
    from floodway.network.model import Network
    from floodway.spark.session.session import Session

WITHOUT, WITH = "without Floodway", "with Floodway"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plot and the report.")] = Path("demo-out"),
    seconds: Annotated[float, typer.Option(help="Length of each of the two runs.")] = 40.0,
    target: Annotated[float, typer.Option(help="Latency target in seconds.")] = 4.0,
    page: Annotated[str, typer.Option(help="HOST:PORT of the live page; port 0 takes a free one.")] = LISTEN,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the live page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what Floodway does: one Spark job, offered twice what it can process, run without and with it.

    Serves the live page meanwhile, and ends in a report: report.html and demo.png in the folder --out.

    Example: floodway demo --out demo-out --open
    """
    from floodway.cli.demo_plot import save_plot
    from floodway.network.file import parse_network
    from floodway.spark.session.session import spark_session

    above_zero("--seconds", seconds, "40")
    above_zero("--target", target, "4")
    usable_folder("--out", out)
    say = partial(typer.echo, err=as_json)
    network = parse_network(files("floodway.cli").joinpath("demo.yaml").read_text("utf-8"), source="demo.yaml")
    say("A Spark job on one core is offered twice what it can process (see demo.yaml).")
    with tempfile.TemporaryDirectory(prefix="floodway-demo-") as folder:
        base = Path(folder) / "runs"
        base.mkdir()
        with serving([base], listen=page, open_browser=open_browser):
            say("Starting Spark and warming it up …")
            spark = spark_session("floodway-demo")
            try:
                warm = Path(folder) / "warm-up"
                _run(spark, network, "off", warm, seconds=min(8.0, seconds), target=target, share=0.25, title=None)
                say(f"1/2  {WITHOUT}: every tuple is processed, however late.")
                shown = None if as_json else WITHOUT
                without = _run(spark, network, "off", base / "without", seconds=seconds, target=target, title=shown)
                say(f"2/2  {WITH}: target {target:g} s; the least valuable tuples go first.")
                shown = None if as_json else WITH
                with_ = _run(spark, network, "enforce", base / "with", seconds=seconds, target=target, title=shown)
            finally:
                spark.stop()
        out.mkdir(parents=True, exist_ok=True)
        plot = save_plot(out / "demo.png", {WITHOUT: without, WITH: with_}, target)
        report = out / "report.html"
        ended = [("with", WITH, with_), ("without", WITHOUT, without)]
        reports = [report_of(base / name, title) for name, title, run in ended if run.points]
        if not reports:
            raise InputError(
                f"no batch ended within --seconds {seconds:g}", hint="This machine is slow or busy: give it more"
            )
        report.write_text(report_html(*reports, title="demo"), encoding="utf-8")
    if as_json:
        print_json({"without": without.to_dict(), "with": with_.to_dict(), "plot": str(plot), "report": str(report)})
    else:
        _print(network, {WITHOUT: without, WITH: with_}, plot, report)


def _run(
    spark: Session,
    network: Network,
    mode: Mode,
    root: Path,
    *,
    seconds: float,
    target: float,
    title: str | None,
    share: float = 1.0,
) -> RunReport:
    from floodway.agent.loop.feeding import Feed
    from floodway.agent.loop.runner import RunOptions, run_network
    from floodway.job.options.targets import Target

    options = RunOptions(
        seconds=seconds,
        root=root,
        mode=mode,
        target=Target(target),
        feeds={name: Feed(rate=share * (s.max_rate or 0.0)) for name, s in network.streams.items()},
        settle_seconds=seconds / 3,
        progress=_progress(title, seconds),
    )
    return run_network(network, options, spark)


def _progress(title: str | None, seconds: float) -> Callable[[Status], None]:
    begun: list[float] = []

    def show(status: Status) -> None:
        begun.append(status.time)
        share = min((begun[-1] - begun[0]) / seconds, 1.0)
        latency = status.latency.mean
        shown = "   –   " if latency is None else f"{latency:5.1f} s"
        bar = "█" * round(30 * share) + "░" * (30 - round(30 * share))
        typer.echo(f"\r     {bar} latency {shown}  loss {status.loss or 0.0:4.0%}", err=True, nl=share >= 1.0)

    return (lambda status: None) if title is None or not sys.stderr.isatty() else show


def _print(network: Network, runs: Mapping[str, RunReport], plot: Path, report: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", *runs, title="The same input, twice what one core can process")
    table.add_row("latency, mean after the start", *[_seconds(_mean(run)) for run in runs.values()])
    table.add_row("latency of the last batch", *[_seconds(_last(run)) for run in runs.values()])
    for stream in network.streams:
        table.add_row(f"kept of {stream}", *[_kept(run, stream) for run in runs.values()])
    table.add_row("weighted throughput", *[f"{run.score:,.0f}/s" for run in runs.values()])
    table.add_row("of the LP optimum", *[_share(run) for run in runs.values()])
    table.add_row("ledger", *["reconciled" if not run.differences else "DIFFERS" for run in runs.values()])
    Console().print(table)
    typer.echo(f"plot: {plot}")
    typer.echo(f"report, with what was lost, why, and what to do next: {report}")


def _seconds(value: float | None) -> str:
    return "nothing came out" if value is None else f"{value:.2f} s"


def _mean(run: RunReport) -> float | None:
    """Mean latency of the results that came out after the first third of the run."""
    begun = run.points[-1].seconds / 3 if run.points else 0.0
    late = [p for p in run.points if p.latency_seconds is not None and p.kept and p.seconds > begun]
    tuples = sum(p.kept for p in late)
    return sum((p.latency_seconds or 0.0) * p.kept for p in late) / tuples if tuples else None


def _last(run: RunReport) -> float | None:
    return next((p.latency_seconds for p in reversed(run.points) if p.latency_seconds is not None), None)


def _kept(run: RunReport, place: str) -> str:
    body = run.to_dict()
    offered = body["offered"].get(place, 0)
    return f"{body['kept'].get(place, 0) / offered:.0%} of {offered:,}" if offered else "–"


def _share(run: RunReport) -> str:
    return f"{run.score / run.optimum:.0%}" if run.optimum else "–"
