"""What `reproduce`, `bench` and `chaos` share: a long list of parts, of which one that fails costs no other."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from floodway.cli.view.output import print_json

LINE_SECONDS = 10.0
"""Where there is no terminal, progress is a line this often."""


HOMES = ("FLOODWAY_STATE", "XDG_STATE_HOME")


@contextmanager
def own_home() -> Iterator[None]:
    """A home folder for the jobs that are started meanwhile, so that they are not among the user's."""
    before = {name: os.environ.pop(name, None) for name in HOMES}
    with tempfile.TemporaryDirectory(prefix="floodway-home-") as home:
        os.environ[HOMES[1]] = home
        try:
            yield
        finally:
            del os.environ[HOMES[1]]
            os.environ.update({name: value for name, value in before.items() if value is not None})


@contextmanager
def progress_bar(name: str, *, quiet: bool = False) -> Iterator[Callable[[float, str], None]]:
    """Takes the share that is done, and what is under way: a bar on a terminal, lines on stderr elsewhere."""
    console = Console(stderr=True)
    if quiet or console.is_terminal:
        columns = (SpinnerColumn(), TextColumn(name), BarColumn(), TimeElapsedColumn())
        text_column = TextColumn("{task.description}")
        with Progress(*columns, text_column, console=console, transient=True, disable=quiet) as bar:
            task = bar.add_task("", total=1.0)
            yield lambda share, text: bar.update(task, completed=share, description=text)
        return
    started = time.monotonic()
    due = started

    def line(share: float, text: str) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + LINE_SECONDS
            typer.echo(f"{now - started:6.0f} s  {name} {share:4.0%}  {text}", err=True)

    yield line


def print_list(what: str, entries: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """What can be run: these columns for people, all of each entry as JSON."""
    if as_json:
        print_json({what: list(entries)})
        return
    widths = {column: max(len(entry[column]) for entry in entries) for column in columns}
    for entry in entries:
        typer.echo("  ".join(f"{entry[column]:<{widths[column]}}" for column in columns).rstrip())


def summary(values: Mapping[str, Any], *, most_lines: int) -> str:
    """The numbers in a few lines, a line for each part that holds some; `--json` has all of them.

    >>> print(summary({"peer": "scan", "builds": [1.0, 2.0], "EDF": {"misses": 0.0125, "all": [0.01]}}, most_lines=6))
    peer: scan
    EDF: misses 0.0125
    """
    lines: list[str] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            numbers = [f"{key} {_short(item)}" for key, item in value.items() if isinstance(item, (int, float))]
            lines.append(f"{name}: {', '.join(numbers) or f'{len(value)} entries'}")
        elif isinstance(value, (int, float, str)):
            lines.append(f"{name}: {_short(value)}")
    more = len(lines) - most_lines
    return "\n".join(lines[:most_lines] + ([f"... {more} more in --json"] if more > 0 else []))


def _short(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
