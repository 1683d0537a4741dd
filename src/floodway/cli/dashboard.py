"""`floodway dashboard`: the live page of running jobs."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from floodway.cli.arguments import find_or_root
from floodway.cli.view.page import ReadToken, serving
from floodway.errors import InputError


def dashboard(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(help="Names of jobs, or places of their state; default: all of this user.", metavar="JOB..."),
    ] = None,
    url: Annotated[list[str] | None, typer.Option(help="Agents to ask, such as http://127.0.0.1:8700.")] = None,
    listen: Annotated[str, typer.Option(help="HOST:PORT to serve on; port 0 takes a free one.")] = "127.0.0.1:8800",
    key_file: Annotated[
        Path | None, typer.Option(help="Key that requests are signed with; needed beyond this machine.")
    ] = None,
    read_token_file: ReadToken = None,
    cert: Annotated[Path | None, typer.Option(help="Certificate to show to agents of --url (PEM), for TLS.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    ca: Annotated[Path | None, typer.Option(help="The authority that signs the agents' certificates (PEM).")] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    seconds: Annotated[
        str | None, typer.Option(help="End after this time; default: on Ctrl-C.", metavar="DURATION")
    ] = None,
) -> None:
    """Serve the live page: the network with its rates and drops, latency, losses, score, ledger, mode switch, metrics.

    Metrics for Prometheus are at /metrics. Beyond this machine (--listen 0.0.0.0:8800) a key is needed; Prometheus,
    which cannot sign, then shows the read token. Agents of --url are asked with the token and the key, over TLS with
    --cert, --private-key and --ca.

    Example: floodway dashboard runs/shop --open
    """
    from floodway.agent.wire.signing import Security, load_security
    from floodway.job.options import values
    from floodway.job.places import home_root, state_root

    length = math.inf if seconds is None else values.duration("--seconds", seconds, zero=True)
    places = [find_or_root(job) for job in jobs or []]
    if not places and not url:
        if state_root() == str(home_root()) and not home_root().is_dir():
            raise InputError(
                f"nothing to show: no job was named and {state_root()} does not exist",
                hint="Name a job, such as floodway dashboard clicks, or give its folder, or an agent's --url",
            )
        places = [state_root()]
    asking = load_security(key_file, cert, private_key, ca, os.environ, read_token_file)
    own = Security(asking.key, token=asking.token)  # browsers have no certificates of this kind
    with serving(places, url, listen=listen, security=own, asking=asking, open_browser=open_browser):
        typer.echo("Ctrl-C ends it.", err=True)
        end = time.monotonic() + length
        while time.monotonic() < end:
            time.sleep(min(0.2, max(0.0, end - time.monotonic())))
