"""`floodway backfill`: process what a shed has dropped, in quiet times."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodway.cli.options.spark_options import Conf, Master, parse_conf
from floodway.cli.view.output import print_json

if TYPE_CHECKING:
    from floodway.job.ledger.backfill import Live
    from floodway.job.shed_state import ShedFiles
    from floodway.spark.shed.recovery.backfill import Backfill, Progress

SILENT_SECONDS = 60.0
QUIET_NICE = 10
"""How far a backfill stands back behind the live job on one machine."""


def backfill(
    name: Annotated[str, typer.Argument(help="The shed's name, as given to floodway.shed.")],
    run: Annotated[
        str, typer.Option(help="package.module:function; it is given the dropped tuples and the name of the step.")
    ],
    kafka: Annotated[
        list[str],
        typer.Option(help="An option of the job's Kafka source, key=value; may be repeated."),
    ],
    through: Annotated[
        str | None, typer.Option(help="package.module:function that the job applies between its source and the shed.")
    ] = None,
    since: Annotated[str | None, typer.Option(help='From then on: "2 hours ago", or 2026-11-16T12:00:00Z.')] = None,
    until: Annotated[str | None, typer.Option(help="Before then.")] = None,
    state: Annotated[str | None, typer.Option(help="The state folder or URI that the job was given.")] = None,
    at_once: Annotated[bool, typer.Option("--now", help="Do not wait until the live job is quiet.")] = False,
    master: Master = None,
    conf: Conf = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Process the tuples that a shed has dropped, while its job is at its target and sheds nothing.

    The function is called as function(df, step) and has to write so that a repeat of the same step overwrites what it
    wrote before: a backfill that is killed goes on with the step that was under way. Three failures in a row end it.

    Example: floodway backfill clicks --run jobs.clicks:fill --kafka kafka.bootstrap.servers=localhost:9092
    """
    from floodway.functions import named_function
    from floodway.job.ledger.backfill import Live
    from floodway.job.options.moments import moment_us
    from floodway.job.options.values import settings
    from floodway.job.store.locks import take
    from floodway.spark.shed.place import place_files

    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does, so that functions in the project at hand are found
    function = named_function("--run", run)
    before = None if through is None else named_function("--through", through)
    options: dict[str, str] = settings("--kafka")("\n".join(kafka))
    since_us, until_us = moment_us("--since", since), moment_us("--until", until)
    files = place_files(None, name, state)
    spark_settings = parse_conf(conf)
    lock = take(files.folder / "backfill.lock", "Another backfill of this shed is running: wait for it, or stop it")
    os.nice(QUIET_NICE)

    from floodway.spark.session.session import LOCAL_MASTER, spark_session
    from floodway.spark.shed.recovery.backfill import Backfill
    from floodway.spark.shed.recovery.recover import Recovery

    def live() -> Live:
        return Live(False) if at_once else _live(files)

    spark = spark_session(f"floodway-backfill-{name}", master=master or LOCAL_MASTER, conf=spark_settings)
    try:
        recovery = Recovery(spark, files, options, before)
        work = Backfill(name, recovery, function, live, since_us, until_us)
        _show(work, quiet=as_json or not sys.stderr.isatty())
        _report(work, as_json=as_json)
    finally:
        spark.stop()
        lock.close()


def _live(files: ShedFiles) -> Live:
    """How the live job is, from its status; one that has not been heard of for a while does not run."""
    from floodway.job.ledger.backfill import Live

    status = files.read_status()
    if status is None or time.time() - status.time > SILENT_SECONDS:
        return Live(False)
    keep = status.keep if status.mode == "enforce" else 1.0
    return Live(True, status.latency.mean, status.latency.target, keep)


def _show(work: Backfill, *, quiet: bool) -> None:
    """Work, with a progress bar that also says why it waits."""
    if quiet:
        for _ in work.steps():
            pass
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        start = work.progress()
        task = bar.add_task("recovering", total=start.dropped, completed=start.recovered + start.lost)
        for told in work.steps():
            done = told.recovered + told.lost
            bar.update(task, completed=done, description=f"waiting: {told.waiting}" if told.waiting else "recovering")


def _report(work: Backfill, *, as_json: bool) -> None:
    told: Progress = work.progress()
    differences = work.differences()
    if as_json:
        print_json(
            {
                "dropped": told.dropped,
                "recovered": told.recovered,
                "remaining": told.remaining,
                "lost": {"retention": told.lost} if told.lost else {},
                "reconciled": not differences and told.remaining == 0,
            }
        )
        return
    typer.echo(f"dropped {told.dropped:,}, recovered {told.recovered:,}, remaining {told.remaining:,}")
    if told.lost:
        typer.echo(f"lost {told.lost:,}: the topic's retention had taken them before they were read again")
    for text in differences:
        typer.echo(f"difference: {text}", err=True)
