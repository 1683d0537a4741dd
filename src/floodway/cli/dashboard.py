"""`floodway dashboard`: the live page of running jobs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from floodway.errors import InputError


def dashboard(
    state: Annotated[
        list[Path] | None, typer.Argument(help="Folders of jobs, as given to --state; default: all sheds of this user.")
    ] = None,
    url: Annotated[list[str] | None, typer.Option(help="Agents to ask, such as http://127.0.0.1:8700.")] = None,
    listen: Annotated[str, typer.Option(help="HOST:PORT to serve on; port 0 takes a free one.")] = "127.0.0.1:8800",
    key_file: Annotated[
        Path | None, typer.Option(help="Key that requests are signed with; needed beyond this machine.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    seconds: Annotated[float | None, typer.Option(help="End after this time; default: on Ctrl-C.")] = None,
) -> None:
    """Serve the live page: the network with its rates and drops, latency, losses, score, ledger, mode switch, metrics.

    Metrics for Prometheus are at /metrics. Beyond this machine (--listen 0.0.0.0:8800) a key is needed.

    Example: floodway dashboard runs/shop --open
    """
    from floodway.agent.wire.signing import load_security
    from floodway.cli.page import serving
    from floodway.spark.shed_state import state_root

    folders = list(state or [])
    if not folders and not url:
        if not state_root().is_dir():
            raise InputError(
                f"nothing to show: no folder was given and {state_root()} does not exist",
                hint="Give the folder of a run, such as floodway dashboard runs/shop, or an agent's --url",
            )
        folders = [state_root()]
    security = load_security(key_file, None, None, None, os.environ)
    with serving(folders, url, listen=listen, security=security, open_browser=open_browser):
        typer.echo("Ctrl-C ends it.", err=True)
        end = time.monotonic() + (seconds if seconds is not None else float("inf"))
        while time.monotonic() < end:
            time.sleep(min(0.2, max(0.0, end - time.monotonic())))
