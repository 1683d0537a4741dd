"""The command line in this process: what a person types, without the second that every start of Python takes."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from floodway.cli import main


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def floodway(*arguments: object, cwd: Path | None = None) -> Done:
    """Run a command from its first word to its exit code; what is no error of Floodway's is raised."""
    code = 0
    with (
        _as_in_a_process(),
        patch.object(sys, "argv", ["floodway", *map(str, arguments)]),
        nullcontext() if cwd is None else chdir(cwd),
        redirect_stdout(_Output()) as stdout,
        redirect_stderr(_Output()) as stderr,
    ):
        try:
            main.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Done(code, stdout.text(), stderr.text())


class _Output(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        self.seek(0)
        return self.read()


@contextmanager
def _as_in_a_process() -> Iterator[None]:
    """Only the command that is named is loaded; what it does on a signal ends with it."""
    known, main.app.registered_commands[:] = list(main.app.registered_commands), []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        main.app.registered_commands[:] = known
        for number, handler in handlers.items():
            signal.signal(number, handler)
