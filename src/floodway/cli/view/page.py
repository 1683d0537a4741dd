"""The page beside a command: started for as long as the command runs, its address told, a browser opened on request.

`cli` and `dashboard` are rooms on one level and do not import each other: the page is loaded by name.
"""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodway.errors import InputError
from floodway.job.store.store import make_folder

if TYPE_CHECKING:
    from floodway.agent.wire.signing import Security
    from floodway.job.options.options import JobOptions

SERVE = "floodway.dashboard.routes"
REPORT = "floodway.dashboard.job_report"
LISTEN = "127.0.0.1:0"

ReadToken = Annotated[
    Path | None, typer.Option(help="File with a token that may read metrics and status, for Prometheus; not the key.")
]


def report_of(place: Path | str, name: str | None = None) -> Any:
    """The report of the job at a place (`floodway.dashboard.job_report.JobReport`), under another name if given."""
    return import_module(REPORT).make_report(place, name=name)


def report_html(*reports: Any, title: str | None = None) -> str:
    """One or more reports as one HTML file."""
    return str(import_module(REPORT).to_html(*reports, title=title))


@contextmanager
def watched(
    root: Path,
    options: JobOptions,
    *,
    job: Path | None = None,
    key_file: Path | None = None,
    read_token_file: Path | None = None,
) -> Iterator[str | None]:
    """Serve the live page of the folder and send the job's metrics, where asked for; yields the page's address.

    `job` is the folder of the one job whose metrics are sent, where `root` holds several.
    """
    with ExitStack() as stack:
        url = None
        if options.page is not None or options.open_page:
            from floodway.agent.wire.signing import load_security

            make_folder(root)
            security = load_security(key_file, None, None, None, os.environ, read_token_file)
            page = serving(
                [root], listen=options.page or LISTEN, security=security, open_browser=bool(options.open_page)
            )
            url = stack.enter_context(page)
        if options.otlp is not None:
            from floodway.agent.watch.otlp import OtlpExport

            folder = job or root
            make_folder(folder)
            read = import_module(SERVE).watching([folder])
            stack.enter_context(OtlpExport(options.otlp, read, told=lambda message: typer.echo(message, err=True)))
        yield url


@contextmanager
def serving(
    places: Sequence[Path | str],
    urls: list[str] | None = None,
    *,
    listen: str = LISTEN,
    security: Security | None = None,
    asking: Security | None = None,
    open_browser: bool = False,
    comparison: Path | None = None,
) -> Iterator[str]:
    """Serve the page and say where; yields its address. `comparison` is the file of a picture to show on it."""
    host, port = parse_address(listen)
    page_server = import_module(SERVE).page_server
    server = page_server(
        places, urls or [], host=host, port=port, security=security, asking=asking, comparison=comparison
    )
    with server:
        typer.echo(f"page: {server.url}", err=True)
        if open_browser and not webbrowser.open(server.url):
            typer.echo("no browser could be opened: open the address above yourself", err=True)
        yield str(server.url)


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `:PORT` or `PORT`; port 0 takes a free one.

    >>> parse_address("127.0.0.1:8080"), parse_address(":0"), parse_address("8080"), parse_address("[::1]:9")
    (('127.0.0.1', 8080), ('127.0.0.1', 0), ('127.0.0.1', 8080), ('::1', 9))
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{text!r} is not an address to listen on", hint="Write HOST:PORT, such as 127.0.0.1:8800")
    return host.strip("[]") or "127.0.0.1", int(port)
