"""Where a shed keeps its state, and what is in each file: what `floodway set` and `floodway top` work on.

One folder per shed, ROOT/NAME/, at a place that the driver reaches on whatever machine it is started. On Spark Connect
executors read `control.json` there.
How the root is found in a session: `spark/shed/place.py`. Without one: `FLOODWAY_STATE`, else
`$XDG_STATE_HOME/floodway`, else `~/.local/state/floodway`.

- `control.json`   the control table (`spark/shed/control_table.py`); written by the running job only
- `mode.json`      {"mode": "observe" | "enforce" | "off"}: the operator's wish, written by `floodway set`, read
                   by the job after every micro-batch; outlives restarts and wins over `mode=` in the code
- `status.json`    the fields of `Status` (`status/status.py`), replaced after every micro-batch
- `batches/`       latencies, rates, keep and reason of every micro-batch (`status/batches.py`)
- `ledger/`        one line a micro-batch (`ledger/ledger.py`)
- `checkpoints.json`  where its queries have their checkpoints, for `floodway audit` (`spark/shed/checkpoints.py`)
- `dropped/`       with `side_output=`: a sample of dropped tuples, {"query", "batch", "tuple"} a line, the newest kept
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from zlib import crc32

from floodway.errors import InputError
from floodway.job.decision import Mode
from floodway.job.status.status import Status, read_status, write_status
from floodway.job.store.state_files import checked_mode as checked_mode
from floodway.job.store.state_files import read_mode, write_mode
from floodway.job.store.store import LocalStore, Store, local_folder, scheme_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ShedFiles:
    """The state of one shed, on a store or in a folder."""

    def __init__(self, place: Store | Path) -> None:
        self.store: Store = LocalStore(place) if isinstance(place, Path) else place

    @property
    def folder(self) -> Path:
        """The folder of a state on a disk; InputError elsewhere."""
        if not isinstance(self.store, LocalStore):
            raise InputError(f"{self.store.uri} is not a folder", hint="This needs a state on a disk of this machine")
        return self.store.folder

    @property
    def control_uri(self) -> str:
        """The control table."""
        return f"{self.store.uri}/control.json"

    def key(self, name: str) -> str:
        """Tells a shed from others of its name: one name may be in use at several places."""
        return f"{name}.{crc32(self.store.uri.encode()):08x}"

    def read_mode(self) -> Mode | None:
        """The operator's wish; None if there is none, or none that can be understood."""
        return read_mode(self.store)

    def write_mode(self, mode: str) -> None:
        """Leave a wish for the running job."""
        write_mode(self.store, mode)

    def read_status(self) -> Status | None:
        """The last status; None if there is none, or one of another version."""
        try:
            return read_status(self.store)
        except InputError:
            return None

    def write_status(self, status: Status) -> None:
        """Replace the status."""
        write_status(self.store, status)


def checked_name(name: str) -> str:
    """Refuse what cannot be the name of a folder."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"shed name {name!r} is not usable as a folder",
            hint="Use letters, digits, '.', '_' and '-', at most 100.",
        )
    return name


def state_root() -> str:
    """The folder or URI that holds one folder for every shed of this user."""
    return os.environ.get("FLOODWAY_STATE") or str(home_root())


def home_root() -> Path:
    """The folder on this machine that holds those whose place nobody has chosen."""
    given = os.environ.get("FLOODWAY_STATE")
    if given and scheme_of(given) == "file":
        return local_folder(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "floodway"
