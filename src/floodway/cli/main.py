"""The `floodway` command: one file per command, errors printed without a traceback.

To add a command, write `cli/<name>.py` with one function and add a line to COMMANDS. Command files import what is
heavy (solvers, Spark, plots) inside the function; of a command that is named only its own file is loaded, so that
everything stays quick.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any

import typer

from floodway.errors import FloodwayError, InputError, NetworkError, missing_extra

PROTECT = "Protect a query"
NETWORKS = "Plan and run a network"
WATCH = "Watch and account"
FEDERATION = "Federation"
PAPERS = "Papers and figures"

COMMANDS: Mapping[str, str] = {
    "demo": PROTECT,
    "set": PROTECT,
    "backfill": PROTECT,
    "validate": NETWORKS,
    "explain": NETWORKS,
    "plan": NETWORKS,
    "simulate": NETWORKS,
    "measure": NETWORKS,
    "feed": NETWORKS,
    "run": NETWORKS,
    "node": NETWORKS,
    "up": NETWORKS,
    "top": WATCH,
    "dashboard": WATCH,
    "report": WATCH,
    "audit": WATCH,
    "participant": FEDERATION,
    "payments": FEDERATION,
    "reproduce": PAPERS,
    "bench": PAPERS,
    "chaos": PAPERS,
}
"""Every command, in the groups and the order in which help shows them."""

ALIASES: Mapping[str, str] = {"ledger": "payments"}
"""Former names. They still work and say what the command is called now."""

MEANT: Mapping[str, str] = {
    "status": "floodway top NAME shows a running job",
    "watch": "floodway top NAME shows a running job, floodway dashboard its page",
    "page": "floodway dashboard serves the live page",
    "serve": "floodway dashboard serves the live page",
    "start": "floodway run NET.yaml starts a network in this process, floodway up one process per node",
    "stop": "floodway set NAME --mode off stops dropping; end a run with Ctrl-C",
    "off": "floodway set NAME --mode off stops dropping",
    "observe": "floodway set NAME --mode observe decides and drops nothing",
    "enforce": "floodway set NAME --mode enforce lets drops happen",
    "mode": "floodway set NAME --mode enforce, observe or off",
    "check": "floodway validate NET.yaml checks a network file, floodway audit a run",
    "lint": "floodway validate NET.yaml checks a network file",
    "draw": "floodway explain NET.yaml --picture FILE.svg draws a network",
    "show": "floodway explain NET.yaml shows a network, floodway report FOLDER a run",
    "solve": "floodway plan NET.yaml --rates s1=1 finds what to drop",
    "calibrate": "floodway measure NET.yaml measures costs and selectivities",
    "coordinator": "floodway node NET.yaml --coordinator --state DIR",
    "federation": "floodway participant FEDERATION.yaml runs one member",
    "balances": "floodway payments STATE shows who paid whom",
    "experiments": "floodway reproduce --list",
    "benchmark": "floodway bench",
    "metrics": "floodway dashboard serves them at /metrics; floodway run --otlp URL sends them",
    "shed": "it is a function: clicks.transform(floodway.shed('clicks', target_latency='2s'))",
    "version": "floodway --version",
    "help": "floodway --help",
}
"""What somebody may have wanted who writes one of these."""

app = typer.Typer(
    name="floodway",
    help="Overload management for Spark Structured Streaming.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", is_eager=True, help="Print the version and exit."),
) -> None:
    if version:
        from floodway import __version__

        typer.echo(__version__)
        raise typer.Exit


def register(names: Iterable[str] = (*COMMANDS, *ALIASES)) -> None:
    """Load the files of these commands and add them to the application."""
    for name in names:
        known = ALIASES.get(name, name)
        module = import_module(f"floodway.cli.{known.replace('-', '_')}")
        function: Callable[..., None] = getattr(module, known.replace("-", "_"))
        app.command(
            name,
            # The first line whole, in the list of commands; left alone, it would be cut to the width of the terminal.
            short_help=(function.__doc__ or "").partition("\n")[0],
            rich_help_panel=COMMANDS[known],
            hidden=name in ALIASES,
        )(_renamed(name, known, function) if name in ALIASES else function)


def _renamed(name: str, known: str, function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def command(**values: Any) -> None:
        typer.echo(f"`floodway {name}` is called `floodway {known}` now; both work", err=True)
        function(**values)

    return command


def wanted(words: Iterable[str]) -> tuple[str, ...]:
    """The command that a command line names; all, if it names none. An unknown one is refused with what was meant."""
    name = next(iter(words), "-")
    if name.startswith("-"):
        return (*COMMANDS, *ALIASES)
    if name in COMMANDS or name in ALIASES:
        return (name,)
    from floodway.errors import nearest

    near = nearest(name, COMMANDS)
    hint = MEANT.get(name.lower()) or (f"Did you mean floodway {' or floodway '.join(near)}?" if near else "")
    raise InputError(f"there is no command {name!r}", hint=hint or "floodway --help lists all commands")


def main() -> None:
    """Run the command line; a Floodway error becomes one message and its exit code."""
    try:
        register(wanted(sys.argv[1:]))
        app()
    except FloodwayError as error:
        report(error, as_json="--json" in sys.argv)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.strerror is None:
            raise
        # What no command foresaw: a disk that is full, a file that others may not read, Spark's Java that has died.
        where = "" if error.filename is None else f"{error.filename}: "
        hint = "Check the path, the room on its disk, and who may read and write there"
        if isinstance(error, ConnectionError):
            where = "a process that this command needs has ended: "
            hint = "If it was Spark's Java, look for the reason above; often the machine's memory is too small"
        report(FloodwayError(f"{where}{error.strerror}", hint=hint), as_json="--json" in sys.argv)
        sys.exit(1)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        report(missing, as_json="--json" in sys.argv)
        sys.exit(missing.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def report(error: FloodwayError, *, as_json: bool) -> None:
    """Print an error for a person on stderr, or as one JSON object on stdout."""
    if not as_json:
        typer.echo(f"error: {error}", err=True)
        return
    body: dict[str, object] = {"ok": False, "error": error.message, "hint": error.hint}
    if isinstance(error, NetworkError):
        body["errors"] = [{"key": p.key, "line": p.line, "message": p.message} for p in error.problems]
    typer.echo(json.dumps(body))


if __name__ == "__main__":
    main()
