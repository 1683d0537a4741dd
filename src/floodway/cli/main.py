"""The `floodway` command: one file a command, errors printed without a traceback.

To add a command, write `cli/<name>.py` with one function and add a line to COMMANDS. Command files import what is
heavy (solvers, Spark, plots) inside the function, so that `--help` stays quick.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module

import typer

from floodway.errors import FloodwayError, NetworkError, missing_extra

COMMANDS = (
    "validate",
    "explain",
    "plan",
    "simulate",
    "measure",
    "feed",
    "run",
    "node",
    "up",
    "audit",
    "set",
    "top",
    "dashboard",
    "report",
    "demo",
    "participant",
    "ledger",
    "reproduce",
    "bench",
)

app = typer.Typer(
    name="floodway",
    help="Overload management for Spark Structured Streaming.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", is_eager=True, help="Print the version and exit."),
) -> None:
    if version:
        from floodway import __version__

        typer.echo(__version__)
        raise typer.Exit


def register() -> None:
    """Load every command's file and add it to the application."""
    for name in COMMANDS:
        module = import_module(f"floodway.cli.{name.replace('-', '_')}")
        function = getattr(module, name.replace("-", "_"))
        # The first line whole, in the list of commands; left alone, it would be cut to the width of the terminal.
        app.command(name, short_help=(function.__doc__ or "").partition("\n")[0])(function)


def main() -> None:
    """Run the command line; a Floodway error becomes one message and its exit code."""
    register()
    try:
        app()
    except FloodwayError as error:
        report(error, as_json="--json" in sys.argv)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.strerror is None:
            raise
        # What no command foresaw: a disk that is full, a file that others may not read.
        where = "" if error.filename is None else f"{error.filename}: "
        hint = "Check the path, the room on its disk, and who may read and write there"
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
