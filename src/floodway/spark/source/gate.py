"""A gate before a query's first look at its checkpoint: it may be started before it is this process's turn to run it.

Spark makes all sources of a query and asks each for its read limit, and only then reads from the checkpoint where to go
on. A reader with the option `gate` waits there. By then the plan is analysed and all Python processes run, which is
most of what a start takes. The file decides how the wait ends:

    GATE.waiting    made by the reader: the query is prepared
    GATE            made by the driver: `open`, or anything else to give the query up
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from floodway.errors import FloodwayError
from floodway.job.store.store import write_atomically

OPEN, SHUT = "open", "shut"
_POLL_SECONDS = 0.01


class GateShutError(FloodwayError):
    """The query was prepared and is not wanted."""


def wait_at(gate: Path, *, sleep: Callable[[float], None] = time.sleep, parent: Callable[[], int] = os.getppid) -> None:
    """Return when the gate opens; raise when it is shut, or when the process that started this one has died."""
    started_by = parent()
    waiting(gate).touch()
    while not gate.exists():
        if parent() != started_by:
            raise GateShutError(f"nobody is left to open {gate}")
        sleep(_POLL_SECONDS)
    if gate.read_text().strip() != OPEN:
        raise GateShutError(f"{gate} was shut")


def waiting(gate: Path) -> Path:
    """The file that says that a reader waits at a gate."""
    return gate.with_name(f"{gate.name}.waiting")


def decide(gate: Path, text: str) -> None:
    """Open or shut a gate."""
    write_atomically(gate, text, durable=False)


def remove(gate: Path) -> None:
    """Remove the files of a gate that nobody waits at any more."""
    for path in (gate, waiting(gate)):
        path.unlink(missing_ok=True)
