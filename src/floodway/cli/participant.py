"""`floodway participant`: one member of a federation, with its Spark application, its contracts and its offer API."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from floodway.cli.arguments import GivenOptions, job_command
from floodway.cli.view.output import print_json
from floodway.cli.view.page import ReadToken, parse_address, watched
from floodway.errors import InputError


@job_command
def participant(
    given: GivenOptions,
    federation: Annotated[Path, typer.Argument(help="The federation file.", metavar="FEDERATION.yaml")],
    name: Annotated[str, typer.Option(help="Which participant of the file this is.")],
    state: Annotated[Path, typer.Option(help="Folder for this participant's journal and status.")],
    shared: Annotated[Path, typer.Option(help="Folder that all participants see: logs, checkpoints, leases.")],
    catalogue: Annotated[str, typer.Option(help="Installed module with the catalogue, e.g. my_queries.catalogue.")],
    listen: Annotated[str, typer.Option(help="HOST:PORT of the offer API; default that of the file's url.")] = "",
    key_file: Annotated[
        Path | None,
        typer.Option(help="One key of all members, for loopback, where the file names no keys."),
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="Certificate for mutual TLS, PEM.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    ca: Annotated[Path | None, typer.Option(help="The authority of all participants' certificates, PEM.")] = None,
    read_token_file: ReadToken = None,
    seconds: Annotated[
        str | None, typer.Option(help="How long to run; default until interrupted.", metavar="DURATION")
    ] = None,
    period: Annotated[str, typer.Option(help="Time between two tries to move load.", metavar="DURATION")] = "10s",
    lease: Annotated[
        str, typer.Option(help="After this time a silent participant loses its fragments.", metavar="DURATION")
    ] = "30s",
    trigger: Annotated[
        str, typer.Option(help="Time between two micro-batches of a fragment.", metavar="DURATION")
    ] = "1s",
    as_json: Annotated[bool, typer.Option("--json", help="Print the last status as one JSON object.")] = False,
) -> None:
    """Run one participant of a federation: its fragments, and those that partners pay it for.

    Overloaded, it offers fragments to its partners first and sheds last. Stop it with Ctrl-C or SIGTERM. Its metrics
    are at /metrics of its API; --page serves the live page with its load, contracts and moves.

    Example: floodway participant three.yaml --name A --state state/A --shared shared --catalogue my_queries.catalogue
    """
    from floodway.agent.federation.credentials import Credentials, load_pairs
    from floodway.agent.federation.leases import LeaseStore
    from floodway.agent.federation.participant import DECISION, ParticipantAgent
    from floodway.agent.federation.partners import Pace
    from floodway.agent.loop.run_files import locked
    from floodway.agent.wire.server import HttpServer
    from floodway.agent.wire.signing import load_security
    from floodway.contracts.federation_file import load_federation
    from floodway.contracts.participant_state import NegotiationTimes
    from floodway.job.options import values
    from floodway.job.options.flags import parsed
    from floodway.job.options.options import JobOptions
    from floodway.spark.query.catalogue import load_catalogue

    sys.path.insert(0, str(Path.cwd()))  # where a user expects the module of the catalogue to be found
    found = load_federation(federation)
    if name not in found.members:
        raise InputError(f"{federation} has no participant {name!r}", hint=f"It has {', '.join(found.members)}")
    options = JobOptions(**parsed("participant", given))
    between, kept, paced = (
        values.duration(flag, text) for flag, text in (("--period", period), ("--lease", lease), ("--trigger", trigger))
    )
    length = None if seconds is None else values.duration("--seconds", seconds)
    entries = load_catalogue(catalogue)
    for spec in found.owned_by(name):
        entries.check(spec.run, spec.logs, spec.parameters)
    shared_key = load_security(key_file, cert, private_key, ca, os.environ, read_token_file)
    credentials = Credentials(name, shared_key, load_pairs(found, name, federation.parent, os.environ))
    address = parse_address((listen or found.members[name].url.partition("://")[2]).rstrip("/"))
    # Refuse before Spark starts: an address that will not do, a folder that another process has.
    credentials.check_address(address[0])
    HttpServer((), host=address[0], port=address[1], security=credentials.receiving())
    with locked(state):
        pass

    from floodway.agent.federation.spark_engine import SparkFragments
    from floodway.spark.session.session import LOCAL_MASTER, spark_session

    with watched(state, options, key_file=key_file, read_token_file=read_token_file):
        store = LeaseStore(shared, seconds=kept)
        spark = spark_session(f"floodway-{name}", master=options.master or LOCAL_MASTER, conf=options.settings or {})
        try:
            engine = SparkFragments(spark, entries, shared, state / DECISION, options, trigger_seconds=paced)
            agent = ParticipantAgent(
                found,
                name,
                state,
                store,
                engine,
                credentials=credentials,
                listen=address,
                options=options,
                settings=NegotiationTimes(period_seconds=between, wake_seconds=30 * between),
                pace=Pace(lease=kept, margin=kept / 5, patience=2 * between, failed_move=2 * between),
            )
            signal.signal(signal.SIGTERM, lambda number, frame: agent.stop())
            signal.signal(signal.SIGINT, lambda number, frame: agent.stop())
            try:
                agent.start()
                typer.echo(f"{name} listens at {agent.server.url}", err=True)
                agent.run(length)
                last = agent.status()
            finally:
                agent.close()
        finally:
            spark.stop()
    if as_json:
        print_json(last.to_dict())
    elif last.participant is not None:
        running = ", ".join(last.participant.fragments) or "none"
        typer.echo(f"{name} ran {running}; moves: {sum(last.participant.moves_total.values())}; journal in {state}")
