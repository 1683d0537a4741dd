"""Where a shed keeps its state, and what is in each file: what `floodway set` and `floodway top` work on.

One folder a shed, `<root>/<name>/`, the root being `FLOODWAY_STATE`, else `$XDG_STATE_HOME/floodway`, else
`~/.local/state/floodway`. On a cluster the folder must be on storage that driver and executors share, because
executors read `control.json`.

- `control.json`   the control table (`control_table.py`); written by the running job only
- `mode.json`      {"mode": "observe" | "enforce" | "off"}: the operator's wish, written by `floodway set`,
  read
                   by the job after every micro-batch; outlives restarts and wins over `mode=` in the code
- `status.json`    the fields of `Status` (`status.py`), replaced after every micro-batch
- `batches/`       latencies, rates, keep and reason of every micro-batch (`batches.py`)
- `ledger/`        one line a micro-batch (`ledger.py`)
- `checkpoints.json`  where its queries have their checkpoints, for `floodway audit --shed` (`shed_checkpoints.py`)
- `dropped.jsonl`  with `side_output=`: a capped sample of dropped tuples, {"query", "batch", "tuple"} a line
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from floodway.errors import InputError
from floodway.job.decision import Mode
from floodway.job.status.status import Status, read_status, write_status
from floodway.job.store.state_files import checked_mode as checked_mode
from floodway.job.store.state_files import read_mode, write_mode
from floodway.job.store.state_files import write_atomically as write_atomically
from floodway.job.store.store import LocalStore

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class ShedFiles:
    """The files of one shed."""

    folder: Path

    @property
    def control(self) -> Path:
        """The control table, which executors read."""
        return self.folder / "control.json"

    @property
    def store(self) -> LocalStore:
        """The place of the ledger."""
        return LocalStore(self.folder)

    @property
    def dropped(self) -> Path:
        """The side output of dropped tuples."""
        return self.folder / "dropped.jsonl"

    def read_mode(self) -> Mode | None:
        """The operator's wish; None if there is none, or none that can be understood."""
        return read_mode(self.folder)

    def write_mode(self, mode: str) -> None:
        """Leave a wish for the running job."""
        write_mode(self.folder, mode)

    def read_status(self) -> Status | None:
        """The last status; None if there is none, or one of another version."""
        try:
            return read_status(self.store)
        except InputError:
            return None

    def write_status(self, status: Status) -> None:
        """Replace the status."""
        write_status(self.store, status)


def shed_files(name: str, state_dir: str | Path | None = None) -> ShedFiles:
    """The files of the shed of this name; `state_dir` is the root to look under in place of the default."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"shed name {name!r} is not usable as a folder",
            hint="Use letters, digits, '.', '_' and '-', at most 100.",
        )
    return ShedFiles((Path(state_dir) if state_dir is not None else state_root()).absolute() / name)


def state_root() -> Path:
    """The folder that holds one folder for every shed of this user."""
    if given := os.environ.get("FLOODWAY_STATE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "floodway"
