"""Where a shed keeps its state, and what is in each file: what `floodway set` and `floodway top` work on.

One folder a shed, `<root>/<name>/`, the root being `FLOODWAY_STATE`, else `$XDG_STATE_HOME/floodway`, else
`~/.local/state/floodway`. On a cluster the folder must be on storage that driver and executors share, because
executors read `control.json`.

- `control.json`   the control table (`control_table.py`); written by the running job only
- `mode.json`      {"mode": "observe" | "enforce" | "off"}: the operator's wish, written by `floodway set`,
  read
                   by the job after every micro-batch; outlives restarts and wins over `mode=` in the code
- `status.json`    {"version": 1, ...}: the fields of `Status`, replaced after every micro-batch
- `ledger.jsonl`   one line a micro-batch (`ledger.py`)
- `dropped.jsonl`  with `side_output=`: a capped sample of dropped tuples, {"query", "batch", "tuple"} a line
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from floodway.errors import InputError
from floodway.spark.decision import Mode

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Status:
    """A running shed at a glance. Rates in tuples/s, times in seconds; `keep` is the keep asked for.

    `latency_seconds` is None before the first measurement. `loss` is the share dropped in the last batch,
    `would_drop` what enforcing would have dropped of it. `time_us` is when this was written, `seen_us` the latest
    event time seen (Window Drop only), `controller` what a restart resumes from.
    """

    name: str
    time_us: int
    query: str
    batch: int
    mode: Mode
    keep: float
    offered_rate: float | None
    kept_rate: float | None
    latency_seconds: float | None
    target_seconds: float
    batch_seconds: float
    loss: float
    would_drop: int
    offered_total: int
    kept_total: int
    dropped_total: int
    reason: str
    unreachable: bool = False
    floor_seconds: float | None = None
    late_writes: int = 0
    errors: int = 0
    controller: dict[str, Any] = field(default_factory=dict)
    seen_us: int | None = None
    process: int = field(default_factory=os.getpid)
    version: Literal[1] = 1


_STATUS = TypeAdapter(Status)


@dataclass(frozen=True, slots=True)
class ShedFiles:
    """The files of one shed."""

    folder: Path

    @property
    def control(self) -> Path:
        """The control table, which executors read."""
        return self.folder / "control.json"

    @property
    def ledger(self) -> Path:
        """The ledger."""
        return self.folder / "ledger.jsonl"

    @property
    def dropped(self) -> Path:
        """The side output of dropped tuples."""
        return self.folder / "dropped.jsonl"

    def read_mode(self) -> Mode | None:
        """The operator's wish; None if there is none, or none that can be understood."""
        try:
            body = json.loads((self.folder / "mode.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        mode = body.get("mode") if isinstance(body, dict) else None
        return mode if mode in MODES else None

    def write_mode(self, mode: str) -> None:
        """Leave a wish for the running job."""
        write_atomically(self.folder / "mode.json", json.dumps({"mode": checked_mode(mode)}))

    def read_status(self) -> Status | None:
        """The last status; None if there is none, or one of another version."""
        try:
            return _STATUS.validate_json((self.folder / "status.json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def write_status(self, status: Status) -> None:
        """Replace the status."""
        write_atomically(self.folder / "status.json", json.dumps(asdict(status)))


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


def checked_mode(mode: str) -> Mode:
    """Refuse what is no mode."""
    for known in get_args(Mode):
        if mode == known:
            return TypeAdapter[Mode](Mode).validate_python(known)
    raise InputError(f"mode {mode!r} is not known", hint=f"Choose one of {', '.join(MODES)}.")


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file so that a reader sees the old or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
