"""`floodway backfill`: process what a shed has dropped, in quiet times."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodway.cli.arguments import AsJson, Conf, Job, Master, find, parse_conf
from floodway.cli.view.output import print_json
from floodway.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodway.job.places import JobPlace
    from floodway.job.store.store import Store
    from floodway.network.model import Network
    from floodway.spark.shed.recovery.backfill import Backfill, DroppedSource, Progress

QUIET_NICE = 10
"""How far a backfill stands back behind the live job on one machine."""


def backfill(
    name: Job,
    run: Annotated[
        str, typer.Option(help="package.module:function; it is given the dropped tuples and the name of the step.")
    ],
    kafka: Annotated[
        list[str] | None,
        typer.Option(help="An option of the Kafka source of a job with floodway.shed, key=value; may be repeated."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="The same where the job reads a Floodway source: path=clicks.log; may be repeated."),
    ] = None,
    through: Annotated[
        str | None, typer.Option(help="package.module:function that the job applies between its source and the shed.")
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="Of a network: the stream, if it has dropped tuples of several.")
    ] = None,
    since: Annotated[str | None, typer.Option(help='From then on: "2 hours ago", or 2026-11-16T12:00:00Z.')] = None,
    until: Annotated[str | None, typer.Option(help="Before then.")] = None,
    state: Annotated[str | None, typer.Option(help="The state folder or URI that the job was given.")] = None,
    step: Annotated[int, typer.Option(min=1, help="Most tuples that are processed at once.")] = 200_000,
    at_once: Annotated[bool, typer.Option("--now", help="Do not wait until the live job is quiet.")] = False,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Process the tuples that a job has dropped, while it is at its target and sheds nothing.

    The function is called as function(df, step) and has to write so that a repeat of the same step overwrites what it
    wrote before: a backfill that is killed repeats the step that was under way. Three failures in a row end it.

    Example: floodway backfill clicks --run jobs.clicks:fill --kafka kafka.bootstrap.servers=localhost:9092
    """
    from floodway.functions import named_function
    from floodway.job.ledger.backfill import BackfillPace, Live, LiveJob
    from floodway.job.options.values import moment_us, settings

    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does, so that functions in the project at hand are found
    function = named_function("--run", run)
    before = None if through is None else named_function("--through", through)
    options: dict[str, str] = settings("--kafka", "\n".join(kafka or ()))
    own_options: dict[str, str] = settings("--source", "\n".join(source or ()))
    since_us, until_us = moment_us("--since", since), moment_us("--until", until)
    spark_settings = parse_conf(conf)
    from floodway.spark.shed.recovery.streams import network_of

    job = find(name, state)
    network = network_of(job)
    at, store = _place(job, network, stream, options or own_options)
    _hold(job.name, store, at)
    os.nice(QUIET_NICE)

    from floodway.job.places import ShedFiles
    from floodway.job.status.status import read_status
    from floodway.spark.query.layout import RunLayout
    from floodway.spark.session.session import LOCAL_MASTER, spark_session
    from floodway.spark.shed.recovery.backfill import Backfill
    from floodway.spark.shed.recovery.recover import Recovery
    from floodway.spark.shed.recovery.streams import StreamRecovery

    live_job = LiveJob(time.time())

    def live() -> Live:
        return Live(False) if at_once else live_job.look(read_status(store))

    spark = spark_session(f"floodway-backfill-{at}", master=master or LOCAL_MASTER, conf=spark_settings)
    try:
        recovery: DroppedSource
        if network is None:
            recovery = Recovery(spark, ShedFiles(store), options, before, own_options)
        else:
            recovery = StreamRecovery(spark, network, RunLayout(Path(job.place)), at, store)
        work = Backfill(at, recovery, function, live, since_us, until_us, pace=BackfillPace(step, most_tuples=step))
        _show(work)
        _report(work, as_json=as_json)
    finally:
        spark.stop()


def _place(job: JobPlace, network: Network | None, stream: str | None, given: Mapping[str, str]) -> tuple[str, Store]:
    """Under which name a shed or a stream stands in which ledger; InputError for what cannot be processed later."""
    from floodway.spark.shed.recovery.streams import dropped_streams, stream_store

    if network is None:
        if stream is not None:
            raise InputError(f"{job.name} is a job with floodway.shed and has no streams", hint="Leave --stream out")
        if not given:
            raise InputError(
                f"neither --kafka nor --source says where the tuples of {job.name} are read again",
                hint="Give --kafka kafka.bootstrap.servers=HOST:PORT or --source path=LOG, as the job's source has it",
            )
        return job.name, job.store
    dropped = dropped_streams(job, network)
    if stream is None and len(dropped) != 1:
        raise InputError(
            f"{job.name} has dropped tuples of {len(dropped)} streams",
            hint=f"Name one by --stream: {', '.join(dropped)}" if dropped else "There is nothing to process",
        )
    return stream or dropped[0], stream_store(job, network, stream or dropped[0])


def _hold(name: str, store: Store, at: str) -> None:
    """Be the only backfill of this place for the rest of the process, wherever the state lies."""
    from floodway.job.store.lease import hold
    from floodway.job.store.store import join
    from floodway.spark.session.stores import open_store

    try:
        hold(open_store(join(store.uri, f"backfill/{at}")))
    except InputError as error:
        raise InputError(
            f"another backfill of {name} is running: {error.message}", hint="Wait for it, or stop it"
        ) from None


def _show(work: Backfill) -> None:
    """Work, with a progress bar that also says why it waits; without a terminal, a line when it pauses or continues."""
    if not sys.stderr.isatty():
        was_waiting = None
        for told in work.steps():
            if was_waiting != bool(told.waiting):
                was_waiting = bool(told.waiting)
                doing = f"waiting, {told.waiting}" if was_waiting else "recovering"
                typer.echo(f"{doing}: {told.recovered + told.lost:,} of {told.dropped:,} done", err=True)
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
            doing = f"waiting: {told.waiting}" if told.waiting else "recovering"
            bar.update(task, total=told.dropped, completed=done, description=doing)


def _report(work: Backfill, *, as_json: bool) -> None:
    told: Progress = work.progress()
    differences = work.differences()
    unreadable = min(work.unreadable(), told.lost)
    lost = {"retention": told.lost - unreadable, "not on record": unreadable}
    if as_json:
        print_json(
            {
                "dropped": told.dropped,
                "recovered": told.recovered,
                "remaining": told.remaining,
                "lost": {reason: tuples for reason, tuples in lost.items() if tuples},
                "reconciled": not differences and told.remaining == 0,
            }
        )
        return
    typer.echo(f"dropped {told.dropped:,}, recovered {told.recovered:,}, remaining {told.remaining:,}")
    if lost["retention"]:
        typer.echo(f"lost {lost['retention']:,}: retention had taken them before they were read again")
    if unreadable:
        typer.echo(f"lost {unreadable:,}: their batches left nothing on record to find them by")
    for text in differences:
        typer.echo(f"difference: {text}", err=True)
